//! How the loop parts with its rights, before it reads the first byte from a server or from inside, and what its
//! launcher does for it from then on.

use super::{Job, Loop};
use crate::bridge::proto::LogLevel;
use crate::error::{Code, Error, Result};
use crate::launch::guard::Guard;
use crate::session::Session;
use crate::session::changes::Kept;
use crate::session::meter::Meter;
use crate::session::{logs, spool};
use crate::state::counters;
use crate::state::lent;
use crate::state::process::ProcessId;
use crate::supervise::confine::{self, Rights};
use crate::supervise::memory;
use crate::supervise::privileged::Privileged;
use crate::supervise::quarantine::Warden;
use crate::supervise::sandbox::register;
use crate::supervise::status::{Outcome, runtime};
use crate::supervise::talk::execs::Killer;
use crate::supervise::talk::log;
use crate::supervise::worker::session::OfSession;
use crate::supervise::worker::{Workers, callers, session};
use mio::Token;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// The launcher has ended.
pub(super) const LAUNCHER: Token = Token(7);

/// What is left to the launcher when the loop gives up its rights.
#[derive(Debug)]
pub struct Entrusted<'a> {
    /// What the sandbox leaves on the host.
    pub guard: &'a mut Guard,
    /// Looks for what appears under protected names.
    pub warden: Warden,
    /// What bounds the sandbox on disk.
    pub meter: Option<Meter>,
    /// The place of the changes of an overlay that are kept.
    pub kept: Option<&'a Kept>,
    /// The session.
    pub session: &'a Session,
    /// The user and the group that the supervisor becomes, where it is root.
    pub supervisor: Option<u32>,
    /// The session is removed when its agent does not come to run.
    pub forget: bool,
}

/// The same, apart: what workers have in their memory, and the rest.
pub(super) struct Behind<'a> {
    pub(super) guard: &'a mut Guard,
    pub(super) workers: Workers<'a>,
    pub(super) forget: bool,
    pub(super) supervisor: Option<u32>,
    /// The directories of the session whose files the loop writes.
    files: Vec<OwnedFd>,
}

impl<'a> Behind<'a> {
    /// Of this job, which starts in the sandbox with this pid 1.
    pub(super) fn new(entrusted: Entrusted<'a>, job: &Job<'_>, init: i32) -> Result<Self> {
        let Entrusted { guard, warden, meter, kept, session, supervisor, forget } = entrusted;
        let directory = session.directory();
        let places = [
            job.logs.as_ref().map(|_| logs::place(directory)),
            job.spool.as_ref().map(|_| spool::place(directory)),
        ];
        let files =
            places.iter().flatten().map(|place| lent::open_directory(place)).collect::<Result<_>>()?;
        let protect = &job.policy.protect.paths;
        let of_session = OfSession {
            session,
            owner: job.plan.block.map(|block| (block.host_uid, block.host_gid)),
            protected: protect.iter().map(|path| path.value.as_path().to_owned()).collect(),
        };
        let (cgroup, session) = (job.cgroup.clone(), Some(of_session));
        Ok(Behind {
            guard,
            workers: Workers { warden, meter, kept, init, cgroup, session },
            forget,
            supervisor,
            files,
        })
    }
}

impl Loop<'_> {
    /// Parts with the launcher, and gives up all rights: pid 1 is at work on its steps.
    pub(super) fn part(&mut self, behind: &mut Behind<'_>) -> Result<()> {
        counters::hold();
        self.kernel = memory::kernel_log();
        let Behind { guard, workers, supervisor, files, .. } = behind;
        let descriptors = workers.descriptors();
        let work = &mut |worker, argument, fds| workers.work(worker, argument, fds);
        let launcher = guard.part(self.sandbox.launched(), descriptors, work)?;
        register(self.talk.poll.registry(), launcher.pidfd(), LAUNCHER)?;
        self.api.iter_mut().for_each(|api| api.part(&launcher));
        self.privileged = Privileged::by(&launcher);
        let privileged = self.privileged.clone();
        self.execs.part(Killer::new(move |pid| privileged.kill_tree(pid)));
        callers::judge_by(&launcher);
        self.keeper.set(|record| record.watcher = ProcessId::of(launcher.pid()));
        self.keeper.write_by(session::scribe(&launcher))?;
        confine::enter(&Rights {
            id: *supervisor,
            // Whose memory is nearly used up, and which disk a limit means: what everybody can read.
            reads: vec![Path::new("/proc"), Path::new("/sys/devices")],
            files: files.iter().map(AsFd::as_fd).collect(),
            cgroup: self.cgroup.as_deref(),
        })
    }

    /// A launcher that is gone before it was told to end was killed.
    pub(super) fn check_launcher(&mut self) -> Outcome<()> {
        self.sandbox.kill();
        Err(runtime(Error::new(Code::System, "the launcher of the sandbox was killed")))
    }

    /// A quick look for what appeared under protected names.
    pub(super) fn look(&mut self) {
        self.looks.quick(self.privileged.launcher(), &mut self.status);
    }

    /// Removes the session whose agent did not come to run.
    pub(super) fn forget(&mut self) {
        let Some(launcher) = self.privileged.launcher().filter(|_| !self.keeper.has_run()) else { return };
        match session::forget(launcher) {
            Ok(()) => self.keeper.is_now_gone(),
            Err(error) => log(LogLevel::Warn, &error.to_string()),
        }
    }

    /// Keeps the agent's own name of the conversation.
    pub(super) fn remember(&self, name: &str, own: &str) {
        let Some(launcher) = self.privileged.launcher() else { return };
        if let Err(error) = session::remember(launcher, name, own) {
            log(LogLevel::Warn, &error.to_string());
        }
    }
}
