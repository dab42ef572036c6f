//! The actions that the core requests from its caller, and the types of their results.

use crate::proto::LogLevel;
use crate::proto::permission::AuditRecord;
use std::fmt;

/// The id of a connection; never reused for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// The id of one run of an `exec` command; never reused for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExecId(pub u64);

/// An action for the caller. Actions must be carried out in order.
#[derive(Debug, PartialEq, Eq)]
pub enum BridgeAction {
    /// Write these bytes to the connection, and report progress with [`super::Bridge::conn_written`].
    Send {
        /// The recipient.
        conn: ConnId,
        /// One or more whole lines that must be sent together, in one write if possible.
        bytes: Vec<u8>,
    },
    /// Close the connection. The core has already removed it.
    Close {
        /// The connection to close.
        conn: ConnId,
        /// Whether to write pending output first, as far as the client reads it.
        flush: bool,
    },
    /// Start the agent. Report with `agent_started` or `agent_exited`.
    StartAgent(AgentStart),
    /// Stop the agent's process, which may still be starting. Report with `agent_exited`, once.
    StopAgent(AgentStop),
    /// Send SIGINT to the agent, because it did not react to an abort message.
    InterruptAgent,
    /// Write these bytes to the agent, and report progress with [`super::Bridge::agent_input_written`].
    AgentInput(Vec<u8>),
    /// Read the agent's output again, which [`super::Bridge::wants_agent_output`] had paused for a slow client (BP-29).
    ResumeAgent,
    /// Run `/bin/sh -c command` in the sandbox. Report with `exec_finished` or `exec_failed`. The core measures the
    /// time limit and sends `KillExec`.
    RunExec {
        /// The id of this run.
        exec: ExecId,
        /// The script for the shell.
        command: String,
    },
    /// Kill the whole process tree of a run. `exec_finished` still follows, with the output so far.
    KillExec {
        /// The run to kill.
        exec: ExecId,
    },
    /// Store the agent's own id of the session, for a later start.
    SaveAgentSession {
        /// The server's id of the session.
        session: String,
        /// The agent's own id of the session.
        agent_session: String,
    },
    /// Record that the agent exited by itself and its turn failed. Must happen before any event is sent (KC-23).
    RecordAgentFailure,
    /// A line of the agent that is not JSON. Only with [`super::BridgeConfig::plain_lines`].
    PlainOutput(Vec<u8>),
    /// The audit record of a decision on a question of the agent. It must be written before the next action.
    Audit(Box<AuditRecord>),
    /// The result of a question about a host ([`super::Bridge::ask_about_host`]).
    HostQuestionAnswered(HostQuestionResult),
    /// A permission question with this id was opened; see [`super::Bridge::pending_permissions`].
    PermissionRequested(String),
    /// The permission question with this id was closed.
    PermissionClosed(String),
    /// A line for the sandbox's log.
    Log {
        /// The level.
        level: LogLevel,
        /// The text.
        text: String,
    },
    /// The bridge has ended: write pending output, close everything and exit with code 0.
    Shutdown,
}

/// The answer to a question about a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostQuestionResult {
    /// The number of the question.
    pub number: u64,
    /// `Ok` if connections to the host are allowed, else the reason of the denial.
    pub verdict: Result<(), String>,
    /// Whether the answer is remembered: an allowance for the session, a denial until the sandbox ends.
    pub keep: bool,
}

/// How to start the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentStart {
    /// Arguments to append to the agent's command.
    pub arguments: Vec<String>,
}

/// How to stop the agent. The core escalates from one method to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentStop {
    /// Close its stdin or its connection. An idle agent then exits.
    CloseInput,
    /// Send SIGTERM.
    Terminate,
    /// Kill its whole process tree.
    Kill,
}

/// The exit status of the agent's process (BP-27).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentExitStatus {
    /// It exited with this code.
    Code(i32),
    /// It was killed by this signal.
    Signal(i32),
    /// The kernel killed it at its memory limit.
    OutOfMemory,
    /// It could not be started; the reason.
    NotStarted(String),
    /// It ended with an unknown status.
    Unknown,
}

impl fmt::Display for AgentExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AgentExitStatus::Code(code) => write!(f, "the agent exited with code {code}"),
            AgentExitStatus::Signal(signal) => match nix::sys::signal::Signal::try_from(*signal) {
                Ok(name) => write!(f, "the agent was killed by signal {signal} ({name})"),
                Err(_) => write!(f, "the agent was killed by signal {signal}"),
            },
            AgentExitStatus::OutOfMemory => f.write_str("the agent was killed at its memory limit"),
            AgentExitStatus::Unknown => f.write_str("the agent has ended"),
            AgentExitStatus::NotStarted(why) => {
                write!(f, "the agent could not be started: {}", super::redact_paths(why))
            }
        }
    }
}

/// The result of an `exec`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecOutcome {
    /// The exit code; 128+N after signal N.
    pub exit_code: i32,
    /// Its standard output, up to the output limit of the caller.
    pub stdout: Vec<u8>,
    /// Its standard error, up to the output limit of the caller.
    pub stderr: Vec<u8>,
    /// Whether output was truncated (BP-23).
    pub truncated: bool,
}
