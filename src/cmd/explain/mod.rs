//! `saggar explain`: what a sandbox would be, and which layer says so; and the plan as `--dry-run` prints it.
//! Nothing is made on the host.
//!
//! | file | its one job |
//! |---|---|
//! | [`report`] | a prepared sandbox as data, which is also the JSON |
//! | [`limits`] [`environment`] [`landlock`] [`network`] | four of its sections |
//! | [`tree`] | the file tree inside, and what a lookup in it finds |
//! | [`access`] | whether the inner user may read and write a file of the host |
//! | [`path`] | `--path`: what one path would be, and why |
//! | [`host`] | `--host`: what would happen to one connection, and why |
//! | [`text`] | the report for people |

mod access;
mod environment;
mod host;
mod landlock;
mod limits;
mod network;
mod path;
mod report;
mod text;
mod tree;

use super::agent;
use super::disk;
use super::prepare::{self, Planned, Prepared, Purpose};
use crate::cli::ExplainArgs;
use crate::error::{Error, Result};
use crate::session::image::Image;
use crate::spec::policy::Home;
use crate::state;
use crate::text::line;
use std::path::{Path, PathBuf};

/// Stands for the name of a session that nobody named.
const NO_SESSION: &str = "SESSION";

/// Prints what the sandbox, or one path in it, would be, or what would happen to one connection.
pub(super) fn run(args: &ExplainArgs) -> Result<u8> {
    let prepared = prepare(args)?;
    match (&args.path, &args.host) {
        (Some(path), _) => print(&path::explain(&prepared, path), args.json),
        (None, Some(host)) => print(&host::explain(&prepared, host), args.json),
        (None, None) => {
            let own: &[&str] = if args.dir.is_some() { &agent::OWN_VARIABLES } else { &[] };
            print(&report::Report::of(&prepared, own, args.dir.as_deref()), args.json)
        }
    }
}

fn print(what: &(impl serde::Serialize + std::fmt::Display), json: bool) -> Result<u8> {
    let text = match json {
        true => serde_json::to_string(what).map_err(|e| Error::system("write JSON", e))? + "\n",
        false => what.to_string(),
    };
    super::say_as(json, &text)?;
    Ok(0)
}

/// Prints the steps of a plan, numbered as errors number them.
pub(super) fn print_steps(prepared: &Prepared) -> Result<u8> {
    let steps = prepared.plan.steps.as_slice().iter().enumerate();
    super::say(
        &steps
            .map(|(index, step)| format!("{:3} {}\n", index + 1, line(&step.to_string())))
            .collect::<String>(),
    )?;
    Ok(0)
}

fn prepare(args: &ExplainArgs) -> Result<Prepared> {
    let mut purpose = match &args.dir {
        Some(directory) => of_agent(args, &prepare::canonical(directory)?)?,
        None => of_wrap(args)?,
    };
    let policy = prepare::load_policy(&args.sandbox, &purpose, prepare::command_line(&args.sandbox))?;
    if args.dir.is_some() {
        let (adapter, command) = agent::choose(&policy.effective);
        agent::bring(&mut purpose, &policy.effective, adapter, &command)?;
    }
    let named = args.sandbox.id.as_deref().unwrap_or(NO_SESSION);
    let session = state::sessions_path().map(|sessions| sessions.join(named)).ok();
    let copy = args.dir.is_some() && args.sandbox.workspace.is_none();
    let lasting = if args.dir.is_some() { disk::Lasting::Session } else { disk::Lasting::Sandbox };
    let disk = disk::choose(&args.sandbox, &policy.effective, copy, session.as_deref(), lasting);
    let place = session.map(|session| match disk.needs_image() {
        true => {
            let place = Image::of(&session).place();
            purpose.move_session(&session, &place);
            place
        }
        false => session,
    });
    if args.sandbox.workspace_overlay {
        purpose.changes = Some(disk::changes(&disk, &place.unwrap_or_default()));
    }
    prepare::prepare(&args.sandbox, purpose, policy, disk)
}

fn of_wrap(args: &ExplainArgs) -> Result<Purpose> {
    let workspace = args.sandbox.workspace.as_deref().unwrap_or(Path::new("."));
    Ok(Purpose {
        home: Home::Tmp,
        workspace: prepare::canonical(workspace)?,
        agent_folder: None,
        program: None,
        session_home: None,
        changes: None,
        own: Vec::new(),
        streams: false,
        start: false,
        planned: Vec::new(),
    })
}

/// The sandbox of `saggar agent DIR`: home and, unless one is named, workspace last in the session (DECISIONS
/// 23 and 24).
fn of_agent(args: &ExplainArgs, folder: &Path) -> Result<Purpose> {
    let session = state::sessions_path()?.join(args.sandbox.id.as_deref().unwrap_or(NO_SESSION));
    let home = session.join("home");
    let mut planned = vec![Planned { path: home.clone(), original: None }];
    let workspace: PathBuf = match &args.sandbox.workspace {
        Some(directory) => prepare::canonical(directory)?,
        None if args.sandbox.workspace_overlay => folder.to_owned(),
        None => {
            let copy = session.join("workspace");
            planned.push(Planned { path: copy.clone(), original: Some(folder.to_owned()) });
            copy
        }
    };
    Ok(Purpose {
        home: Home::Session,
        agent_folder: Some(folder.to_owned()),
        workspace,
        program: None,
        session_home: Some(home),
        changes: None,
        own: Vec::new(),
        streams: false,
        start: false,
        planned,
    })
}
