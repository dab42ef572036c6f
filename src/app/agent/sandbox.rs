//! The start of an agent's sandbox, and what its supervisor has beside it.

use super::{AgentCall, OpenSession, ServerEnvironment};
use crate::app::RunOutcome;
use crate::app::disk;
use crate::app::prepare::{OWN_PROGRAM, PreparedSandbox};
use crate::app::scripts;
use crate::app::shared_directories::{self, SharedDirectories};
use crate::app::start::StartedSandbox;
use crate::bridge::adapter::{Adapter, NativeAdapter, StreamJsonAdapter};
use crate::bridge::io::{UnixSocketListener, UnpublishedListener, expand_socket_path};
use crate::bridge::proto::LogLevel;
use crate::bridge::proto::spool::{SavedSpool, SpoolStore};
use crate::error::{Error, Result};
use crate::id::SandboxId;
use crate::launch::agent::cleanup;
use crate::session::Session;
use crate::session::record::RecordWriter;
use crate::session::retained_changes::RetainedChanges;
use crate::session::spool::SessionSpool;
use crate::spec::ProgramSpec;
use crate::spec::policy::provenance::AGENT_FOLDER;
use crate::spec::policy::{AdapterKind, Setting, SocketPathTemplate};
use crate::state::process::ProcessId;
use crate::supervise::agent::{AGENT_SOCKET, AgentJob, LauncherResources, Script, SessionLog, run};
use crate::supervise::quarantine_monitor::QuarantineMonitor;
use crate::supervise::status::{StatusWriter, duplicate_fd};
use crate::sys::clock;
use crate::sys::untrusted_directory::UntrustedDirectory;
use std::ffi::OsString;
use std::fs::File;
use std::path::Path;

/// The sockets: the key of the policy that places one, and its name in the runtime directory.
const BRIDGE_SOCKET: (&str, &str) = ("bridge.socket", "bridge.sock");
const CONTROL_SOCKET: (&str, &str) = ("bridge.control", "control.sock");

/// Everything up to the start.
#[derive(Debug)]
pub(super) struct AgentSandbox {
    pub(super) prepared: PreparedSandbox,
    pub(super) retained: Option<RetainedChanges>,
    pub(super) session_id: SandboxId,
    pub(super) adapter: AdapterKind,
    pub(super) command: Vec<OsString>,
    /// Arguments after those of the command.
    pub(super) flags: Vec<OsString>,
}

/// What a supervisor has beside the sandbox.
struct SessionResources {
    listener: UnixSocketListener,
    control: UnixSocketListener,
    monitor: QuarantineMonitor,
    audit: File,
    logs: SessionLog,
    spool: Option<(Box<dyn SpoolStore>, SavedSpool)>,
}

impl AgentSandbox {
    pub(super) fn run(
        mut self,
        call: AgentCall,
        mut status: StatusWriter,
        open: &mut OpenSession,
    ) -> Result<RunOutcome> {
        let AgentCall { request, handle, detached, parent, .. } = call;
        let OpenSession { session, record_writer, removal } = open;
        let session: &Session = session;
        let is_detached = detached.is_some();
        let continues = request.resume || request.snapshot.is_some();
        let ready = match detached {
            Some(detached) => Some(detached.ready),
            None => request.ready_fd.map(|fd| duplicate_fd(fd, "--ready-fd")).transpose()?,
        };
        let mut started = StartedSandbox::new(&mut self.prepared, true, true)
            .inspect_err(|error| status.report_start_failure(error))?;
        self.retained.as_mut().map(RetainedChanges::leave_to_guard);
        let resources =
            self.create_resources(&mut started, is_detached, request.spool, session, record_writer);
        let resources = resources.inspect_err(|error| {
            started.launched.kill_and_reap();
            status.report_start_failure(error);
        })?;
        // pid 1 is at work on its steps: this costs the start nothing.
        cleanup::sweep_best_effort();
        let StartedSandbox { launched, mut guard, published, services, cgroups } = started;

        let program = self.program(request.server.as_ref());
        // A server has run them itself.
        let scripts = if request.server.is_some() { Vec::new() } else { self.scripts(&handle, session) };
        let pins = self.prepared.held_pins();
        let job = AgentJob {
            id: self.prepared.id.as_str(),
            plan: &self.prepared.plan,
            pins: &pins,
            program,
            policy: self.prepared.policy.effective.clone(),
            audit: resources.audit,
            remembered_uuids: self.remembered_messages(),
            spool: resources.spool,
            published,
            scripts,
            adapter: self.create_adapter(),
            session: self.session_id.as_str(),
            agent_session: if continues { session.agent_session() } else { None },
            listener: resources.listener,
            control: resources.control,
            prompt: request.prompt,
            ready,
            time_limits: self.prepared.time_limits(&cgroups),
            cgroups,
            services,
            status,
            record_writer,
            logs: resources.logs,
            detached: is_detached,
            parent,
            is_child_of_server: request.server.is_some(),
        };
        let entrusted = LauncherResources {
            guard: &mut guard,
            quarantine_monitor: resources.monitor,
            disk_usage: disk::disk_usage(&self.prepared, session.directory()),
            retained_changes: self.retained.as_ref(),
            session,
            supervisor: self.prepared.supervisor_id(),
            removal: *removal,
        };
        let (status, has_changes) = run(job, entrusted, launched);
        drop(guard);
        let has_changes = has_changes.unwrap_or(false);
        let notices = disk::changes_notices(&self.prepared, self.retained.as_ref(), has_changes);
        Ok(RunOutcome { status, notices })
    }

    /// Makes what a supervisor has beside the sandbox, while pid 1 is at work on its steps.
    fn create_resources(
        &self,
        started: &mut StartedSandbox,
        detached: bool,
        spool: bool,
        session: &Session,
        record_writer: &mut RecordWriter,
    ) -> Result<SessionResources> {
        let policy = &self.prepared.policy.effective;
        let reached = (!policy.allow_reachable.value).then(|| SharedDirectories::of(&self.prepared.plan));
        let reached = reached.as_ref();
        let listener = self.listen(started, policy.bridge_socket.as_ref(), BRIDGE_SOCKET, reached)?;
        let control = self.listen(started, policy.control_socket.as_ref(), CONTROL_SOCKET, reached)?;
        let monitor =
            self.prepared.quarantine_monitor(session.quarantine_directory(), started.launched.pid)?;
        let audit = session.open_audit_log()?;
        let logs = SessionLog::open(session.directory())?;
        if detached {
            detach(&logs)?;
        }
        record_writer.set_fields(|record| {
            let text = |path: &Path| Some(path.to_string_lossy().into_owned());
            record.sandbox = Some(self.prepared.id.to_string());
            record.workspace = text(&self.prepared.workspace);
            record.bridge_socket = text(listener.path());
            record.control_socket = text(control.path());
            record.init = ProcessId::from_pid(started.launched.pid);
        });
        let spool = spool.then(|| self.spool(session)).transpose()?;
        Ok(SessionResources { listener, control, monitor, audit, logs, spool })
    }

    fn remembered_messages(&self) -> usize {
        usize::try_from(self.prepared.policy.effective.remembered_uuids.value).unwrap_or(usize::MAX)
    }

    /// What is kept for servers that come back.
    fn spool(&self, session: &Session) -> Result<(Box<dyn SpoolStore>, SavedSpool)> {
        let bound = self.prepared.policy.effective.spool_size.value.bytes();
        let (spool, left) = SessionSpool::open(session.directory(), bound, self.remembered_messages())?;
        Ok((Box::new(spool), left))
    }

    /// A socket: private in the runtime directory under this name, or where the policy or the command line says, but
    /// not where programs reach it.
    fn listen(
        &self,
        started: &mut StartedSandbox,
        template: Option<&Setting<SocketPathTemplate>>,
        (key, name): (&str, &str),
        reached: Option<&SharedDirectories>,
    ) -> Result<UnixSocketListener> {
        let check = |socket: UnpublishedListener, path: &Path| match reached {
            Some(reached) if reached.contains(socket.directory()) => {
                Err(shared_directories::reachable_socket_error(key, path))
            }
            _ => Ok(socket),
        };
        let Some(template) = template else {
            let directory = started.guard.directory().unwrap_or(Path::new("/"));
            let path = directory.join(name);
            return check(UnixSocketListener::prepare(&path)?, &path)?.publish();
        };
        let path = expand_socket_path(
            &template.value.expand(&self.prepared.id).to_string_lossy(),
            &self.prepared.id,
        )?;
        cleanup::sweep_socket(&path);
        let socket = check(UnixSocketListener::prepare(&path)?, &path)?;
        started.guard.add_socket(path, socket.record())?;
        let listener = socket.publish()?;
        started.guard.update_socket(listener.record())?;
        Ok(listener)
    }

    fn create_adapter(&self) -> Box<dyn Adapter> {
        match self.adapter {
            AdapterKind::StreamJson => Box::new(StreamJsonAdapter::new()),
            AdapterKind::Bridge => Box::new(NativeAdapter::bridge()),
            AdapterKind::Demo if self.command.is_empty() => Box::new(NativeAdapter::built_in_demo()),
            AdapterKind::Demo => Box::new(NativeAdapter::demo()),
        }
    }

    /// The scripts of the folder as it stands inside: beside the workspace, or in it.
    fn scripts(&self, folder: &UntrustedDirectory, session: &Session) -> Vec<Script> {
        let limit = self.prepared.policy.effective.limits.script.value.duration();
        if inner_folder(&self.prepared).is_some() {
            return scripts::scripts_to_run(folder, session, limit);
        }
        match UntrustedDirectory::open(&self.prepared.workspace) {
            Ok(workspace) => scripts::scripts_to_run(&workspace, session, limit),
            Err(_) => Vec::new(),
        }
    }

    fn program(&self, server: Option<&ServerEnvironment>) -> ProgramSpec {
        let workspace = &self.prepared.workspace;
        let inner_folder = inner_folder(&self.prepared);
        let mut env = self.prepared.environment().into_pairs();
        let mut set = |name: &str, value: OsString| {
            env.retain(|(known, _)| known != name);
            env.push((name.into(), value));
        };
        set("ASH_SANDBOX_ID", self.prepared.id.as_str().into());
        set("ASH_SESSION_ID", self.session_id.as_str().into());
        set("ASH_WORKSPACE_DIR", workspace.into());
        set("ASH_AGENT_DIR", inner_folder.unwrap_or(workspace).into());
        if self.adapter == AdapterKind::Bridge {
            set("ASH_BRIDGE_SOCKET", AGENT_SOCKET.into());
        }
        for (name, value) in server.into_iter().flat_map(|server| server.variables(workspace)) {
            set(name, value);
        }
        let demo = self.command.is_empty();
        let mut argv =
            if demo { vec!["saggar".into(), crate::demo::ENTRY.into()] } else { self.command.clone() };
        argv.extend(self.flags.iter().cloned());
        let file = if demo { Some(OWN_PROGRAM.into()) } else { self.prepared.program_file.clone() };
        ProgramSpec { argv, file, env, cwd: self.prepared.start_directory.clone() }
    }
}

/// Where the agent's folder stands inside when it is not the workspace.
pub(super) fn inner_folder(prepared: &PreparedSandbox) -> Option<&Path> {
    prepared
        .spec
        .mounts
        .iter()
        .map(|mount| mount.destination.as_path())
        .find(|at| *at == Path::new(AGENT_FOLDER))
}

/// What was prepared does not depend on where we are, and no directory is kept busy; what there is to say goes to the
/// session's own log.
fn detach(logs: &SessionLog) -> Result<()> {
    std::env::set_current_dir("/").map_err(|e| Error::system("go to /", e))?;
    let sink = logs.clone();
    crate::log::redirect(Box::new(move |level, text| {
        let level = match level {
            log::Level::Error | log::Level::Warn => LogLevel::Warn,
            log::Level::Info => LogLevel::Info,
            log::Level::Debug | log::Level::Trace => LogLevel::Debug,
        };
        sink.append(clock::epoch_ms(), level, text);
    }));
    Ok(())
}
