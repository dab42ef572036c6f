//! `saggar pair`: the command line, as types.

use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;

/// `saggar pair`.
#[derive(Debug, Args)]
pub struct PairArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: PairCommand,
}

/// The commands on pair runs.
#[derive(Debug, Subcommand)]
pub enum PairCommand {
    /// Run a worker and a reviewer on one task until the work is approved
    #[command(
        after_help = "Exit status: 0 approved; 1 not approved, or an agent stopped sending messages; 125 any other \
                            error; 128+N signal N."
    )]
    Run(Box<PairRunArgs>),
    /// Continue a run that ended without approval or was killed
    Resume(PairResumeArgs),
    /// Send a message of a person to the agents of a run
    Send(PairSendArgs),
    /// Show the state of a run
    Status(PairShowArgs),
    /// Print the messages of a run
    Log(PairShowArgs),
    /// Print the messages of a run as they come, until it ends
    Watch(PairShowArgs),
    /// List the runs of a repository
    List(PairListArgs),
    /// Print the messages of a run as a Markdown document
    Export(PairRunIdArgs),
}

/// Where runs are.
#[derive(Debug, Args)]
pub struct PairPlaceArgs {
    /// Keep the runs in DIR [default: ~/.agentpair]
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Use the runs of the repository in DIR [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub repo: Option<PathBuf>,
}

/// One run.
#[derive(Debug, Args)]
pub struct PairRunIdArgs {
    /// Where runs are.
    #[command(flatten)]
    pub place: PairPlaceArgs,
    /// The number of the run
    pub run: u64,
}

/// `saggar pair run`.
#[derive(Debug, Args)]
pub struct PairRunArgs {
    /// The work tree of both agents [default: the current directory]
    #[arg(default_value = ".", hide_default_value = true)]
    pub dir: PathBuf,
    /// Set the task to TEXT
    #[arg(long, value_name = "TEXT")]
    pub task: String,
    /// Run the agent of FOLDER as the worker [default: worker in the work tree, or the work tree]
    #[arg(long, value_name = "FOLDER")]
    pub worker: Option<PathBuf>,
    /// Run the agent of FOLDER as the reviewer [default: reviewer in the work tree, or the work tree]
    #[arg(long, value_name = "FOLDER")]
    pub reviewer: Option<PathBuf>,
    /// End the run after N turns of each agent
    #[arg(long, value_name = "N", default_value = "5")]
    pub max_iterations: NonZeroU32,
    /// Run both agents as worker and reviewer, so that each approves the work of the other
    #[arg(long)]
    pub both_review: bool,
    /// Allow the reviewer to change the work tree
    #[arg(long)]
    pub reviewer_writes: bool,
    /// Keep the runs in DIR [default: ~/.agentpair]
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Print one JSON object per message, even on a terminal
    #[arg(long)]
    pub json: bool,
    /// Options of session create for both agents, after --
    #[arg(last = true, value_name = "OPTION")]
    pub options: Vec<OsString>,
}

/// `saggar pair resume`.
#[derive(Debug, Args)]
pub struct PairResumeArgs {
    /// The run.
    #[command(flatten)]
    pub id: PairRunIdArgs,
    /// End the run after N turns of each agent in all [default: as the run was begun]
    #[arg(long, value_name = "N")]
    pub max_iterations: Option<NonZeroU32>,
    /// Print one JSON object per message, even on a terminal
    #[arg(long)]
    pub json: bool,
}

/// `saggar pair send`.
#[derive(Debug, Args)]
pub struct PairSendArgs {
    /// The run.
    #[command(flatten)]
    pub id: PairRunIdArgs,
    /// Send to the agent NAME [default: to both agents]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub to: String,
    /// The message
    pub text: String,
}

/// A command on one run.
#[derive(Debug, Args)]
pub struct PairShowArgs {
    /// The run.
    #[command(flatten)]
    pub id: PairRunIdArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `saggar pair list`.
#[derive(Debug, Args)]
pub struct PairListArgs {
    /// Where runs are.
    #[command(flatten)]
    pub place: PairPlaceArgs,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}
