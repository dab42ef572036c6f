//! Any command in a sandbox: its standard streams are the caller's, and its exit status comes back.
//!
//! ```text
//!  WrapRequest ── prepare ──> PreparedWrap ── start ──> StartedWrap ── supervise ──> RunOutcome
//! ```
//! The calling process becomes the supervisor of the sandbox, and never gets its rights back: [`StartedWrap::supervise`]
//! drops every capability, changes the user id of root, and loads a seccomp filter and a landlock domain. A program that
//! has more to do than to report the status forks first. It must have one thread when it calls [`PreparedWrap::start`],
//! which blocks the signals that the supervisor handles, and, with the profile `container`, when it prepares; and its `main`
//! begins with [`super::run_subprocess`].

use super::disk::{self, DiskLifetime};
use super::prepare::{self, LaunchRequest, PreparedSandbox};
use super::start::StartedSandbox;
use super::{RunOutcome, SandboxOptions};
use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::launch::agent::streams::{self, ReplacedStreams};
use crate::session::quarantine;
use crate::session::retained_changes::RetainedChanges;
use crate::spec::policy::{HomeSource, LoadedPolicy, PolicyLayer, Setting};
use crate::spec::{OverlayUpper, ProgramSpec};
use crate::state;
use crate::supervise::parent_watch::ParentWatch;
use crate::supervise::quarantine_monitor::QuarantineMonitor;
use crate::supervise::status::StatusWriter;
use crate::supervise::wrap::{WrapJob, run};
use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

/// A command, and the sandbox that it runs in.
#[derive(Debug, Clone, Default)]
pub struct WrapRequest {
    /// The sandbox.
    pub sandbox: SandboxOptions,
    /// The program, looked up on the caller's PATH, and its arguments.
    pub argv: Vec<OsString>,
    /// An open descriptor that gets events as NDJSON (saggar(1), STATUS EVENTS).
    pub status_fd: Option<RawFd>,
    /// Whether the sandbox ends when the parent of this process exits.
    pub dies_with_parent: bool,
}

/// A sandbox with its plan, of which nothing runs. Dropping it removes what was made for it on the host.
#[derive(Debug)]
#[must_use = "it is to be started"]
pub struct PreparedWrap {
    argv: Vec<OsString>,
    /// Whether the caller knows its name.
    is_named: bool,
    prepared: PreparedSandbox,
    retained: Option<RetainedChanges>,
    status: StatusWriter,
    parent: Option<ParentWatch>,
    /// Whether the workspace is more than the directory of the caller, which did not name it.
    is_wider: bool,
}

/// A sandbox whose pid 1 exists, and in which the program does not run yet. Dropping it ends the sandbox.
#[derive(Debug)]
#[must_use = "its program runs when it is supervised"]
pub struct StartedWrap {
    sandbox: StartedSandbox,
    program: ProgramSpec,
    monitor: QuarantineMonitor,
    streams: ReplacedStreams,
    prepared: PreparedSandbox,
    retained: Option<RetainedChanges>,
    status: StatusWriter,
    parent: Option<ParentWatch>,
}

/// Loads the policy, makes the plan, and makes on the host what protects the workspace.
///
/// # Errors
/// [`Code::Invalid`], [`Code::Refused`] and [`Code::Unsupported`], with a hint, for what this policy or this host does
/// not give; nothing is left behind.
pub fn prepare(request: WrapRequest) -> Result<PreparedWrap> {
    let parent = request.dies_with_parent.then(ParentWatch::open).transpose()?;
    let (prepared, retained, status) = plan_launch(&request, true)?;
    let SandboxOptions { workspace, start_directory, .. } = &request.sandbox;
    let is_named = workspace.is_some() || start_directory.is_some();
    Ok(PreparedWrap {
        parent,
        is_wider: !is_named && prepared.start_directory != prepared.workspace,
        is_named: request.sandbox.id.is_some(),
        argv: request.argv,
        prepared,
        retained,
        status,
    })
}

/// The sandbox as it would be. Nothing is made on the host.
///
/// # Errors
/// As [`prepare()`].
pub(crate) fn plan(request: &WrapRequest) -> Result<PreparedSandbox> {
    plan_launch(request, false).map(|(prepared, ..)| prepared)
}

fn plan_launch(
    request: &WrapRequest,
    will_start: bool,
) -> Result<(PreparedSandbox, Option<RetainedChanges>, StatusWriter)> {
    let mut status = StatusWriter::open(request.status_fd)?;
    let planned = launch_policy(request, will_start)
        .and_then(|(launch, policy)| build(&request.sandbox, launch, policy))
        .inspect_err(|error| status.report_start_failure(error));
    let (prepared, retained) = planned?;
    Ok((prepared, retained, status))
}

impl PreparedWrap {
    /// The workspace, if it was found and is more than the directory of the caller.
    pub fn found_workspace(&self) -> Option<&Path> {
        self.is_wider.then_some(&self.prepared.workspace)
    }

    /// Makes the cgroup, the sockets and pid 1.
    ///
    /// # Errors
    /// [`Code::System`] and [`Code::Unsupported`]; nothing is left behind.
    pub fn start(mut self) -> Result<StartedWrap> {
        let launched = self.launch().inspect_err(|error| self.status.report_start_failure(error));
        let (sandbox, monitor, program, streams) = launched?;
        let PreparedWrap { prepared, retained, status, parent, .. } = self;
        Ok(StartedWrap { sandbox, program, monitor, streams, prepared, retained, status, parent })
    }

    fn launch(&mut self) -> Result<(StartedSandbox, QuarantineMonitor, ProgramSpec, ReplacedStreams)> {
        let streams = streams::make_reopenable(&self.prepared.plan)?;
        let sandbox = StartedSandbox::new(&mut self.prepared, self.is_named, false)?;
        self.retained.as_mut().map(RetainedChanges::leave_to_guard);
        let program = self.program();
        let monitor = self.prepared.quarantine_monitor(quarantine_path(&self.prepared), sandbox.launched.pid);
        let monitor = monitor.inspect_err(|_| sandbox.launched.kill_and_reap())?;
        Ok((sandbox, monitor, program, streams))
    }

    /// The environment of the caller is read here, after the clone.
    fn program(&mut self) -> ProgramSpec {
        ProgramSpec {
            argv: std::mem::take(&mut self.argv),
            file: self.prepared.program_file.clone(),
            env: self.prepared.environment().into_pairs(),
            cwd: self.prepared.start_directory.clone(),
        }
    }
}

impl StartedWrap {
    /// Runs the program to its end; the sandbox and what it had on the host are gone when this returns. This process has
    /// no rights from now on, as the head of this module says.
    pub fn supervise(self) -> RunOutcome {
        let StartedWrap { sandbox, program, monitor, streams, prepared, retained, status, parent } = self;
        let StartedSandbox { launched, mut guard, published, services, .. } = sandbox;
        let pins = prepared.held_pins();
        let time_limits = prepared.time_limits(guard.cgroups());
        let job = WrapJob {
            id: prepared.id.as_str(),
            plan: &prepared.plan,
            pins: &pins,
            quarantine_monitor: monitor,
            guard: &mut guard,
            program: &program,
            published,
            services,
            time_limits,
            policy: &prepared.policy.effective,
            disk_usage: disk::disk_usage(&prepared, Path::new("")),
            retained_changes: retained.as_ref(),
            supervisor: prepared.supervisor_id(),
            status,
            parent,
        };
        let (ended, has_changes) = run(job, launched);
        drop(guard);
        let copied = streams.finish();
        let notices = disk::changes_notices(&prepared, retained.as_ref(), has_changes.unwrap_or(false));
        RunOutcome { status: ended.and_then(|status| copied.map(|()| status)), notices }
    }
}

/// As if the sandbox were a session; where there is no place for sessions, in the runtime directory.
fn quarantine_path(prepared: &PreparedSandbox) -> PathBuf {
    let base = state::sessions_path().unwrap_or_else(|_| state::runtime_path().join("quarantine"));
    base.join(prepared.id.as_str()).join(quarantine::QUARANTINE_DIRECTORY)
}

/// What the sandbox is for, and its policy.
fn launch_policy(request: &WrapRequest, will_start: bool) -> Result<(LaunchRequest, LoadedPolicy)> {
    let WrapDirectories { workspace, start } = WrapDirectories::of(&request.sandbox)?;
    let program = request.argv.first();
    let launch = LaunchRequest {
        home: HomeSource::Tmp,
        is_copy: false,
        start_directory: start,
        repository: workspace.clone(),
        workspace,
        agent_folder: None,
        program: program.map(|program| Setting::new(program.clone(), &PolicyLayer::CommandLine)),
        session_home: None,
        changes: None,
        own_binds: Vec::new(),
        inherits_streams: true,
        will_start,
        planned: Vec::new(),
    };
    let policy = prepare::load_policy(&request.sandbox, &launch)?;
    Ok((launch, policy))
}

/// The place of changes that are kept is made here: a start that fails removes it again.
fn build(
    options: &SandboxOptions,
    launch: LaunchRequest,
    policy: LoadedPolicy,
) -> Result<(PreparedSandbox, Option<RetainedChanges>)> {
    if options.workspace_overlay {
        return build_overlay(options.clone(), launch, policy);
    }
    let disk = disk::choose(&policy.effective, false, false, None, DiskLifetime::Sandbox);
    if launch.will_start {
        disk.check()?;
    }
    Ok((prepare::prepare(options, launch, policy, disk)?, None))
}

/// The same on an overlay. Changes that are kept on disk are those of a session of the sandbox's name.
fn build_overlay(
    mut options: SandboxOptions,
    mut launch: LaunchRequest,
    policy: LoadedPolicy,
) -> Result<(PreparedSandbox, Option<RetainedChanges>)> {
    let id = options.id.take().map_or_else(SandboxId::random, |id| SandboxId::parse(&id))?;
    options.id = Some(id.to_string());
    let session = state::sessions_path()?.join(id.as_str());
    let mut disk = disk::choose(&policy.effective, true, false, Some(&session), DiskLifetime::Sandbox);
    let changes = disk::overlay_changes(&disk, &session);
    disk::check_lower(&launch.workspace)?;
    let (mut retained, mut project) = (None, None);
    if launch.will_start {
        disk.check()?;
        prepare::check_workspace(&launch.workspace, policy.effective.allow_home.value)?;
        if matches!(changes, OverlayUpper::Directory(_)) {
            if session.join("lock").exists() {
                return Err(
                    Error::new(Code::Exists, format!("session {id} exists")).hint("choose another --id")
                );
            }
            state::sessions_dir()?;
            retained = Some(RetainedChanges::new(&session, &launch.workspace, false)?);
            project = disk::quota_project(&mut disk, &session)?;
        }
    }
    launch.changes = Some(changes);
    let mut prepared = prepare::prepare(&options, launch, policy, disk)?;
    prepared.session = retained.is_some().then_some(session);
    prepared.project = project;
    Ok((prepared, retained))
}

/// The workspace of a command, and where its program starts.
#[derive(Debug)]
pub(crate) struct WrapDirectories {
    pub(crate) workspace: PathBuf,
    pub(crate) start: PathBuf,
}

impl WrapDirectories {
    /// # Errors
    /// [`Code::Invalid`] and [`Code::System`] for a directory that is not there.
    pub(crate) fn of(options: &SandboxOptions) -> Result<Self> {
        let current = std::env::current_dir().map_err(|e| Error::system("find the current directory", e))?;
        let current = prepare::canonical(&current)?;
        let workspace = match &options.workspace {
            Some(directory) => prepare::canonical_directory(directory)?,
            None => prepare::workspace_of(&current).to_owned(),
        };
        let default = if current.starts_with(&workspace) { &current } else { &workspace };
        let start =
            prepare::start_directory(options.start_directory.as_deref(), &current, &workspace, default);
        Ok(WrapDirectories { workspace, start })
    }
}
