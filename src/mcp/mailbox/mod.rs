//! `saggar mcp mailbox`: the mailbox of a run as tools of an agent (saggar-mailbox(7)).
//!
//! The sender of a message is the name that the process was started with, and no argument of a tool.

mod access;
mod confine;
mod connect;
mod process;
mod text;

pub use confine::MAILBOX_RIGHTS;
pub use connect::{carry_conversation, is_inside};
pub use process::{MAILBOX_SUBCOMMAND, run_mailbox_process};

pub(crate) use access::{LocalMailbox, MailboxAccess};

use super::arguments::ArgumentKind::Text;
use super::arguments::{Argument, Arguments, schema};
use super::{ToolOutput, ToolReply, ToolSet, serve};
use crate::error::{Code, Error, Result};
use rmcp::model::{JsonObject, Tool};
use saggar_mailbox::{Appended, Draft, MessageType, Signal};
use std::convert::Infallible;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

const SEND: &str = "send_to_agent";
const RECEIVE: &str = "receive_messages";
const STATUS: &str = "bridge_status";

const SEND_ARGUMENTS: [Argument; 4] = [
    Argument::required("to", Text, "Name of the recipient; empty for every member"),
    Argument::required("message_type", Text, "Type of the message: task, result, review, signal or chat"),
    Argument::required("content", Text, "Text of the message"),
    Argument::optional("signal", Text, "Signal of a message of type signal: DONE, PASS or FAIL"),
];
const RECEIVE_ARGUMENTS: [Argument; 2] = [
    Argument::required("agent", Text, "Your own name"),
    Argument::optional(
        "since_id",
        Text,
        "Id of a message: return those after it [default: those not received yet]",
    ),
];

/// The tools of one member's mailbox. Calls run one after the other: they work on files of one owner.
#[derive(Debug)]
pub(crate) struct MailboxTools<M> {
    name: String,
    mailbox: Mutex<M>,
}

/// Serves the mailbox of a run to the agent `name` until the client closes the connection. `root` is the directory of all
/// runs, and `repo` the resolved path of the repository. Returns the exit status.
///
/// # Errors
/// The run cannot be used, or `name` is no member; as [`serve`].
pub fn serve_mailbox(root: &Path, repo: &Path, run: u64, name: &str) -> Result<u8> {
    let mailbox = LocalMailbox::open(root, repo, run, name)?;
    confine::confine(mailbox.path())?;
    serve(MailboxTools::new(mailbox))
}

impl<M: MailboxAccess> ToolSet for MailboxTools<M> {
    type Pending = Infallible;

    fn server_name(&self) -> &'static str {
        "saggar-mailbox"
    }

    fn instructions(&self) -> String {
        format!(
            "You are {}. {SEND} sends a message to another member of the run, {RECEIVE} returns the messages for you. \
             Signals are messages of type signal; words in a text have no effect.",
            self.name
        )
    }

    fn tools(&self) -> Vec<Tool> {
        vec![
            Tool::new(SEND, "Send a message to another agent, or to all", schema(&SEND_ARGUMENTS)),
            Tool::new(RECEIVE, "Receive messages that other agents sent to you", schema(&RECEIVE_ARGUMENTS)),
            Tool::new(STATUS, "Count the messages and signals of the run", schema(&[])),
        ]
    }

    async fn call(&self, name: &str, arguments: JsonObject) -> Option<Result<ToolReply<Infallible>>> {
        let output = match name {
            SEND => Arguments::check(SEND, &SEND_ARGUMENTS, arguments).and_then(|given| self.send(given)),
            RECEIVE => {
                Arguments::check(RECEIVE, &RECEIVE_ARGUMENTS, arguments).and_then(|given| self.receive(given))
            }
            STATUS => Arguments::check(STATUS, &[], arguments).and_then(|_| {
                let statistics = self.with_mailbox(M::statistics)?;
                Ok(ToolOutput { text: text::status(&statistics), ..ToolOutput::default() })
            }),
            _ => return None,
        };
        Some(output.map(ToolReply::Output))
    }

    async fn proceed(&self, pending: Infallible) -> Result<ToolOutput> {
        match pending {}
    }

    async fn withdraw(&self, pending: Infallible) {
        match pending {}
    }
}

impl<M: MailboxAccess> MailboxTools<M> {
    pub(crate) fn new(mailbox: M) -> Self {
        MailboxTools { name: mailbox.name().to_owned(), mailbox: Mutex::new(mailbox) }
    }

    fn with_mailbox<R>(&self, job: impl FnOnce(&mut M) -> R) -> R {
        job(&mut self.mailbox.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn send(&self, mut given: Arguments) -> Result<ToolOutput> {
        let type_name = given.take("message_type");
        let message_type = MessageType::from_name(&type_name).ok_or_else(|| {
            Error::new(Code::Invalid, format!("unknown message_type {type_name:?}"))
                .hint("use task, result, review, signal or chat")
        })?;
        let signal = match given.take("signal").as_str() {
            "" => None,
            name => Some(Signal::from_name(name).ok_or_else(|| {
                Error::new(Code::Invalid, format!("unknown signal {name:?}")).hint("use DONE, PASS or FAIL")
            })?),
        };
        let draft = Draft { message_type, to: given.take("to"), content: given.take("content"), signal };
        let text = match self.with_mailbox(|mailbox| mailbox.send(draft))? {
            Appended::Stored { id } => format!("Message sent: id={id}"),
            Appended::Duplicate { id } => format!("Message duplicate (already sent): id={id}"),
        };
        Ok(ToolOutput { text, ..ToolOutput::default() })
    }

    fn receive(&self, mut given: Arguments) -> Result<ToolOutput> {
        let (agent, name) = (given.take("agent"), &self.name);
        if agent != *name {
            return Err(Error::new(Code::Refused, format!("cannot receive the messages of {agent:?}"))
                .hint(format!("you are {name}: pass that as agent")));
        }
        let since = given.take("since_id");
        let since = Some(since.as_str()).filter(|id| !id.is_empty());
        let page = self.with_mailbox(|mailbox| mailbox.receive(since))?;
        Ok(text::page(&page))
    }
}
