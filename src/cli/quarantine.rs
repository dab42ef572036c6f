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
    /// List quarantined files, their original paths and the reasons
    List(QuarantineListArgs),
    /// Restore quarantined files to their original paths
    Restore(QuarantineRestoreArgs),
    /// Delete quarantined files permanently
    Remove(QuarantineRemoveArgs),
}

/// `saggar quarantine list`.
#[derive(Debug, Args)]
pub struct QuarantineListArgs {
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
    /// The sandbox or session [default: all]
    pub id: Option<String>,
}

/// `saggar quarantine restore`.
#[derive(Debug, Args)]
pub struct QuarantineRestoreArgs {
    /// Quarantine a file that exists at the original path
    #[arg(long)]
    pub force: bool,
    /// Print one JSON object per restored file
    #[arg(long)]
    pub json: bool,
    /// The sandbox or session
    pub id: String,
    /// Numbers or names from `list`, or original paths [default: all]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
}

/// `saggar quarantine remove`.
#[derive(Debug, Args)]
pub struct QuarantineRemoveArgs {
    /// Print one JSON object per removed file
    #[arg(long)]
    pub json: bool,
    /// The sandbox or session
    pub id: String,
    /// Numbers or names from `list`, or original paths [default: all]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
}
