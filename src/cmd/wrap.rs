//! `saggar wrap`: any command in the default sandbox.

use super::prepare::{self, Prepared, Purpose};
use super::start::Started;
use crate::cli::WrapArgs;
use crate::error::{Error, Result};
use crate::session::quarantine;
use crate::spec::Program;
use crate::spec::policy::Home;
use crate::state;
use crate::supervise::status::Status;
use crate::supervise::wrap::{Job, run as supervise};
use std::path::PathBuf;

pub(super) fn run(args: WrapArgs) -> Result<u8> {
    let mut status = Status::open(args.sandbox.status_fd)?;
    let mut prepared = prepare(&args).inspect_err(|error| status.refused(error))?;
    if args.dry_run {
        return super::explain::print_steps(&prepared);
    }
    let Started { launched, mut guard } =
        Started::new(&mut prepared, args.sandbox.id.is_some()).inspect_err(|error| status.refused(error))?;
    let program = Program {
        argv: args.argv,
        file: prepared.program_file.clone(),
        env: prepared.environment().into_pairs(),
        cwd: prepared.workspace.clone(),
    };
    let warden = prepared.warden(quarantine(&prepared)).inspect_err(|error| {
        launched.kill_and_reap();
        status.refused(error);
    })?;
    let timeout = prepared.policy.effective.limits.timeout.as_ref().map(|limit| limit.value.duration());
    let job = Job {
        id: prepared.id.as_str(),
        plan: &prepared.plan,
        pins: &prepared.spec.pins,
        warden,
        guard: &mut guard,
        program: &program,
        timeout,
        status,
    };
    let ended = supervise(job, launched);
    drop(guard);
    ended
}

/// As if the sandbox were a session; where there is no place for sessions, in the runtime directory.
fn quarantine(prepared: &Prepared) -> PathBuf {
    let base = state::sessions_path().unwrap_or_else(|_| state::runtime_path().join("quarantine"));
    base.join(prepared.id.as_str()).join(quarantine::NAME)
}

fn prepare(args: &WrapArgs) -> Result<Prepared> {
    let workspace = match &args.sandbox.workspace {
        Some(directory) => prepare::canonical(directory)?,
        None => current_directory()?,
    };
    let purpose = Purpose {
        home: Home::Tmp,
        workspace,
        agent_folder: None,
        program: args.argv.first().cloned(),
        session_home: None,
        own: Vec::new(),
        streams: true,
        start: !args.dry_run,
        planned: Vec::new(),
    };
    let policy = prepare::load_policy(&args.sandbox, &purpose, prepare::command_line(&args.sandbox))?;
    prepare::prepare(&args.sandbox, purpose, policy)
}

fn current_directory() -> Result<PathBuf> {
    let directory = std::env::current_dir().map_err(|e| Error::system("find the current directory", e))?;
    prepare::canonical(&directory)
}
