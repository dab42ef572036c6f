//! The launcher: the one process that keeps privileges while a sandbox runs (DECISIONS 33). It is forked from the
//! supervisor when pid 1 is made, with memory of its own, and before the supervisor gives up its rights for good.
//!
//! ```text
//! supervisor, all rights ── part ──┬─> launcher: a few capabilities, a filter; waits for requests
//!                                  └─> supervisor: confines itself, then reads what the sandbox says
//! ```
//! Who runs here: one thread, with all signals blocked, in a session of its own, with its end of a socketpair, a
//! pidfd of pid 1, and descriptors for its workers. It takes records of a fixed size, and has no lock and no parser. All
//! that a request can name is in its memory since before the sandbox ran: pid 1, what is to be removed in the end, and
//! the workers. A worker is a fork of the launcher that does one thing and ends. What needs no parser is done without one
//! ([`LauncherTasks::run_inline`]).
//!
//! A stream that ends without `LauncherRequest::CleanUp`, or that says what nobody understands, is the end of the supervisor or
//! of its sanity: the sandbox is killed, and everything is removed.

use crate::stage::watcher::{CleanupItem, for_each_in_order};
use nix::poll::PollTimeout;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::wait::WaitStatus;
use saggar_sys::confine::ProcessRights;
use saggar_sys::seccomp::{self, HostProcessFilter};
use saggar_sys::{Errno, SysResult, caps, clone, file, pidfd, process, scm};
use std::fmt;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// Bytes of one record.
const RECORD_LEN: usize = 16;
/// How long pid 1 may take to end that was about to, in milliseconds.
const EXIT_GRACE_MS: u16 = 100;
/// How long pid 1 may take to end that was killed, in milliseconds: what is in its cgroup is killed after that too.
const KILL_GRACE_MS: u16 = 1000;
/// A sandbox that lives so long is not one of the many that only run one short command. To write what is needed after a
/// power failure to the disk, and to remove it from there, takes a twentieth of the time of those.
const LONG_LIVED: Duration = Duration::from_millis(25);
/// Capabilities of a launcher that had them, by their numbers in linux/capability.h: to remove files and signal
/// processes of any owner (CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, KILL), to give workers other ids and fewer
/// capabilities (SETGID, SETUID, SETPCAP), to see which namespaces a caller is in (SYS_PTRACE; the filter has no call
/// that traces), and to lift the limit of a project (SYS_ADMIN).
const RETAINED_CAPABILITIES: u64 = 0b10_1000_0000_0001_1110_1111;

/// What it is left with, and its workers, but for what a worker gives up itself.
pub const RIGHTS: ProcessRights = ProcessRights {
    name: c"saggar:launch",
    capabilities: RETAINED_CAPABILITIES,
    filter: HostProcessFilter::Launcher,
    landlock: None,
};

/// Descriptors that came with a request.
pub type RequestFds = [Option<OwnedFd>; scm::MAX_FDS];

/// What is done for the supervisor beside what the launcher itself knows of: by the number of the work and an argument.
pub trait LauncherTasks {
    /// Does it in the launcher, which must not parse what programs wrote, nor wait for them; false where it takes a
    /// worker.
    fn run_inline(&mut self, worker: u32, argument: u64) -> bool;

    /// Verifies the peer of a connection, and returns a number for the supervisor; `None` where it takes a worker.
    fn verify_peer(&mut self, connection: BorrowedFd<'_>) -> Option<u8>;

    /// The sandbox has lived for [`LONG_LIVED`]: what is only worth it then.
    fn on_long_lived(&mut self);

    /// A worker's whole life, with descriptors for its results.
    fn run_worker(&mut self, worker: u32, argument: u64, fds: RequestFds);

    /// No program is left, and all that the launcher has in its charge is about to be removed. False keeps directories:
    /// a later command finds in their records what is left to do.
    fn on_end(&mut self) -> bool {
        true
    }
}

/// From the supervisor to its launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LauncherRequest {
    /// Kill pid 1, and with it the sandbox.
    Kill,
    /// Open the mount table of pid 1; the answer is one byte with the descriptor, or without one.
    OpenMountTable,
    /// Fork a worker; descriptors come beside it.
    StartWorker {
        /// Which.
        worker: u32,
        /// Means what the worker takes it for.
        argument: u64,
    },
    /// pid 1 is about to end: when it has, remove everything, and end.
    CleanUp,
    /// Verify the peer of the connection that comes beside it; the answer is a [`Verdict`].
    VerifyPeer,
}

impl LauncherRequest {
    fn encode(self) -> [u8; RECORD_LEN] {
        let (kind, worker, argument) = match self {
            LauncherRequest::Kill => (1u32, 0, 0),
            LauncherRequest::OpenMountTable => (2, 0, 0),
            LauncherRequest::StartWorker { worker, argument } => (3, worker, argument),
            LauncherRequest::CleanUp => (4, 0, 0),
            LauncherRequest::VerifyPeer => (5, 0, 0),
        };
        let mut bytes = [0; RECORD_LEN];
        bytes[..4].copy_from_slice(&kind.to_ne_bytes());
        bytes[4..8].copy_from_slice(&worker.to_ne_bytes());
        bytes[8..].copy_from_slice(&argument.to_ne_bytes());
        bytes
    }

    /// The request in a record of exactly [`RECORD_LEN`] bytes.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; RECORD_LEN] = bytes.try_into().ok()?;
        let (kind, rest) = bytes.split_first_chunk::<4>()?;
        let (worker, argument) = rest.split_first_chunk::<4>()?;
        let (worker, argument) = (u32::from_ne_bytes(*worker), u64::from_ne_bytes(argument.try_into().ok()?));
        match (u32::from_ne_bytes(*kind), worker, argument) {
            (1, 0, 0) => Some(LauncherRequest::Kill),
            (2, 0, 0) => Some(LauncherRequest::OpenMountTable),
            (3, ..) => Some(LauncherRequest::StartWorker { worker, argument }),
            (4, 0, 0) => Some(LauncherRequest::CleanUp),
            (5, 0, 0) => Some(LauncherRequest::VerifyPeer),
            _ => None,
        }
    }
}

/// The answer to [`LauncherRequest::VerifyPeer`]: whether there is a verdict, and which.
type Verdict = [u8; 2];

/// What the launcher is born with.
pub struct LauncherArgs<'a> {
    /// pid 1 of the sandbox, unreaped, and a pidfd of it.
    pub init: (i32, BorrowedFd<'a>),
    /// What is to be removed in the end, as [`CleanupItem::encode`] writes it.
    pub cleanup: &'a [u8],
    /// Descriptors that workers need beside those of their requests.
    pub descriptors: &'a [RawFd],
    /// What workers do.
    pub tasks: &'a mut dyn LauncherTasks,
}

impl fmt::Debug for LauncherArgs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("init", &self.init).finish_non_exhaustive()
    }
}

/// The supervisor's side of its launcher.
#[derive(Debug)]
pub struct Launcher {
    socket: OwnedFd,
    pid: i32,
    pidfd: OwnedFd,
}

impl Launcher {
    /// Forks the launcher of this process, which has one thread. Returns in the supervisor only.
    ///
    /// # Errors
    /// The error number of socketpair(2) or clone3(2).
    pub fn spawn(held: LauncherArgs<'_>) -> SysResult<Self> {
        let (socket, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        // What neither side keeps is dropped once, before there are two.
        if caps::has(caps::SETPCAP) {
            caps::drop_from_bounding_set(!RETAINED_CAPABILITIES)?;
        }
        // SAFETY: one thread, as at the clone of pid 1, so that no lock is held in the child, which runs `serve`.
        match unsafe { clone::clone3(0, None)? } {
            clone::CloneSide::Child => serve(held, theirs.as_raw_fd()),
            clone::CloneSide::Parent { pid, pidfd } => Ok(Launcher { socket, pid, pidfd }),
        }
    }

    /// Its pid.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Readable when it has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Has it kill the sandbox; false when it is gone.
    pub fn kill(&self) -> bool {
        self.send(LauncherRequest::Kill, &[]).is_ok()
    }

    /// The mount table of pid 1 (proc_pid_mountinfo(5)).
    ///
    /// # Errors
    /// ESRCH when pid 1, or the launcher, is gone.
    pub fn open_mount_table(&self) -> SysResult<OwnedFd> {
        self.send(LauncherRequest::OpenMountTable, &[])?;
        let mut answer = [0; RECORD_LEN];
        let received = scm::receive(self.socket.as_fd(), &mut answer)?;
        let [first, ..] = received.fds;
        first.ok_or(Errno::ESRCH)
    }

    /// Starts a worker with these descriptors, which are closed here when it has them.
    ///
    /// # Errors
    /// Those of sendmsg(2): EPIPE when the launcher is gone.
    pub fn start_worker(&self, worker: u32, argument: u64, fds: &[RawFd]) -> SysResult<()> {
        self.send(LauncherRequest::StartWorker { worker, argument }, fds)
    }

    /// What [`LauncherTasks::verify_peer`] says of the peer of a connection.
    ///
    /// # Errors
    /// EPIPE when the launcher is gone.
    pub fn verify_peer(&self, connection: BorrowedFd<'_>) -> SysResult<Option<u8>> {
        self.send(LauncherRequest::VerifyPeer, &[connection.as_raw_fd()])?;
        let mut answer = Verdict::default();
        match scm::receive(self.socket.as_fd(), &mut answer)?.len {
            2 => Ok((answer[0] == 1).then_some(answer[1])),
            _ => Err(Errno::EPIPE),
        }
    }

    /// Has it remove what is in its charge as soon as pid 1 has ended, and end.
    pub(crate) fn clean_up(&self) {
        let _ = self.send(LauncherRequest::CleanUp, &[]);
    }

    /// Waits until it has ended; whether it did all of it.
    pub fn wait(&self) -> bool {
        matches!(pidfd::reap(self.pidfd.as_fd()), Ok(WaitStatus::Exited(_, 0)))
    }

    fn send(&self, request: LauncherRequest, fds: &[RawFd]) -> SysResult<()> {
        scm::send(self.socket.as_fd(), &request.encode(), fds)?;
        // A worker that was just forked may still have the other end.
        if pidfd::has_exited(self.pidfd()) { Err(Errno::EPIPE) } else { Ok(()) }
    }
}

/// The launcher's whole life.
fn serve(held: LauncherArgs<'_>, socket: RawFd) -> ! {
    let LauncherArgs { init: (pid, init), cleanup: charges, descriptors, tasks: work } = held;
    let _ = process::block_signals();
    let _ = nix::unistd::setsid();
    let _ = process::set_name(RIGHTS.name);
    // Its short sleeps are meant to be short: the default slack doubles them.
    let _ = process::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0);
    // The descriptors are a copy of the supervisor's: it must keep no pipe of the caller open.
    let kept = [socket, init.as_raw_fd()].into_iter().chain(descriptors.iter().copied());
    // SAFETY: nothing of the others is used in this process.
    let _ = unsafe { file::close_others(0, kept) };
    // What a worker opens is not to have the number of a standard stream.
    let _ = file::fill_standard_streams();
    let socket = file::borrow_number(socket);
    let is_over = confine().is_ok() && serve_requests(socket, (pid, init), work);
    if is_over {
        // Whoever looks at the cgroup while it dies only steals its time. Where nothing is to be removed, this process
        // ends while the kernel takes the sandbox apart.
        if !charges.is_empty() {
            pidfd::wait_exit(init, EXIT_GRACE_MS);
        }
    } else {
        let _ = pidfd::signal(init, libc::SIGKILL);
        pidfd::wait_exit(init, KILL_GRACE_MS);
    }
    let is_done = work.on_end();
    for_each_in_order(charges, |charge| {
        if is_done || !matches!(charge, CleanupItem::Directory(_)) {
            charge.remove();
        }
    });
    process::exit_now(0)
}

/// Gives up what it never needs. Children reap themselves from here on (SIG_IGN for SIGCHLD, sigaction(2)).
fn confine() -> SysResult<()> {
    process::ignore_signal(libc::SIGCHLD)?;
    let kept = caps::effective() & RIGHTS.capabilities;
    caps::set(kept, kept, 0, 0)?;
    process::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0)?;
    process::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0)?;
    seccomp::load(RIGHTS.filter.program()).map_err(Errno::from_raw)
}

/// Does what is asked; true when the supervisor says that it is over, false when it is gone or makes no sense.
fn serve_requests(
    socket: BorrowedFd<'_>,
    (pid, init): (i32, BorrowedFd<'_>),
    work: &mut dyn LauncherTasks,
) -> bool {
    // One byte more than a record has: a longer one is none.
    let mut buffer = [0; RECORD_LEN + 1];
    let mut lasts_from = Instant::now().checked_add(LONG_LIVED);
    loop {
        if let Some(from) = lasts_from {
            let left = PollTimeout::try_from(from.saturating_duration_since(Instant::now()));
            let left = left.unwrap_or(PollTimeout::ZERO);
            if left == PollTimeout::ZERO || !process::is_readable_within(socket, left) {
                work.on_long_lived();
                lasts_from = None;
            }
        }
        let Ok(received) = scm::receive(socket, &mut buffer) else { return false };
        match buffer.get(..received.len).and_then(LauncherRequest::decode) {
            Some(LauncherRequest::Kill) => {
                let _ = pidfd::signal(init, libc::SIGKILL);
            }
            Some(LauncherRequest::OpenMountTable) => {
                let opened = open_mountinfo(pid, init);
                let fd = opened.as_ref().map(AsRawFd::as_raw_fd);
                let answered =
                    scm::send_now(socket, &[0; RECORD_LEN], fd.as_ref().map_or(&[], std::slice::from_ref));
                if answered.is_err() {
                    return false;
                }
            }
            // Not on a descriptor that the supervisor names: that could be one that blocks. Nor does this wait until it
            // receives: it has at most one request without an answer.
            Some(LauncherRequest::VerifyPeer) => {
                let [connection, ..] = received.fds;
                let verdict = connection.and_then(|connection| work.verify_peer(connection.as_fd()));
                if scm::send_now(socket, &verdict.map_or([0, 0], |verdict| [1, verdict]), &[]).is_err() {
                    return false;
                }
            }
            Some(LauncherRequest::StartWorker { worker, argument }) if work.run_inline(worker, argument) => {}
            Some(LauncherRequest::StartWorker { worker, argument }) => {
                // SAFETY: this process has one thread; the child is a worker, which ends here.
                // Where there is no child its descriptors close, which says that nothing was done.
                if let Ok(0) = unsafe { clone::fork() } {
                    // Else the supervisor would not see that the launcher has ended.
                    // SAFETY: the worker does not use the launcher's socket.
                    drop(unsafe { OwnedFd::from_raw_fd(socket.as_raw_fd()) });
                    work.run_worker(worker, argument, received.fds);
                    process::exit_now(0)
                }
            }
            Some(LauncherRequest::CleanUp) => return true,
            None => return false,
        }
    }
}

/// Opens the mount table of pid 1: by its number, which is its own as long as it has not ended.
fn open_mountinfo(pid: i32, init: BorrowedFd<'_>) -> SysResult<OwnedFd> {
    let mut path = [0u8; 32];
    write!(&mut path[..31], "/proc/{pid}/mountinfo").map_err(|_| Errno::ENAMETOOLONG)?;
    let path = std::ffi::CStr::from_bytes_until_nul(&path).map_err(|_| Errno::ENAMETOOLONG)?;
    let table = file::open(file::cwd(), path, libc::O_RDONLY, 0, file::Resolve::Ordinary)?;
    if pidfd::has_exited(init) { Err(Errno::ESRCH) } else { Ok(table) }
}

/// Charges as `LauncherArgs::cleanup` takes them.
pub(crate) fn encode_cleanup<'a>(charges: impl IntoIterator<Item = CleanupItem<'a>>) -> Vec<u8> {
    charges.into_iter().flat_map(|charge| charge.encode()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn requests_survive_the_wire_and_nothing_else_is_one() {
        let work = LauncherRequest::StartWorker { worker: u32::MAX, argument: 1 << 40 };
        for request in [
            LauncherRequest::Kill,
            LauncherRequest::OpenMountTable,
            work,
            LauncherRequest::CleanUp,
            LauncherRequest::VerifyPeer,
        ] {
            assert_eq!(LauncherRequest::decode(&request.encode()), Some(request));
        }
        let bytes = LauncherRequest::CleanUp.encode();
        assert_eq!(LauncherRequest::decode(&bytes[..RECORD_LEN - 1]), None);
        assert_eq!(LauncherRequest::decode(&[bytes.as_slice(), &[0]].concat()), None);
        assert_eq!(LauncherRequest::decode(&[0; RECORD_LEN]), None);
        let mut odd = LauncherRequest::Kill.encode();
        odd[15] = 1;
        assert_eq!(LauncherRequest::decode(&odd), None);
    }

    struct Noted(mpsc::Sender<()>);

    impl LauncherTasks for Noted {
        fn run_inline(&mut self, _: u32, _: u64) -> bool {
            true
        }

        fn verify_peer(&mut self, _: BorrowedFd<'_>) -> Option<u8> {
            None
        }

        fn on_long_lived(&mut self) {
            let _ = self.0.send(());
        }

        fn run_worker(&mut self, _: u32, _: u64, _: RequestFds) {}
    }

    #[test]
    fn a_sandbox_that_lasts_is_noticed_once_whatever_it_asks_for() {
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
        let (noted, notes) = mpsc::channel();
        let serving = std::thread::spawn(move || {
            let init = std::process::id().cast_signed();
            let pidfd = pidfd::open(init).unwrap();
            serve_requests(theirs.as_fd(), (init, pidfd.as_fd()), &mut Noted(noted))
        });
        let mounts = || {
            scm::send(ours.as_fd(), &LauncherRequest::OpenMountTable.encode(), &[]).unwrap();
            assert!(scm::receive(ours.as_fd(), &mut [0; RECORD_LEN]).unwrap().fds[0].is_some());
        };
        mounts();
        // Only ever reached by a failure.
        notes.recv_timeout(Duration::from_secs(60)).unwrap();
        mounts();
        scm::send(ours.as_fd(), &LauncherRequest::CleanUp.encode(), &[]).unwrap();
        assert!(serving.join().unwrap());
        assert_eq!(notes.try_iter().count(), 0);
    }
}
