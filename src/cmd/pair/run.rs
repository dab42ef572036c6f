//! `saggar pair run` and `saggar pair resume`.

use super::launch::agents;
use super::timeline::{TimelineFormat, TimelinePrinter};
use super::{open_run, resolve, root_directory};
use crate::app::mailbox;
use crate::app::pair::{self, PERSON, PairAgent, PairLaunch, PairRunner};
use crate::cli::pair::{PairResumeArgs, PairRunArgs};
use crate::error::{Code, Error, Result};
use saggar_mailbox::pair::{Outcome, PairSettings};
use saggar_mailbox::runs::{Run, Runs};
use std::path::{Path, PathBuf};

/// Folders of agents in a work tree that the command line names no folders for.
const WORKER: &str = "worker";
const REVIEWER: &str = "reviewer";

pub(super) fn run(args: PairRunArgs) -> Result<u8> {
    let workspace = resolve("the work tree", &args.dir)?;
    let folder = |option: &str, named: Option<&PathBuf>, name: &str| match named {
        Some(folder) => resolve(option, folder),
        None => Ok(Some(workspace.join(name)).filter(|folder| folder.is_dir()).unwrap_or(workspace.clone())),
    };
    let launch = PairLaunch {
        worker: folder("--worker", args.worker.as_ref(), WORKER)?,
        reviewer: folder("--reviewer", args.reviewer.as_ref(), REVIEWER)?,
        reviewer_writes: args.reviewer_writes,
        options: args.options,
        directory: std::env::current_dir().map_err(|e| Error::system("find the current directory", e))?,
        workspace,
    };
    let settings = PairSettings {
        task: args.task,
        worker: agent_name(&launch, &launch.worker, WORKER)?,
        reviewer: agent_name(&launch, &launch.reviewer, REVIEWER)?,
        persons: vec![PERSON.to_owned()],
        max_iterations: args.max_iterations.get(),
        both_review: args.both_review,
    };
    // What is wrong with the agents is known before there is a run.
    pair::check(&settings)?;
    let root = absolute_root(args.root.as_deref())?;
    agents(&launch, &settings, &root, 1)?.iter().try_for_each(PairAgent::check)?;
    let run = pair::create(&Runs::open(&root, &launch.workspace)?, &settings, &launch)?;
    run_agents(run, &root, args.json)
}

pub(super) fn resume(args: &PairResumeArgs) -> Result<u8> {
    let mut run = open_run(&args.id)?;
    if let Some(most) = args.max_iterations {
        run.set_max_iterations(most.get())?;
    }
    run_agents(run, &absolute_root(args.id.place.root.as_deref())?, args.json)
}

/// The directory of runs, as the sandboxes are given it.
fn absolute_root(root: Option<&Path>) -> Result<PathBuf> {
    let root = root_directory(root)?;
    let current = std::env::current_dir().map_err(|e| Error::system("find the current directory", e))?;
    Ok(mailbox::resolve_links(&current.join(root)))
}

/// The name of an agent: that of its folder, or of its role where the folder is the work tree.
fn agent_name(launch: &PairLaunch, folder: &Path, role: &str) -> Result<String> {
    if folder == launch.workspace {
        return Ok(role.to_owned());
    }
    folder.file_name().and_then(|name| name.to_str()).map(str::to_owned).ok_or_else(|| {
        Error::new(Code::Invalid, format!("{} gives the {role} no name", folder.display()))
            .hint("use a folder whose name is a valid name of an agent, such as codex")
    })
}

fn run_agents(run: Run, root: &Path, json: bool) -> Result<u8> {
    let number = run.id();
    let launch = PairLaunch::of_record(run.record())?;
    let settings = pair::settings(run.record())?;
    let agents = agents(&launch, &settings, root, number)?;
    let mut printer = TimelinePrinter::new(TimelineFormat::chosen(json));
    let (outcome, signal) = PairRunner::new(run, agents, &mut printer)?.run()?;
    printer.end(number, &outcome)?;
    Ok(match outcome {
        Outcome::Approved { .. } => 0,
        Outcome::NotApproved { .. } | Outcome::Stalled { .. } => 1,
        Outcome::Interrupted => {
            128u8.saturating_add(signal.and_then(|signal| u8::try_from(signal).ok()).unwrap_or_default())
        }
        Outcome::Failed { .. } => 125,
    })
}
