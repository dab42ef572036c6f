//! `saggar session`: the command line, as types.

pub mod files;

use super::{AgentOptions, OverrideArgs, SandboxArgs};
use crate::session::session_state::SessionState;
use crate::spec::policy::TimeSpan;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// `saggar session`.
#[derive(Debug, Args)]
pub struct SessionArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: SessionCommand,
}

/// What to do with sessions.
#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    /// Create a session and start it in the background
    Create(Box<SessionCreateArgs>),
    /// List sessions and their states
    List(SessionListArgs),
    /// Show a session
    Show(ShowArgs),
    /// Send a prompt to a session and print the reply
    Send(SendArgs),
    /// Run a command in the sandbox of a session
    Exec(SessionExecArgs),
    /// Pause all processes of a session
    Pause(SessionIdArgs),
    /// Resume a paused session, or continue a stopped one in a new sandbox
    Resume(ResumeArgs),
    /// End a session permanently
    End(EndArgs),
    /// Remove sessions that are not running, with all of their data
    Remove(SessionRemoveArgs),
    /// Remove ended sessions, by their age and number
    Prune(SessionPruneArgs),
    /// Print the log of a session
    Logs(LogsArgs),
    /// Print the stored events of the bridge of a session, one JSON object per line
    Events(SessionEventsArgs),
    /// What a session has on disk.
    #[command(flatten)]
    Files(files::FilesCommand),
}

/// `saggar session create`.
#[derive(Debug, Args)]
pub struct SessionCreateArgs {
    /// The sandbox.
    #[command(flatten)]
    pub sandbox: SandboxArgs,
    /// The agent and its sockets.
    #[command(flatten)]
    pub agent: AgentOptions,
    /// What the session adds to the agent's folder.
    #[command(flatten)]
    pub overrides: OverrideArgs,
    /// Set the session's id [default: random]
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Create a worktree of the repository on BRANCH, and use it as the workspace
    #[arg(long, value_name = "BRANCH", conflicts_with_all = ["from", "workspace_overlay"])]
    pub worktree: Option<String>,
    /// Start with the workspace and the conversation of a snapshot
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Continue the events in FILE, the output of `saggar session events`
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,
    /// Continue with event numbers from N, or after those of --events if that is more
    #[arg(long, value_name = "N", default_value_t = 1, requires = "events")]
    pub next_event: u64,
    /// Print the session and its sockets as JSON
    #[arg(long)]
    pub json: bool,
    /// The agent's folder, with CLAUDE.md and the agent's other files
    pub dir: PathBuf,
}

/// `saggar session create` alone, as its words stand in a session's record.
#[derive(Debug, Parser)]
#[command(name = "create", disable_help_flag = true, disable_version_flag = true)]
pub struct SessionCreateParser {
    /// The command.
    #[command(flatten)]
    pub create: SessionCreateArgs,
}

/// `saggar session list`.
#[derive(Debug, Args)]
pub struct SessionListArgs {
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
    /// The sessions to list, if they exist [default: all]
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
}

/// `saggar session show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The session
    pub id: String,
}

/// `saggar session send`.
#[derive(Debug, Args)]
pub struct SendArgs {
    /// Print the agent's messages as NDJSON, even on a terminal
    #[arg(long)]
    pub json: bool,
    /// Read the prompt from FILE
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    pub prompt_file: Option<PathBuf>,
    /// The session
    pub id: String,
    /// The prompt, or - for standard input
    #[arg(required_unless_present = "prompt_file")]
    pub prompt: Option<String>,
}

/// `saggar session exec`.
#[derive(Debug, Args)]
pub struct SessionExecArgs {
    /// Kill the command after this time, at most 1d [default: 1d]
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<TimeSpan>,
    /// The session
    pub id: String,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

/// A command on one session.
#[derive(Debug, Args)]
pub struct SessionIdArgs {
    /// The session
    pub id: String,
}

/// `saggar session resume`.
#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// Print the session and its sockets as JSON
    #[arg(long)]
    pub json: bool,
    /// The session
    pub id: String,
}

/// `saggar session end`.
#[derive(Debug, Args)]
pub struct EndArgs {
    /// Remove the session with all of its data
    #[arg(long)]
    pub remove: bool,
    /// The session
    pub id: String,
}

/// `saggar session remove`.
#[derive(Debug, Args)]
pub struct SessionRemoveArgs {
    /// Discard changes that are not committed in worktrees of --worktree
    #[arg(long)]
    pub force: bool,
    /// The sessions
    #[arg(required = true, value_name = "ID")]
    pub ids: Vec<String>,
}

/// `saggar session prune`.
#[derive(Debug, Args)]
pub struct SessionPruneArgs {
    /// Print the sessions, and remove none
    #[arg(long)]
    pub dry_run: bool,
    /// Keep the N sessions that changed last
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub keep: usize,
    /// Remove only sessions whose state has not changed for this time, such as 30m or 168h
    #[arg(long, value_name = "DURATION")]
    pub older_than: Option<TimeSpan>,
    /// Remove sessions in these states; paused ones can be resumed
    #[arg(long = "state", value_name = "STATE,…", value_delimiter = ',', default_values = ["ended", "error"])]
    pub states: Vec<PrunedState>,
}

/// The state of sessions that can be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PrunedState {
    /// Ended permanently.
    Ended,
    /// Ended without a request.
    Error,
    /// The sandbox has ended, and the session can be resumed.
    Paused,
}

impl From<PrunedState> for SessionState {
    fn from(state: PrunedState) -> Self {
        match state {
            PrunedState::Ended => SessionState::Ended,
            PrunedState::Error => SessionState::Error,
            PrunedState::Paused => SessionState::Paused,
        }
    }
}

/// `saggar session events`.
#[derive(Debug, Args)]
pub struct SessionEventsArgs {
    /// Print only events after number N
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub after: u64,
    /// Print the events in DIRECTORY, NAME.events of the bridge of a container
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "id")]
    pub spool: Option<PathBuf>,
    /// The session
    #[arg(required_unless_present = "spool")]
    pub id: Option<String>,
}

/// `saggar session logs`.
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// Print only entries after number N
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub after: u64,
    /// Follow the log until the session is no longer served
    #[arg(long)]
    pub follow: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
    /// Print only entries of this level and above
    #[arg(long, value_name = "LEVEL", default_value = "debug")]
    pub level: LogsLevel,
    /// The session
    pub id: String,
}

/// The level of a log entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum LogsLevel {
    /// Details for debugging.
    Debug,
    /// Normal events.
    Info,
    /// Events that need attention.
    Warn,
}
