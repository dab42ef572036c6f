//! Work that takes a right, beside the supervisor's loop, which has none: a worker is a fork of the launcher
//! ([`crate::stage::launcher`]), does one thing, says what came of it, and ends.
//!
//! ```text
//! loop ── request, pipe ──> launcher ── fork ──> worker ── answer, end of the pipe ──> loop
//! ```
//!
//! | module | what its workers do |
//! |---|---|
//! | [`look`] | look for what appeared under protected names and move it to quarantine |
//! | [`processes`] | kill a program with what it has started; say whom the kernel takes first |
//! | [`session`] | write the session's record, mark its scripts as done, remove it |
//! | [`files`] | read and write files of the workspace, as its owner |
//! | [`snapshot`] | take a snapshot of the session |
//! | [`agent_socket`] | connect to the socket that an agent listens on |
//! | [`ports`] | listen at more ports of the sandbox's network |
//! | [`callers`] | judge who calls, on kernels where that takes a right |
//! | [`call`] | how a request with an answer is made |

pub(super) mod agent_socket;
pub(super) mod call;
pub(super) mod callers;
pub(super) mod files;
pub(super) mod look;
pub(super) mod ports;
pub(super) mod processes;
pub(super) mod session;
pub(super) mod snapshot;

pub(super) use look::{Looks, Seen};

use super::quarantine::Warden;
use crate::error::{Error, Result};
use crate::session::changes::Kept;
use crate::session::meter::Meter;
use crate::stage::launcher::{Fds, Launcher};
use session::OfSession;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

/// The workers, by the number in the request.
const LOOK: u32 = 1;
/// The process of the model API.
const API: u32 = 2;
const KILL: u32 = 3;
const KILL_FIRST: u32 = 4;
const KILL_LAST: u32 = 5;
const RECORD: u32 = 6;
const REMEMBER: u32 = 7;
const MARK: u32 = 8;
const FORGET: u32 = 9;
const FILES: u32 = 10;
const SNAPSHOT: u32 = 11;
const CONNECT: u32 = 12;
const JUDGE: u32 = 13;
const PORTS: u32 = 14;

/// What workers need, in the launcher's memory.
#[derive(Debug)]
pub(super) struct Workers<'a> {
    /// Looks for what appeared under protected names.
    pub(super) warden: Warden,
    /// What bounds the sandbox on disk.
    pub(super) meter: Option<Meter>,
    /// The place of the changes of an overlay.
    pub(super) kept: Option<&'a Kept>,
    /// pid 1 of the sandbox.
    pub(super) init: i32,
    /// Its cgroup, where it has one.
    pub(super) cgroup: Option<PathBuf>,
    /// Its session, where it has one.
    pub(super) session: Option<OfSession<'a>>,
}

impl Workers<'_> {
    /// A worker's whole life.
    pub(super) fn work(&mut self, worker: u32, argument: u64, fds: Fds) {
        let mut fds = fds.into_iter().flatten();
        let Some(first) = fds.next() else { return };
        match worker {
            LOOK => self.look(argument, first.into()),
            API => become_api(first),
            KILL => self.kill(argument),
            KILL_FIRST => self.kill_first(argument),
            KILL_LAST => self.kill_last(argument),
            CONNECT => agent_socket::answer(first, self, argument),
            JUDGE => callers::answer(first, fds.next()),
            PORTS => ports::answer(first, fds.next(), fds.next()),
            _ => self.session_work(worker, argument, first, fds.next(), fds.next()),
        }
    }

    fn session_work(
        &self,
        worker: u32,
        argument: u64,
        first: OwnedFd,
        second: Option<OwnedFd>,
        third: Option<OwnedFd>,
    ) {
        let Some(session) = &self.session else { return };
        match (worker, second, third) {
            (RECORD, Some(request), _) => session.record(first, request),
            (REMEMBER, Some(request), _) => session.remember(first, request),
            (MARK, ..) => session.mark(first),
            (FORGET, ..) => session.forget(first),
            (FILES, Some(request), Some(root)) => session.files(first, request, root),
            (SNAPSHOT, Some(alive), _) => session.snapshot(argument, first, alive),
            _ => {}
        }
    }

    /// The descriptors that workers have beside those of a request.
    pub(super) fn descriptors(&self) -> [Option<RawFd>; 2] {
        [self.warden.workspace(), self.warden.record()].map(|fd| fd.map(|fd| fd.as_raw_fd()))
    }
}

/// Executes the process of the model API on this socket, as its supervisor does at the start.
fn become_api(socket: OwnedFd) {
    let _ = super::api::command(socket).exec();
}

/// Starts the process of the model API anew on this socket.
///
/// # Errors
/// [`crate::error::Code::System`] when there is no launcher any more.
pub(super) fn start_api(launcher: &Launcher, socket: &OwnedFd) -> Result<()> {
    let started = launcher.work(API, 0, &[socket.as_raw_fd()]);
    started.map_err(|e| Error::system("start the process of the model API", e))
}
