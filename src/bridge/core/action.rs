//! What the core asks of the world around it, and what the world tells back.

use crate::bridge::proto::LogLevel;
use crate::bridge::proto::permission::Audit;
use std::fmt;
use std::time::Duration;

/// A connection. Never used again for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// One run of an `exec` command. Never used again for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExecId(pub u64);

/// Something to be done, in the order given.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Write this to the connection, and report progress with [`super::Bridge::conn_written`].
    Send {
        /// To whom.
        conn: ConnId,
        /// One or more whole lines that must leave together, one write when it fits.
        bytes: Vec<u8>,
    },
    /// Close the connection; the core has forgotten it already.
    Close {
        /// Which.
        conn: ConnId,
        /// Write what was sent before, as far as it goes.
        flush: bool,
    },
    /// Start the agent; answer with `agent_started` or `agent_exited`.
    StartAgent(Start),
    /// End the agent's process, which may still be starting; answer with `agent_exited`, once.
    StopAgent(Stop),
    /// Send the agent SIGINT: it did not react to words.
    InterruptAgent,
    /// Write this to the agent, and report progress with [`super::Bridge::agent_input_written`].
    AgentInput(Vec<u8>),
    /// Stop reading what the agent writes: its reader does not keep up (BP-29).
    PauseAgent,
    /// Read the agent again.
    ResumeAgent,
    /// Run `/bin/sh -c command` in the sandbox; answer with `exec_finished` or `exec_failed`.
    RunExec {
        /// Names this run.
        exec: ExecId,
        /// The shell command.
        command: String,
        /// When it will be killed; the core keeps the time and sends `KillExec`.
        timeout: Duration,
    },
    /// Kill the whole process tree of a run; `exec_finished` still follows, with what it wrote so far.
    KillExec {
        /// Which.
        exec: ExecId,
    },
    /// The agent has said its own name for the conversation: keep it for a later start.
    Learned {
        /// The server's name for it.
        session: String,
        /// The agent's.
        agent_session: String,
    },
    /// The agent has ended by itself and its turn fails with it: to be on record before anybody is told (KC-23).
    AgentFailed,
    /// Whole event lines no connection waits for: a session spools them, the foreground drops them.
    Unclaimed(Vec<u8>),
    /// A line of the agent that is no message: not JSON. Only with [`super::Config::plain_lines`].
    Plain(Vec<u8>),
    /// A decision about a question of the agent, for the session's audit: to be written before what follows.
    Audit(Box<Audit>),
    /// The end of a question about a host ([`super::Bridge::ask_about_host`]).
    HostAnswered(HostAnswer),
    /// A question about a tool is open, under this name: see [`super::Bridge::permissions`].
    PermissionAsked(String),
    /// It is no longer.
    PermissionClosed(String),
    /// An entry for the sandbox's log.
    Log {
        /// How loud.
        level: LogLevel,
        /// What to write.
        text: String,
    },
    /// All is over: write what is still to be written, close everything, exit 0.
    Shutdown,
}

/// What was said about a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostAnswer {
    /// The number of the question.
    pub number: u64,
    /// It may be reached; else why not.
    pub verdict: Result<(), String>,
    /// The answer holds for good: a yes for the session, a no for as long as the sandbox lives.
    pub keep: bool,
}

/// How to start the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// Words to append to the agent's command.
    pub arguments: Vec<String>,
    /// The agent's own name of the conversation it is to go on with, if there is one; `arguments` say it
    /// already where the agent takes it there.
    pub resume: Option<String>,
}

/// How to end the agent. The core escalates by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Close its stdin or its connection: an idle agent exits.
    CloseInput,
    /// SIGTERM.
    Terminate,
    /// Kill its whole process tree.
    Kill,
}

/// How the agent's process ended (BP-27).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// It exited.
    Code(i32),
    /// A signal killed it.
    Signal(i32),
    /// The kernel killed it at its memory limit.
    OutOfMemory,
    /// It ran past its time limit.
    TimeLimit,
    /// It was ended because of what it did.
    Policy(String),
    /// It never ran.
    NotStarted(String),
    /// It ended, and nobody could see how.
    Unseen,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "the agent exited with code {code}"),
            Exit::Signal(signal) => match nix::sys::signal::Signal::try_from(*signal) {
                Ok(name) => write!(f, "the agent was killed by signal {signal} ({name})"),
                Err(_) => write!(f, "the agent was killed by signal {signal}"),
            },
            Exit::OutOfMemory => f.write_str("the agent was killed at its memory limit"),
            Exit::TimeLimit => f.write_str("the agent was ended at its time limit"),
            Exit::Policy(why) => write!(f, "the agent was ended by policy: {}", super::scrub(why)),
            Exit::Unseen => f.write_str("the agent has ended"),
            Exit::NotStarted(why) => write!(f, "the agent could not be started: {}", super::scrub(why)),
        }
    }
}

/// What an `exec` left behind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The exit code; 128+N after signal N.
    pub exit_code: i32,
    /// What it wrote to stdout, up to the limit of whoever ran it.
    pub stdout: Vec<u8>,
    /// What it wrote to stderr, likewise.
    pub stderr: Vec<u8>,
    /// Whether anything was cut off (BP-23).
    pub truncated: bool,
}
