//! What an agent changed, and snapshots: the command line, as types.

use crate::spec::policy::ByteSize;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What to do with what a session has on disk.
#[derive(Debug, Subcommand)]
pub enum FilesCommand {
    /// Show the agent's changes to the workspace
    Diff(DiffArgs),
    /// Apply the agent's changes to the folder
    Apply(ApplyArgs),
    /// Discard the agent's changes
    Discard(DiscardArgs),
    /// Save the workspace and the agent's state to one file
    Snapshot(SnapshotArgs),
    /// Restore a session from a snapshot
    Restore(SnapshotRestoreArgs),
    /// Manage files of the workspace
    Files(WorkspaceFilesArgs),
}

/// `saggar session files`.
#[derive(Debug, Args)]
pub struct WorkspaceFilesArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: WorkspaceFilesCommand,
}

/// What to do with files of the workspace.
#[derive(Debug, Subcommand)]
pub enum WorkspaceFilesCommand {
    /// List a directory with everything below it
    List(FilesListArgs),
    /// Show the size and the time of a file
    Show(FileArgs),
    /// Print a file
    Read(FileArgs),
    /// Write standard input to a file, and create the directories above it
    Write(FileArgs),
    /// Remove a file
    Remove(FilesRemoveArgs),
}

/// `saggar session files list`.
#[derive(Debug, Args)]
pub struct FilesListArgs {
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
    /// Exclude files and directories of this name
    #[arg(long, value_name = "NAME")]
    pub exclude: Vec<String>,
    /// The session
    pub id: String,
    /// A directory of the workspace [default: the workspace]
    #[arg(default_value = "", hide_default_value = true)]
    pub path: String,
}

/// `saggar session files show`, `read` and `write`.
#[derive(Debug, Args)]
pub struct FileArgs {
    /// The session
    pub id: String,
    /// A file of the workspace
    pub path: String,
}

/// `saggar session files remove`.
#[derive(Debug, Args)]
pub struct FilesRemoveArgs {
    /// Remove a directory with everything below it
    #[arg(long)]
    pub recursive: bool,
    /// The session
    pub id: String,
    /// A file of the workspace
    pub path: String,
}

/// `saggar session diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// Show a line-by-line diff of text files
    #[arg(long, conflicts_with = "json")]
    pub patch: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The session
    pub id: String,
    /// Paths of the workspace to compare [default: all]
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

/// `saggar session apply`.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// Show which changes would be applied, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Overwrite files that have also changed in the folder
    #[arg(long)]
    pub force: bool,
    /// Allow changes to protected names; read the changes first
    #[arg(long)]
    pub allow_protected: bool,
    /// Allow symbolic links to targets outside of the folder or to protected names
    #[arg(long)]
    pub allow_links: bool,
    /// The session
    pub id: String,
    /// Paths of the workspace to apply [default: all]
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

/// `saggar session discard`.
#[derive(Debug, Args)]
pub struct DiscardArgs {
    /// The session
    pub id: String,
    /// Paths of the workspace to discard [default: all]
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

/// `saggar session snapshot`.
#[derive(Debug, Args)]
pub struct SnapshotArgs {
    /// Write the snapshot to FILE [default: in the session's directory, named by time]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Include all files, without the skip list
    #[arg(long)]
    pub all: bool,
    /// Limit the unpacked size of the snapshot [default: 4G]
    #[arg(long, value_name = "SIZE")]
    pub disk: Option<ByteSize>,
    /// List the session's snapshots
    #[arg(long, conflicts_with_all = ["output", "all", "disk"])]
    pub list: bool,
    /// Remove a snapshot of the session
    #[arg(long, value_name = "NAME", conflicts_with_all = ["output", "all", "disk", "list"])]
    pub remove: Option<PathBuf>,
    /// The session
    pub id: String,
}

/// `saggar session restore`.
#[derive(Debug, Args)]
pub struct SnapshotRestoreArgs {
    /// Limit the unpacked size of the snapshot [default: 4G]
    #[arg(long, value_name = "SIZE")]
    pub disk: Option<ByteSize>,
    /// The session
    pub id: String,
    /// A name from --list, or a file
    pub snapshot: PathBuf,
}
