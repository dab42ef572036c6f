//! `saggar explain`: describes a sandbox and the layer behind each value, and prints the plan for `--dry-run`.
//! Nothing is created on the host.
//!
//! | file | contents |
//! |---|---|
//! | [`report`] | a prepared sandbox as data, which is also the JSON |
//! | [`limits`] [`environment`] [`landlock`] [`network`] [`processes`] | five of its sections |
//! | [`agent`] | the program of an agent, or why there is none |
//! | [`tree`] | the file tree inside, and path lookup in it |
//! | [`access`] | whether the inner user may read and write a file of the host |
//! | [`path`] | `--path`: explains one path |
//! | [`host`] | `--host`: explains one connection |
//! | [`text`] | the report as text |

mod access;
mod agent;
mod environment;
mod host;
mod landlock;
mod limits;
mod network;
mod path;
mod processes;
mod report;
mod text;
mod tree;

use crate::app::prepare::{self, LaunchRequest, PlannedDirectory, PreparedSandbox};
use crate::app::wrap::WrapDirectories;
use crate::app::{self, SandboxOptions, disk};
use crate::cli::ExplainArgs;
use crate::error::{Error, Result};
use crate::session::image::DiskImage;
use crate::spec::policy::HomeSource;
use crate::state;
use crate::text::one_line;
use std::path::Path;

/// The placeholder for the name of a session without one.
const SESSION_PLACEHOLDER: &str = "SESSION";

/// Explains the sandbox, one path in it, or one connection.
pub(super) fn run(args: &ExplainArgs) -> Result<u8> {
    let prepared = prepare(args)?;
    match (&args.path, &args.host) {
        (Some(path), _) => print(&path::explain(&prepared, path), args.json),
        (None, Some(host)) => print(&host::explain(&prepared, host), args.json),
        (None, None) => {
            let own: &[&str] = if args.dir.is_some() { &app::agent::OWN_VARIABLES } else { &[] };
            print(&report::SandboxReport::of(&prepared, own, args.dir.as_deref()), args.json)
        }
    }
}

fn print(what: &(impl serde::Serialize + std::fmt::Display), json: bool) -> Result<u8> {
    let text = match json {
        true => serde_json::to_string(what).map_err(|e| Error::system("write JSON", e))? + "\n",
        false => what.to_string(),
    };
    super::print_as(json, &text)?;
    Ok(0)
}

/// Prints the steps of a plan, with the numbers that errors use.
pub(super) fn print_steps(prepared: &PreparedSandbox) -> Result<u8> {
    let steps = prepared.plan.steps.as_slice().iter().enumerate();
    super::print_text(
        &steps
            .map(|(index, step)| format!("{:3} {}\n", index + 1, one_line(&step.to_string())))
            .collect::<String>(),
    )?;
    Ok(0)
}

fn prepare(args: &ExplainArgs) -> Result<PreparedSandbox> {
    let options = SandboxOptions::from(args.sandbox.clone());
    let mut request = match &args.dir {
        Some(directory) => agent_request(args, &options, &prepare::canonical(directory)?)?,
        None => wrap_request(&options)?,
    };
    let policy = prepare::load_policy(&options, &request)?;
    // Without a program, the rest of the sandbox is shown; the report has the error.
    if args.dir.is_some()
        && let Ok((adapter, command)) = app::agent::choose_agent(&policy.effective)
    {
        app::agent::bind_demo_program(&mut request, &policy.effective, adapter, &command)?;
    }
    let named = args.sandbox.id.as_deref().unwrap_or(SESSION_PLACEHOLDER);
    let session = state::sessions_path().map(|sessions| sessions.join(named)).ok();
    let copy = args.dir.is_some() && args.sandbox.workspace.is_none();
    let lasting = if args.dir.is_some() { disk::DiskLifetime::Session } else { disk::DiskLifetime::Sandbox };
    let overlay = options.workspace_overlay;
    let disk = disk::choose(&policy.effective, overlay, copy, session.as_deref(), lasting);
    let location = session.map(|session| match disk.needs_image() {
        true => {
            let place = DiskImage::for_session(&session).mount_point();
            request.relocate_session(&session, &place);
            place
        }
        false => session,
    });
    if overlay {
        request.changes = Some(disk::overlay_changes(&disk, &location.unwrap_or_default()));
    }
    prepare::prepare(&options, request, policy, disk)
}

fn wrap_request(options: &SandboxOptions) -> Result<LaunchRequest> {
    let WrapDirectories { workspace, start } = WrapDirectories::of(options)?;
    Ok(LaunchRequest {
        home: HomeSource::Tmp,
        is_copy: false,
        start_directory: start,
        repository: workspace.clone(),
        workspace,
        agent_folder: None,
        program: None,
        session_home: None,
        changes: None,
        own_binds: Vec::new(),
        inherits_streams: false,
        will_start: false,
        planned: Vec::new(),
    })
}

/// Returns the request of `saggar agent DIR`: the home and, unless an option names one, the workspace are in the
/// session (DECISIONS 23 and 24).
fn agent_request(args: &ExplainArgs, options: &SandboxOptions, folder: &Path) -> Result<LaunchRequest> {
    let session = state::sessions_path()?.join(args.sandbox.id.as_deref().unwrap_or(SESSION_PLACEHOLDER));
    let home = session.join("home");
    let mut planned = vec![PlannedDirectory { path: home.clone(), original: None }];
    let repository = match &args.sandbox.workspace {
        Some(directory) => prepare::canonical_directory(directory)?,
        None => folder.to_owned(),
    };
    let is_copy = args.sandbox.workspace.is_none() && !args.sandbox.workspace_overlay;
    let workspace = if is_copy {
        let copy = session.join("workspace");
        planned.push(PlannedDirectory { path: copy.clone(), original: Some(folder.to_owned()) });
        copy
    } else {
        repository.clone()
    };
    Ok(LaunchRequest {
        home: HomeSource::Session,
        agent_folder: Some(folder.to_owned()),
        is_copy,
        start_directory: prepare::agent_start_directory(options, &workspace)?,
        repository,
        workspace,
        program: None,
        session_home: Some(home),
        changes: None,
        own_binds: Vec::new(),
        inherits_streams: false,
        will_start: false,
        planned,
    })
}
