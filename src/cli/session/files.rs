//! What an agent changed, and snapshots: the command line, as types.

use crate::spec::policy::Size;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What to do with what a session has on disk.
#[derive(Debug, Subcommand)]
pub enum FilesCommand {
    /// Show what the agent changed, before it touches the folder
    Diff(DiffArgs),
    /// Take changes of the agent over into the folder
    Apply(ApplyArgs),
    /// Throw changes of the agent away
    Discard(DiscardArgs),
    /// Keep the workspace and the agent's state in one file
    Snapshot(SnapshotArgs),
    /// Put a snapshot in the place of what a session has
    Restore(RestoreArgs),
}

/// `saggar session diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// Show changes of text line by line
    #[arg(long, conflicts_with = "json")]
    pub patch: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
    /// The session
    pub id: String,
    /// Only what changed at and below these paths of the workspace
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

/// `saggar session apply`.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// Say what would be done, or why not, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Write over what has changed in the folder meanwhile
    #[arg(long)]
    pub force: bool,
    /// Take over names that are protected, too; read the change first
    #[arg(long)]
    pub allow_protected: bool,
    /// Take over symbolic links that lead out of the folder or to protected names, too
    #[arg(long)]
    pub allow_links: bool,
    /// The session
    pub id: String,
    /// Only what changed at and below these paths of the workspace [default: everything]
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

/// `saggar session discard`.
#[derive(Debug, Args)]
pub struct DiscardArgs {
    /// The session
    pub id: String,
    /// Only what changed at these paths of the workspace [default: everything]
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

/// `saggar session snapshot`.
#[derive(Debug, Args)]
pub struct SnapshotArgs {
    /// Write it to this file [default: among the session's own, named by the time]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Leave nothing out: no skip list
    #[arg(long)]
    pub all: bool,
    /// How much it may hold, unpacked [default: 4G]
    #[arg(long, value_name = "SIZE")]
    pub disk: Option<Size>,
    /// Print the snapshots that there are, and take none
    #[arg(long, conflicts_with_all = ["output", "all", "disk"])]
    pub list: bool,
    /// The session
    pub id: String,
}

/// `saggar session restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// How much it may hold, unpacked [default: 4G]
    #[arg(long, value_name = "SIZE")]
    pub disk: Option<Size>,
    /// The session
    pub id: String,
    /// A name that --list prints, or a file
    pub snapshot: PathBuf,
}
