//! `saggar wrap`: any command in the default sandbox.

use super::disk;
use super::prepare::{self, Prepared, Purpose};
use super::start::Started;
use crate::cli::{SandboxArgs, WrapArgs};
use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::launch::streams;
use crate::session::changes::Kept;
use crate::session::quarantine;
use crate::spec::policy::{Home, Layer, Policy, Setting};
use crate::spec::{Changes, Program};
use crate::state;
use crate::supervise::status::Status;
use crate::supervise::wrap::{Job, run as supervise};
use std::path::{Path, PathBuf};

pub(super) fn run(args: WrapArgs) -> Result<u8> {
    let mut status = Status::open(args.sandbox.status_fd)?;
    let (mut prepared, mut kept) = prepare(&args).inspect_err(|error| status.refused(error))?;
    if args.dry_run {
        return super::explain::print_steps(&prepared);
    }
    let streams = streams::guard(&prepared.plan).inspect_err(|error| status.refused(error))?;
    let Started { launched, mut guard, published, api, .. } =
        Started::new(&mut prepared, args.sandbox.id.is_some(), false)
            .inspect_err(|error| status.refused(error))?;
    kept.as_mut().map(Kept::leave_to_guard);
    let program = Program {
        argv: args.argv,
        file: prepared.program_file.clone(),
        env: prepared.environment().into_pairs(),
        cwd: prepared.workspace.clone(),
    };
    let warden = prepared.warden(quarantine(&prepared), launched.pid).inspect_err(|error| {
        launched.kill_and_reap();
        status.refused(error);
    })?;
    let times = prepared.times(guard.cgroup());
    let held = prepared.held();
    let job = Job {
        id: prepared.id.as_str(),
        plan: &prepared.plan,
        pins: &held,
        warden,
        guard: &mut guard,
        program: &program,
        published,
        api,
        times,
        meter: disk::meter(&prepared, Path::new("")),
        kept: kept.as_ref(),
        supervisor: prepared.supervisor(),
        status,
    };
    let (ended, has_changes) = supervise(job, launched);
    drop(guard);
    let copied = streams.finish();
    disk::tell(&prepared, kept.as_ref(), has_changes.unwrap_or(false));
    ended.and_then(|status| copied.map(|()| status))
}

/// As if the sandbox were a session; where there is no place for sessions, in the runtime directory.
fn quarantine(prepared: &Prepared) -> PathBuf {
    let base = state::sessions_path().unwrap_or_else(|_| state::runtime_path().join("quarantine"));
    base.join(prepared.id.as_str()).join(quarantine::NAME)
}

/// The place of changes that are kept is made here: a start that fails removes it again.
fn prepare(args: &WrapArgs) -> Result<(Prepared, Option<Kept>)> {
    let workspace = match &args.sandbox.workspace {
        Some(directory) => prepare::canonical(directory)?,
        None => current_directory()?,
    };
    let purpose = Purpose {
        home: Home::Tmp,
        workspace,
        agent_folder: None,
        program: args.argv.first().map(|program| Setting::new(program.clone(), &Layer::CommandLine)),
        session_home: None,
        changes: None,
        own: Vec::new(),
        streams: true,
        start: !args.dry_run,
        planned: Vec::new(),
    };
    let policy = prepare::load_policy(&args.sandbox, &purpose, prepare::command_line(&args.sandbox))?;
    if args.sandbox.workspace_overlay {
        return over_overlay(&args.sandbox, purpose, policy);
    }
    let disk = disk::choose(&args.sandbox, &policy.effective, false, None, disk::Lasting::Sandbox);
    if purpose.start {
        disk.check()?;
    }
    Ok((prepare::prepare(&args.sandbox, purpose, policy, disk)?, None))
}

/// The same on an overlay. Changes that are kept on disk are those of a session of the sandbox's name.
fn over_overlay(
    args: &SandboxArgs,
    mut purpose: Purpose,
    policy: Policy,
) -> Result<(Prepared, Option<Kept>)> {
    let mut args = args.clone();
    let id = args.id.take().map_or_else(SandboxId::random, |id| SandboxId::parse(&id))?;
    args.id = Some(id.to_string());
    let session = state::sessions_path()?.join(id.as_str());
    let mut disk = disk::choose(&args, &policy.effective, false, Some(&session), disk::Lasting::Sandbox);
    let changes = disk::changes(&disk, &session);
    disk::check_lower(&purpose.workspace)?;
    let (mut kept, mut project) = (None, None);
    if purpose.start {
        disk.check()?;
        prepare::check_workspace(&purpose.workspace, policy.effective.allow_home.value)?;
        if matches!(changes, Changes::Directory(_)) {
            if session.join("lock").exists() {
                return Err(
                    Error::new(Code::Exists, format!("session {id} exists")).hint("choose another --id")
                );
            }
            state::sessions_dir()?;
            kept = Some(Kept::new(&session, &purpose.workspace, false)?);
            project = disk::project(&mut disk, &session)?;
        }
    }
    purpose.changes = Some(changes);
    let mut prepared = prepare::prepare(&args, purpose, policy, disk)?;
    prepared.session = kept.is_some().then_some(session);
    prepared.project = project;
    Ok((prepared, kept))
}

fn current_directory() -> Result<PathBuf> {
    let directory = std::env::current_dir().map_err(|e| Error::system("find the current directory", e))?;
    prepare::canonical(&directory)
}
