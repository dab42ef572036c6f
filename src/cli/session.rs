//! `saggar session`: the command line, as types.

pub mod files;

use super::{AgentOptions, OverrideArgs, SandboxArgs};
use clap::{Args, Parser, Subcommand, ValueEnum};
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
    /// Start a session that lasts: its supervisor outlives its creator
    Create(Box<CreateArgs>),
    /// Show all sessions and the state that they are in
    List(ListArgs),
    /// Show one session
    Show(ShowArgs),
    /// Say one prompt to a session, and print what comes back
    Send(SendArgs),
    /// Stop everything in a session; it takes no commands until it is resumed
    Pause(IdArgs),
    /// Let a session go on: at once where it runs, else in a new sandbox with its conversation
    Resume(IdArgs),
    /// End a session for good
    End(EndArgs),
    /// Remove a session that nobody serves, and all that it holds
    Remove(IdArgs),
    /// Print what a session has logged
    Logs(LogsArgs),
    /// What a session has on disk.
    #[command(flatten)]
    Files(files::FilesCommand),
}

/// `saggar session create`.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// The sandbox.
    #[command(flatten)]
    pub sandbox: SandboxArgs,
    /// The agent and its sockets.
    #[command(flatten)]
    pub agent: AgentOptions,
    /// What the session adds to the agent's folder.
    #[command(flatten)]
    pub overrides: OverrideArgs,
    /// The session's name [default: a random one]
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Print the session as JSON, with its sockets
    #[arg(long)]
    pub json: bool,
    /// The agent's folder: CLAUDE.md, and whatever else the agent needs
    pub dir: PathBuf,
}

/// `saggar session create` alone, as its words stand in a session's record.
#[derive(Debug, Parser)]
#[command(name = "create", disable_help_flag = true, disable_version_flag = true)]
pub struct CreateOnly {
    /// The command.
    #[command(flatten)]
    pub create: CreateArgs,
}

/// `saggar session list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// `saggar session show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// As JSON
    #[arg(long)]
    pub json: bool,
    /// The session
    pub id: String,
}

/// `saggar session send`.
#[derive(Debug, Args)]
pub struct SendArgs {
    /// Print the agent's messages as NDJSON, also on a terminal
    #[arg(long)]
    pub json: bool,
    /// The session
    pub id: String,
    /// What to say
    pub prompt: String,
}

/// A command on one session.
#[derive(Debug, Args)]
pub struct IdArgs {
    /// The session
    pub id: String,
}

/// `saggar session end`.
#[derive(Debug, Args)]
pub struct EndArgs {
    /// Remove it, too, and all that it holds
    #[arg(long)]
    pub remove: bool,
    /// The session
    pub id: String,
}

/// `saggar session logs`.
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// Only entries after this number
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub after: u64,
    /// Wait for more until the session is served no more
    #[arg(long)]
    pub follow: bool,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
    /// Only entries of this level and above
    #[arg(long, value_name = "LEVEL", default_value = "debug")]
    pub level: LogsLevel,
    /// The session
    pub id: String,
}

/// How loud an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum LogsLevel {
    /// Details.
    Debug,
    /// What went on.
    Info,
    /// What somebody should look at.
    Warn,
}
