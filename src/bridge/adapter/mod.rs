//! What each kind of agent speaks, as pure translators: one turn in, the agent's lines out, nothing kept but
//! what the dialect needs. A new kind of agent is one file here.
//!
//! The core ([`super::core`]) owns turns, time and connections; an adapter only knows words.

mod flags;
mod once;
mod relay;
mod stream_json;

pub use once::Once;
pub use relay::Relay;
pub use stream_json::StreamJson;

use super::proto::{LogLevel, Query};
use std::fmt;

/// Where the agent is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// On the program's stdin and stdout.
    Stdio,
    /// On a unix socket the program listens on.
    Socket,
}

/// What the core knows that an adapter needs to word a turn.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The agent's own name for the conversation, once it has said one.
    pub agent_session: Option<&'a str>,
    /// The conversation began in an earlier process and this one has not been told of it.
    pub catch_up: bool,
}

/// What to do to abort the turn.
#[derive(Debug, PartialEq, Eq)]
pub enum Abort {
    /// Tell the agent this; it ends the turn itself.
    Tell(Vec<u8>),
    /// The agent has not heard of the turn yet: it is over.
    Unheard,
}

/// What one line of the agent means.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard<'a> {
    /// A message for the server.
    Message(Message<'a>),
    /// The agent takes commands now.
    Ready,
    /// The agent is up with its conversation: the answer to [`Adapter::resume`].
    Resumed,
    /// The adapter has something more to tell the agent.
    Tell(Vec<u8>),
    /// The turn is complete.
    Done,
    /// The agent says that the turn failed.
    Failed(String),
    /// The turn cannot begin, and the agent has not heard of it.
    Refused(String),
    /// Something for the log only.
    Note(LogLevel, String),
    /// The line is not JSON.
    Plain,
    /// Nothing of interest.
    Nothing,
}

/// A message of the agent.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Message<'a> {
    /// Its JSON, byte for byte as the agent wrote it.
    pub data: &'a str,
    /// It is a piece of an answer, wanted only by turns that asked for pieces.
    pub partial: bool,
    /// The turn is complete with it.
    pub ends_turn: bool,
    /// It asks the server for something, or takes such a question back: it must reach somebody even when no
    /// turn runs (DECISIONS 19).
    pub asks: bool,
    /// The agent's own name for the conversation, when this message says it.
    pub agent_session: Option<String>,
}

/// A translator between the bridge and one kind of agent.
pub trait Adapter: fmt::Debug + Send {
    /// The adapter's name in policies and on the command line.
    fn name(&self) -> &'static str;

    /// Where the agent is spoken to.
    fn transport(&self) -> Transport;

    /// Words to append to the agent's command. `resume` is the agent's own name of the conversation to go on
    /// with; `flags` come from [`Adapter::flags`].
    fn arguments(&self, resume: Option<&str>, flags: &[String]) -> Vec<String>;

    /// The words that a process must have been started with to serve this query.
    ///
    /// # Errors
    /// What is wrong with the query, before anything has been done about it.
    fn flags(&self, query: &Query) -> Result<Vec<String>, String>;

    /// Whether the agent says [`Heard::Ready`] before it may be spoken to.
    fn greets(&self) -> bool;

    /// Whether a live agent must hear a `resume`; else it has its conversation from its arguments.
    fn hears_resume(&self) -> bool;

    /// A new process runs: forget the old one.
    fn started(&mut self);

    /// What to tell the agent so that it begins a turn.
    fn query(&mut self, query: &Query, context: Context<'_>) -> Vec<u8>;

    /// Whether the turn waits for the agent to agree to its settings: it has been begun, and not yet heard of.
    fn opening(&self) -> bool;

    /// What to tell the agent so that it says it is up: [`Heard::Resumed`], or [`Heard::Done`].
    fn resume(&mut self, line: &str) -> Vec<u8>;

    /// What to tell the agent so that it aborts the turn.
    fn abort(&mut self) -> Abort;

    /// What to tell the agent so that it has this answer, a line of its own kind.
    fn answer(&mut self, line: &str) -> Vec<u8>;

    /// Whether the agent can be brought into a permission mode: else nobody is told that it was (RB-22).
    fn takes_modes(&self) -> bool;

    /// Reads one line, without its newline. `in_turn` says whether a query runs.
    fn hear<'a>(&mut self, line: &'a str, in_turn: bool) -> Heard<'a>;
}

/// The adapter of this name: `stream-json`, `bridge` or `demo`.
pub fn by_name(name: &str) -> Option<Box<dyn Adapter>> {
    match name {
        "stream-json" => Some(Box::new(StreamJson::new())),
        "bridge" => Some(Box::new(Relay::bridge())),
        "demo" => Some(Box::new(Relay::demo())),
        _ => None,
    }
}

/// A line for the agent: one line whatever its reader takes for the end of one, and a newline.
fn line_out(json: &str) -> Vec<u8> {
    let json = super::proto::json::one_line(json.trim_ascii());
    let mut line = Vec::with_capacity(json.len() + 1);
    line.extend_from_slice(json.as_bytes());
    line.push(b'\n');
    line
}
