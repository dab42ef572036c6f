//! `saggar quarantine`: the command line, as types.

use clap::{Args, Subcommand};

/// `saggar quarantine`.
#[derive(Debug, Args)]
pub struct QuarantineArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: QuarantineCommand,
}

/// What to do with what is in quarantine.
#[derive(Debug, Subcommand)]
pub enum QuarantineCommand {
    /// Show what is in quarantine: where it was, and why it was moved
    List(ListArgs),
    /// Move things back to where they were
    Restore(RestoreArgs),
    /// Remove things for good
    Remove(RemoveArgs),
}

/// `saggar quarantine list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
    /// The sandbox or session [default: all]
    pub id: Option<String>,
}

/// `saggar quarantine restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// Move what is there by now to quarantine first
    #[arg(long)]
    pub force: bool,
    /// One JSON object a line for each thing that was restored
    #[arg(long)]
    pub json: bool,
    /// The sandbox or session
    pub id: String,
    /// Numbers or names as `list` shows them, or paths where things were [default: all]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
}

/// `saggar quarantine remove`.
#[derive(Debug, Args)]
pub struct RemoveArgs {
    /// One JSON object a line for each thing that was removed
    #[arg(long)]
    pub json: bool,
    /// The sandbox or session
    pub id: String,
    /// Numbers or names as `list` shows them, or paths where things were [default: all]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
}
