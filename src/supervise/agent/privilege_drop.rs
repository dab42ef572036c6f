//! How the loop drops its rights before it reads the first byte from a server or from the sandbox, and what its
//! launcher does for it from then on.

use super::{AgentJob, AgentLoop};
use crate::bridge::proto::LogLevel;
use crate::error::{Code, Error, Result};
use crate::launch::agent::cleanup::CleanupGuard;
use crate::session::Session;
use crate::session::disk_usage::DiskUsage;
use crate::session::retained_changes::RetainedChanges;
use crate::session::{logs, spool};
use crate::state::counters;
use crate::state::delegated_directory;
use crate::state::process::ProcessId;
use crate::supervise::channel::execs::TreeKiller;
use crate::supervise::channel::log_bridge_message;
use crate::supervise::confine::{self, SupervisorRights};
use crate::supervise::memory;
use crate::supervise::privileged_operations::PrivilegedOperations;
use crate::supervise::quarantine_monitor::QuarantineMonitor;
use crate::supervise::registration::register;
use crate::supervise::status::{SupervisionResult, runtime_error};
use crate::supervise::worker::session::SessionContext;
use crate::supervise::worker::{WorkerContext, peers, session};
use mio::Token;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Token of the launcher's pidfd.
pub(super) const LAUNCHER_TOKEN: Token = Token(7);

/// Whether a session is removed when its sandbox has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionRemoval {
    /// It is not.
    Never,
    /// It is if its agent did not start: the caller gets the error, and with it the last lines of a script that failed.
    IfNotStarted,
    /// It is if neither its agent nor a script of the folder started, and if its agent has succeeded and left no results
    /// ([`crate::session::results`]).
    WithoutResults,
}

/// Resources that stay with the launcher when the loop drops its rights.
#[derive(Debug)]
pub struct LauncherResources<'a> {
    /// Host resources to clean up at the end.
    pub guard: &'a mut CleanupGuard,
    /// Scans for files under protected names.
    pub quarantine_monitor: QuarantineMonitor,
    /// The mechanism that limits the sandbox's disk usage, if there is a limit.
    pub disk_usage: Option<DiskUsage>,
    /// Where retained changes of an overlay are stored.
    pub retained_changes: Option<&'a RetainedChanges>,
    /// The session.
    pub session: &'a Session,
    /// The user and group id that the supervisor changes to if it is root.
    pub supervisor: Option<u32>,
    /// Whether the session is removed at the end.
    pub removal: SessionRemoval,
}

/// The resources, split into those that workers need in their memory, and the rest.
pub(super) struct LauncherSide<'a> {
    pub(super) guard: &'a mut CleanupGuard,
    pub(super) workers: WorkerContext<'a>,
    pub(super) removal: SessionRemoval,
    pub(super) supervisor: Option<u32>,
    /// The directories of the session in which the loop writes files.
    writable_directories: Vec<OwnedFd>,
}

impl<'a> LauncherSide<'a> {
    /// Splits the resources for this job, whose sandbox has this pid 1.
    pub(super) fn new(resources: LauncherResources<'a>, job: &AgentJob<'_>, init: i32) -> Result<Self> {
        let LauncherResources {
            guard,
            quarantine_monitor: warden,
            disk_usage: meter,
            retained_changes: kept,
            session,
            supervisor,
            removal,
        } = resources;
        let directory = session.directory();
        let places = [
            Some(logs::log_directory(directory)),
            job.spool.as_ref().map(|_| spool::spool_directory(directory)),
        ];
        let files = places
            .iter()
            .flatten()
            .map(|place| delegated_directory::open_delegated(place))
            .collect::<Result<_>>()?;
        let protect = &job.policy.protect.paths;
        let of_session = SessionContext {
            session,
            supervisor: ProcessId::current(),
            protected: protect.iter().map(|entry| entry.value.clone()).collect(),
        };
        let (cgroup, session) = (job.cgroups.unified.clone(), Some(of_session));
        Ok(LauncherSide {
            guard,
            workers: WorkerContext {
                quarantine_monitor: warden,
                disk_usage: meter,
                retained_changes: kept,
                init,
                program_ids: job.plan.program_ids(),
                cgroup,
                session,
            },
            removal,
            supervisor,
            writable_directories: files,
        })
    }
}

impl AgentLoop<'_> {
    /// Hands over to the launcher and drops all rights, while pid 1 works on its setup.
    pub(super) fn drop_privileges(&mut self, launcher_side: &mut LauncherSide<'_>) -> Result<()> {
        counters::map_page();
        self.kernel_log = memory::open_kernel_log();
        self.limit_reports.watch(&self.cgroups, self.channel.poll.registry());
        let LauncherSide { guard, workers, supervisor, writable_directories: files, .. } = launcher_side;
        let descriptors = workers.descriptors();
        let launcher = guard.spawn_launcher(self.sandbox.launched(), &descriptors, workers)?;
        register(self.channel.poll.registry(), launcher.pidfd(), LAUNCHER_TOKEN)?;
        self.services.use_launcher(&launcher);
        self.privileged = PrivilegedOperations::through_launcher(&launcher);
        let privileged = self.privileged.clone();
        self.execs.set_killer(TreeKiller::new(move |pid| privileged.kill_tree(pid)));
        peers::verify_in_launcher_or_worker(&launcher);
        self.record_writer.set_fields(|record| record.watcher = ProcessId::from_pid(launcher.pid()));
        self.record_writer.delegate_to(session::record_sink(&launcher))?;
        confine::confine_supervisor(&SupervisorRights {
            id: *supervisor,
            bounding_set: Some(crate::stage::agent::launcher::RIGHTS.capabilities),
            // Readable by every user: the memory of processes, and the disk that a limit refers to.
            readable: vec![Path::new("/proc"), Path::new("/sys/devices")],
            writable: files.iter().map(AsFd::as_fd).collect(),
            cgroups: Some(&self.cgroups),
        })?;
        guard.await_watcher();
        Ok(())
    }

    /// A launcher that exits before it is asked to was killed.
    pub(super) fn check_launcher(&mut self) -> SupervisionResult<()> {
        self.sandbox.kill();
        Err(runtime_error(Error::new(Code::System, "the launcher of the sandbox was killed")))
    }

    /// A quick scan for files under protected names.
    pub(super) fn scan_quickly(&mut self) {
        self.scans.scan_quickly(self.privileged.launcher(), &mut self.status);
    }

    /// Removes the session, whose agent did not start.
    pub(super) fn remove_session(&mut self) {
        let Some(launcher) = self.privileged.launcher().filter(|_| !self.record_writer.agent_has_run())
        else {
            return;
        };
        match session::remove_session(launcher) {
            Ok(()) => self.record_writer.mark_removed(),
            Err(error) => log_bridge_message(LogLevel::Warn, &error.to_string()),
        }
    }

    /// Removes the session, whose agent has succeeded, unless it has results.
    pub(super) fn remove_session_without_results(&mut self) {
        let Some(launcher) = self.privileged.launcher() else { return };
        match session::remove_session_without_results(launcher) {
            Ok(true) => self.record_writer.mark_removed(),
            Ok(false) => {}
            Err(error) => log_bridge_message(LogLevel::Warn, &error.to_string()),
        }
    }

    /// Saves the agent's own id of its conversation.
    pub(super) fn save_agent_session(&self, name: &str, own: &str) {
        let Some(launcher) = self.privileged.launcher() else { return };
        if let Err(error) = session::save_agent_session(launcher, name, own) {
            log_bridge_message(LogLevel::Warn, &error.to_string());
        }
    }
}
