//! Operations that need rights, for the supervisor's loop, which has none. A worker is a fork of the launcher
//! ([`crate::stage::agent::launcher`]). It performs one operation, writes its result, and exits.
//!
//! ```text
//! loop ── request, pipe ──> launcher ── fork ──> worker ── result, end of the pipe ──> loop
//! ```
//!
//! | module | the workers' operations |
//! |---|---|
//! | [`scan`] | scan for files under protected names; move them to quarantine |
//! | [`processes`] | kill a program with its descendants; set the preference of the OOM killer |
//! | [`session`] | write the session's record, mark its scripts as done, remove it |
//! | [`directory_mode`] | set the mode of a directory for a program |
//! | [`files`] | read and write files of the workspace, as its owner |
//! | [`snapshot`] | take a snapshot of the session |
//! | [`agent_socket`] | connect to the socket that an agent listens on |
//! | [`ports`] | listen on more ports of the sandbox's network |
//! | [`peers`] | verify peers, before Linux 6.5; else the launcher does that itself |
//! | [`request`] | how a request with a result is sent |

pub(super) mod agent_socket;
pub(super) mod directory_mode;
pub(super) mod files;
pub(super) mod peers;
pub(super) mod ports;
pub(super) mod processes;
pub(super) mod request;
pub(super) mod scan;
pub(super) mod session;
pub(super) mod snapshot;

pub(super) use scan::{ScanClient, ScanResult};

use super::quarantine_monitor::QuarantineMonitor;
use crate::error::{Error, Result};
use crate::plan::agent::step::SandboxService;
use crate::session::disk_usage::DiskUsage;
use crate::session::retained_changes::RetainedChanges;
use crate::stage::agent::launcher::{Launcher, LauncherTasks, RequestFds};
use session::SessionContext;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

/// The workers, by the number in the request.
const SCAN: u32 = 1;
/// The process of a service; the argument says which.
const START_SERVICE: u32 = 2;
const KILL_TREE: u32 = 3;
const PREFER_FOR_OOM: u32 = 4;
const SPARE_FROM_OOM: u32 = 5;
const WRITE_RECORD: u32 = 6;
const SAVE_AGENT_SESSION: u32 = 7;
const MARK_INSTALLED: u32 = 8;
const REMOVE_SESSION: u32 = 9;
const FILE_CALL: u32 = 10;
const SNAPSHOT: u32 = 11;
const CONNECT_TO_AGENT: u32 = 12;
const VERIFY_PEER: u32 = 13;
const LISTEN: u32 = 14;
const SCAN_DONE: u32 = 15;
const DIRECTORY_MODE: u32 = 16;
const REMOVE_WITHOUT_RESULTS: u32 = 17;

/// Data that workers need, in the launcher's memory.
#[derive(Debug)]
pub(super) struct WorkerContext<'a> {
    /// Scans for files under protected names.
    pub(super) quarantine_monitor: QuarantineMonitor,
    /// The mechanism that limits the sandbox's disk usage, if there is a limit.
    pub(super) disk_usage: Option<DiskUsage>,
    /// Where retained changes of an overlay are stored.
    pub(super) retained_changes: Option<&'a RetainedChanges>,
    /// Pid of the sandbox's pid 1.
    pub(super) init: i32,
    /// The user and group of the sandbox's programs on the host, if they are not ours.
    pub(super) program_ids: Option<(u32, u32)>,
    /// Its cgroup, if it has one.
    pub(super) cgroup: Option<PathBuf>,
    /// Its session, if it has one.
    pub(super) session: Option<SessionContext<'a>>,
}

impl LauncherTasks for WorkerContext<'_> {
    fn run_inline(&mut self, worker: u32, argument: u64) -> bool {
        let done = match worker {
            SCAN => self.scan_in_launcher(argument),
            SCAN_DONE => true,
            _ => false,
        };
        if done {
            self.quarantine_monitor.mark_scanned();
        }
        done
    }

    fn verify_peer(&mut self, connection: BorrowedFd<'_>) -> Option<u8> {
        peers::verify_in_launcher(connection)
    }

    fn on_long_lived(&mut self) {
        self.quarantine_monitor.sync_record();
    }

    fn run_worker(&mut self, worker: u32, argument: u64, fds: RequestFds) {
        let mut fds = fds.into_iter().flatten();
        let Some(first) = fds.next() else { return };
        match worker {
            SCAN => self.scan(argument, first.into()),
            START_SERVICE => exec_service(argument, first),
            KILL_TREE => self.serve_kill_tree(argument),
            PREFER_FOR_OOM => self.serve_prefer_for_oom(argument),
            SPARE_FROM_OOM => self.serve_spare_from_oom(argument),
            CONNECT_TO_AGENT => agent_socket::serve_request(first, self, argument),
            VERIFY_PEER => peers::serve_request(first, fds.next()),
            DIRECTORY_MODE => self.serve_directory_mode(fds.next(), fds.next()),
            LISTEN => ports::serve_request(first, fds.next(), fds.next()),
            _ => self.serve_session_request(worker, argument, first, fds.next(), fds.next()),
        }
    }
}

impl WorkerContext<'_> {
    fn serve_session_request(
        &self,
        worker: u32,
        argument: u64,
        first: OwnedFd,
        second: Option<OwnedFd>,
        third: Option<OwnedFd>,
    ) {
        let Some(session) = &self.session else { return };
        match (worker, second, third) {
            (WRITE_RECORD, Some(request), _) => session.serve_record(first, request),
            (SAVE_AGENT_SESSION, Some(request), _) => session.serve_save_agent_session(first, request),
            (MARK_INSTALLED, ..) => session.serve_mark_installed(first),
            (REMOVE_SESSION, ..) => session.serve_remove_session(first),
            (REMOVE_WITHOUT_RESULTS, ..) => session.serve_remove_without_results(first),
            (FILE_CALL, Some(request), Some(root)) => {
                session.serve_files(self.program_ids, first, request, root)
            }
            (SNAPSHOT, Some(alive), _) => session.serve_snapshot(argument, first, alive),
            _ => {}
        }
    }

    /// The descriptors that workers have in addition to those of a request.
    pub(super) fn descriptors(&self) -> Vec<RawFd> {
        self.quarantine_monitor.descriptors().map(|fd| fd.as_raw_fd()).collect()
    }
}

/// Executes the process of a service with this socket, as the supervisor does at the start.
fn exec_service(number: u64, socket: OwnedFd) {
    let service = u32::try_from(number).ok().and_then(SandboxService::from_number);
    if let Some(service) = service {
        let _ = super::service_process::command(service, socket).exec();
    }
}

/// Restarts the process of a service with this socket.
///
/// # Errors
/// [`crate::error::Code::System`] when the launcher has exited.
pub(super) fn start_service(launcher: &Launcher, service: SandboxService, socket: &OwnedFd) -> Result<()> {
    let started = launcher.start_worker(START_SERVICE, service.number().into(), &[socket.as_raw_fd()]);
    started.map_err(|e| Error::system(format_args!("start the process of the {service}"), e))
}
