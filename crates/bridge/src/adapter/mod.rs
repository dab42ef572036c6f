//! Translators for each type of agent, without I/O. An adapter encodes a turn as lines for the agent and parses the
//! agent's lines. It stores only the state that its protocol needs. A new type of agent is one file here.
//!
//! The core ([`super::core`]) owns turns, time and connections. An adapter only encodes and parses.

mod native;
mod single_start;
mod start_flags;
mod stream_json;

pub use native::NativeAdapter;
pub use single_start::SingleStartAdapter;
pub use stream_json::StreamJsonAdapter;

use super::proto::{LogLevel, QueryCommand};
use std::fmt;

/// The channel to the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentTransport {
    /// The program's stdin and stdout.
    Stdio,
    /// A unix socket on which the program listens.
    Socket,
}

/// State of the core that an adapter needs to encode a turn.
#[derive(Debug, Clone, Copy)]
pub struct TurnContext<'a> {
    /// The agent's own id of the session, once the agent has sent one.
    pub agent_session: Option<&'a str>,
    /// The conversation began in an earlier process and this process has not received a `resume` for it.
    pub needs_resume: bool,
}

/// How to abort the turn.
#[derive(Debug, PartialEq, Eq)]
pub enum AbortAction {
    /// Send these bytes to the agent, which then ends the turn itself.
    Send(Vec<u8>),
    /// The agent has not received the turn yet. The turn can end at once.
    NotSent,
}

/// The meaning of one line of the agent.
#[derive(Debug, PartialEq, Eq)]
pub enum AdapterEvent<'a> {
    /// A message for the server.
    Message(AgentMessage<'a>),
    /// The agent accepts commands now.
    Ready,
    /// The agent has loaded its conversation: the response to [`Adapter::encode_resume`].
    Resumed,
    /// Send these bytes to the agent.
    Send(Vec<u8>),
    /// The turn is complete.
    Done,
    /// The agent reports that the turn failed; the error text.
    Failed(String),
    /// The turn cannot start, and the agent has not received it; the error text.
    TurnRejected(String),
    /// A line for the log only.
    Log(LogLevel, String),
    /// The line is not JSON.
    NotJson,
    /// The line needs no action.
    Ignored,
}

/// A message of the agent.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AgentMessage<'a> {
    /// Its JSON, byte for byte as the agent wrote it.
    pub data: &'a str,
    /// Part of a message. Only turns that requested partial messages receive it.
    pub is_partial: bool,
    /// The message completes the turn.
    pub ends_turn: bool,
    /// A control request or its cancellation. A client must receive it even when no turn runs (DECISIONS 19).
    pub is_control: bool,
    /// The agent's own id of the session, if this message contains it.
    pub agent_session: Option<String>,
}

/// A translator between the bridge and one type of agent.
pub trait Adapter: fmt::Debug + Send {
    /// The adapter's name in policies and on the command line.
    fn name(&self) -> &'static str;

    /// The channel to the agent.
    fn transport(&self) -> AgentTransport;

    /// Arguments to append to the agent's command. `resume` is the agent's own id of the session to continue; `flags`
    /// is the result of [`Adapter::start_flags`].
    fn start_arguments(&self, resume: Option<&str>, flags: &[String]) -> Vec<String>;

    /// The arguments with which a process must have been started to run this query.
    ///
    /// # Errors
    /// An invalid field of the query. No state has changed.
    fn start_flags(&self, query: &QueryCommand) -> Result<Vec<String>, String>;

    /// Whether the agent sends [`AdapterEvent::Ready`] before it accepts input.
    fn sends_ready(&self) -> bool;

    /// Whether a running agent needs a `resume`. If not, it loads its conversation from its arguments.
    fn takes_resume(&self) -> bool;

    /// Whether another process can take the place of the running one between two turns, and continue what it has.
    /// `has_conversation` is whether the running process has a part of the conversation, and `agent_session` is the
    /// agent's own id of the session. False if in doubt: the process then runs on, however long it is idle.
    fn can_replace_process(&self, has_conversation: bool, agent_session: Option<&str>) -> bool;

    /// Whether the agent runs a turn that no query has started.
    fn runs_own_turn(&self) -> bool {
        false
    }

    /// The process is ended because it is idle. What earlier turns have set holds in the next process too.
    fn on_idle_end(&mut self) {}

    /// Resets the state for a new process.
    fn on_start(&mut self);

    /// Encodes a turn for the agent.
    fn encode_query(&mut self, query: &QueryCommand, context: TurnContext<'_>) -> Vec<u8>;

    /// Whether the turn waits for the agent to accept its settings. The prompt is then not sent yet.
    fn awaits_settings(&self) -> bool;

    /// Encodes a request that the agent answers once it has loaded its conversation, as [`AdapterEvent::Resumed`] or
    /// [`AdapterEvent::Done`]. `agent_session` is the agent's own id of the session, if it is known.
    fn encode_resume(&mut self, line: &str, agent_session: Option<&str>) -> Vec<u8>;

    /// How to abort the running turn.
    fn abort_turn(&mut self) -> AbortAction;

    /// Encodes a response to a question of the agent; `line` is a `control_response`.
    fn encode_response(&mut self, line: &str) -> Vec<u8>;

    /// Whether the agent supports permission modes. If not, `set_permission_mode` fails (RB-22).
    fn supports_modes(&self) -> bool;

    /// Parses one line, without its newline. `in_turn` is true while a query runs.
    fn parse_line<'a>(&mut self, line: &'a str, in_turn: bool) -> AdapterEvent<'a>;
}

/// The adapter with this name: `stream-json`, `bridge` or `demo`.
pub fn adapter_by_name(name: &str) -> Option<Box<dyn Adapter>> {
    match name {
        "stream-json" => Some(Box::new(StreamJsonAdapter::new())),
        "bridge" => Some(Box::new(NativeAdapter::bridge())),
        "demo" => Some(Box::new(NativeAdapter::demo())),
        _ => None,
    }
}

/// Encodes JSON as one line for the agent, with all line breaks escaped, and a newline.
fn encode_line(json: &str) -> Vec<u8> {
    let json = super::proto::json::escape_line_breaks(json.trim_ascii());
    let mut line = Vec::with_capacity(json.len() + 1);
    line.extend_from_slice(json.as_bytes());
    line.push(b'\n');
    line
}
