//! `saggar mcp`: the command line, as types.

use crate::spec::policy::SessionPattern;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `saggar mcp`.
#[derive(Debug, Args)]
pub struct McpArgs {
    /// What to serve.
    #[command(subcommand)]
    pub command: McpCommand,
}

/// The servers.
#[derive(Debug, Subcommand)]
pub enum McpCommand {
    /// Serve the mailbox of a run to one agent
    Mailbox(McpMailboxArgs),
    /// Serve the sessions that the policy names to an agent or editor outside
    Control(McpControlArgs),
}

/// `saggar mcp control`.
#[derive(Debug, Args)]
pub struct McpControlArgs {
    /// Serve the session NAME, or those whose names begin so if it ends with * (repeatable)
    #[arg(long = "session", value_name = "NAME")]
    pub sessions: Vec<SessionPattern>,
    /// Read FILE as the last policy layer
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
}

/// `saggar mcp mailbox`.
#[derive(Debug, Args)]
pub struct McpMailboxArgs {
    /// Use the mailbox of run RUN [default: that of the sandbox in which the command runs]
    #[arg(long, value_name = "RUN", requires = "name")]
    pub run: Option<u64>,
    /// Send and receive as the agent NAME
    #[arg(long = "as", value_name = "NAME", requires = "run")]
    pub name: Option<String>,
    /// Keep the runs in DIR [default: ~/.agentpair]
    #[arg(long, value_name = "DIR", requires = "run")]
    pub root: Option<PathBuf>,
    /// Use the runs of the repository in DIR [default: the current directory]
    #[arg(long, value_name = "DIR", requires = "run")]
    pub repo: Option<PathBuf>,
}
