//! The launcher: the one process that keeps privileges while a sandbox runs (DECISIONS 33). It is forked from the
//! supervisor when pid 1 is made, with memory of its own, and before the supervisor gives up its rights for good.
//!
//! ```text
//! supervisor, all rights ── part ──┬─> launcher: a few capabilities, a filter; waits for requests
//!                                  └─> supervisor: confines itself, then reads what the sandbox says
//! ```
//! Who runs here: one thread, with all signals blocked, in a session of its own, with its end of a socketpair, a
//! pidfd of pid 1, and descriptors for its workers. It takes records of a fixed size, and has no heap, no lock and no parser. All that
//! a request can name is in its memory since before the sandbox ran: pid 1, what is to be removed in the end, and the
//! workers. A worker is a fork of the launcher that does one thing and ends; it may use the heap.
//!
//! A stream that ends without [`Request::End`], or that says what nobody understands, is the end of the supervisor or
//! of its sanity: the sandbox is killed, and everything is removed.

use super::watcher::{Charge, in_order};
use crate::sys::seccomp::{self, Outside};
use crate::sys::{Errno, SysResult, caps, clone, file, pidfd, process, scm};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::wait::WaitStatus;
use std::fmt;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Bytes of one record.
const LEN: usize = 16;
/// How long pid 1 may take to end that was about to, in milliseconds.
const LAST_BREATH: u16 = 100;
/// How long pid 1 may take to end that was killed, in milliseconds: what is in its cgroup is killed after that too.
const KILLED: u16 = 1000;
/// Capabilities of a launcher that had them, by their numbers in linux/capability.h: to remove files and signal
/// processes of any owner (CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, KILL), to give workers other ids and fewer
/// capabilities (SETGID, SETUID, SETPCAP), to see which namespaces a caller is in (SYS_PTRACE; the filter has no call
/// that traces), and to lift the limit of a project (SYS_ADMIN).
const KEPT: u64 = 0b10_1000_0000_0001_1110_1111;

/// Descriptors that came with a request.
pub type Fds = [Option<OwnedFd>; scm::MAX_FDS];

/// What a worker does: its number, an argument, and descriptors for its results.
pub type Work<'a> = dyn FnMut(u32, u64, Fds) + 'a;

/// From the supervisor to its launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    /// Kill pid 1, and with it the sandbox.
    Kill,
    /// Open the mount table of pid 1; the answer is one byte with the descriptor, or without one.
    Mounts,
    /// Fork a worker; descriptors come beside it.
    Work {
        /// Which.
        worker: u32,
        /// Means what the worker takes it for.
        argument: u64,
    },
    /// pid 1 is about to end: when it has, remove everything, and end.
    End,
}

impl Request {
    fn encode(self) -> [u8; LEN] {
        let (kind, worker, argument) = match self {
            Request::Kill => (1u32, 0, 0),
            Request::Mounts => (2, 0, 0),
            Request::Work { worker, argument } => (3, worker, argument),
            Request::End => (4, 0, 0),
        };
        let mut bytes = [0; LEN];
        bytes[..4].copy_from_slice(&kind.to_ne_bytes());
        bytes[4..8].copy_from_slice(&worker.to_ne_bytes());
        bytes[8..].copy_from_slice(&argument.to_ne_bytes());
        bytes
    }

    /// The request in a record of exactly [`LEN`] bytes.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LEN] = bytes.try_into().ok()?;
        let (kind, rest) = bytes.split_first_chunk::<4>()?;
        let (worker, argument) = rest.split_first_chunk::<4>()?;
        let (worker, argument) = (u32::from_ne_bytes(*worker), u64::from_ne_bytes(argument.try_into().ok()?));
        match (u32::from_ne_bytes(*kind), worker, argument) {
            (1, 0, 0) => Some(Request::Kill),
            (2, 0, 0) => Some(Request::Mounts),
            (3, ..) => Some(Request::Work { worker, argument }),
            (4, 0, 0) => Some(Request::End),
            _ => None,
        }
    }
}

/// What the launcher is born with.
pub struct Held<'a> {
    /// pid 1 of the sandbox, unreaped, and a pidfd of it.
    pub init: (i32, BorrowedFd<'a>),
    /// What is to be removed in the end, as [`Charge::encode`] writes it.
    pub charges: &'a [u8],
    /// Descriptors that workers need beside those of their requests.
    pub descriptors: [Option<RawFd>; 2],
    /// What workers do.
    pub work: &'a mut Work<'a>,
}

impl fmt::Debug for Held<'_> {
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
    pub fn part(held: Held<'_>) -> SysResult<Self> {
        let (socket, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        // SAFETY: one thread, as at the clone of pid 1; the child runs `serve`, which uses no heap.
        match unsafe { clone::clone3(0, None)? } {
            clone::Side::Child => serve(held, theirs.as_raw_fd()),
            clone::Side::Parent { pid, pidfd } => Ok(Launcher { socket, pid, pidfd }),
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
        self.ask(Request::Kill, &[]).is_ok()
    }

    /// The mount table of pid 1 (proc_pid_mountinfo(5)).
    ///
    /// # Errors
    /// ESRCH when pid 1, or the launcher, is gone.
    pub fn mounts(&self) -> SysResult<OwnedFd> {
        self.ask(Request::Mounts, &[])?;
        let mut answer = [0; LEN];
        let received = scm::receive(self.socket.as_fd(), &mut answer)?;
        let [first, ..] = received.fds;
        first.ok_or(Errno::ESRCH)
    }

    /// Starts a worker with these descriptors, which are closed here when it has them.
    ///
    /// # Errors
    /// Those of sendmsg(2): EPIPE when the launcher is gone.
    pub fn work(&self, worker: u32, argument: u64, fds: &[RawFd]) -> SysResult<()> {
        self.ask(Request::Work { worker, argument }, fds)
    }

    /// Has it remove what is in its charge as soon as pid 1 has ended, and end.
    pub fn end(&self) {
        let _ = self.ask(Request::End, &[]);
    }

    /// Waits until it has ended; whether it did all of it.
    pub fn wait(&self) -> bool {
        matches!(pidfd::reap(self.pidfd.as_fd()), Ok(WaitStatus::Exited(_, 0)))
    }

    fn ask(&self, request: Request, fds: &[RawFd]) -> SysResult<()> {
        scm::send(self.socket.as_fd(), &request.encode(), fds)
    }
}

/// The launcher's whole life.
fn serve(held: Held<'_>, socket: RawFd) -> ! {
    let Held { init: (pid, init), charges, descriptors, work } = held;
    let _ = process::block_signals();
    let _ = nix::unistd::setsid();
    let _ = process::set_name(c"saggar:launch");
    // Its short sleeps are meant to be short: the default slack doubles them.
    let _ = process::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0);
    // The descriptors are a copy of the supervisor's: it must keep no pipe of the caller open.
    let kept = [socket, init.as_raw_fd()].into_iter().chain(descriptors.into_iter().flatten());
    // SAFETY: nothing of the others is used in this process.
    let _ = unsafe { file::close_others(0, kept) };
    // What a worker opens is not to have the number of a standard stream.
    let _ = file::fill_standard_streams();
    let socket = file::number(socket);
    let is_over = restrict().is_ok() && requests(socket, (pid, init), work);
    if is_over {
        // Whoever looks at the cgroup while it dies only steals its time.
        pidfd::wait_end(init, LAST_BREATH);
    } else {
        let _ = pidfd::signal(init, libc::SIGKILL);
        pidfd::wait_end(init, KILLED);
    }
    in_order(charges, |charge| charge.remove());
    process::exit_now(0)
}

/// Gives up what it never needs. Children reap themselves from here on (SIG_IGN for SIGCHLD, sigaction(2)).
fn restrict() -> SysResult<()> {
    process::ignore_signal(libc::SIGCHLD)?;
    let kept = caps::effective() & KEPT;
    if caps::has(caps::SETPCAP) {
        caps::bound(kept)?;
    }
    caps::set(kept, kept, 0, 0)?;
    process::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0)?;
    process::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0)?;
    seccomp::load(Outside::Launcher.program()).map_err(Errno::from_raw)
}

/// Does what is asked; true when the supervisor says that it is over, false when it is gone or makes no sense.
fn requests(socket: BorrowedFd<'_>, (pid, init): (i32, BorrowedFd<'_>), work: &mut Work<'_>) -> bool {
    // One byte more than a record has: a longer one is none.
    let mut buffer = [0; LEN + 1];
    loop {
        let Ok(received) = scm::receive(socket, &mut buffer) else { return false };
        match buffer.get(..received.len).and_then(Request::decode) {
            Some(Request::Kill) => {
                let _ = pidfd::signal(init, libc::SIGKILL);
            }
            Some(Request::Mounts) => {
                let opened = mounts_of(pid, init);
                let fd = opened.as_ref().map(AsRawFd::as_raw_fd);
                let _ = scm::send(socket, &[0; LEN], fd.as_ref().map_or(&[], std::slice::from_ref));
            }
            Some(Request::Work { worker, argument }) => {
                // SAFETY: this process has one thread; the child is a worker, which ends here.
                // Where there is no child its descriptors close, which says that nothing was done.
                if let Ok(0) = unsafe { clone::fork() } {
                    work(worker, argument, received.fds);
                    process::exit_now(0)
                }
            }
            Some(Request::End) => return true,
            None => return false,
        }
    }
}

/// Opens the mount table of pid 1: by its number, which is its own as long as it has not ended.
fn mounts_of(pid: i32, init: BorrowedFd<'_>) -> SysResult<OwnedFd> {
    let mut path = [0u8; 32];
    write!(&mut path[..31], "/proc/{pid}/mountinfo").map_err(|_| Errno::ENAMETOOLONG)?;
    let path = std::ffi::CStr::from_bytes_until_nul(&path).map_err(|_| Errno::ENAMETOOLONG)?;
    let table = file::open(file::cwd(), path, libc::O_RDONLY, 0, file::Resolve::Ordinary)?;
    if pidfd::has_ended(init) { Err(Errno::ESRCH) } else { Ok(table) }
}

/// Charges as [`Held::charges`] takes them.
pub fn encode<'a>(charges: impl IntoIterator<Item = Charge<'a>>) -> Vec<u8> {
    charges.into_iter().flat_map(|charge| charge.encode()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_the_wire_and_nothing_else_is_one() {
        let work = Request::Work { worker: u32::MAX, argument: 1 << 40 };
        for request in [Request::Kill, Request::Mounts, work, Request::End] {
            assert_eq!(Request::decode(&request.encode()), Some(request));
        }
        let bytes = Request::End.encode();
        assert_eq!(Request::decode(&bytes[..LEN - 1]), None);
        assert_eq!(Request::decode(&[bytes.as_slice(), &[0]].concat()), None);
        assert_eq!(Request::decode(&[0; LEN]), None);
        let mut odd = Request::Kill.encode();
        odd[15] = 1;
        assert_eq!(Request::decode(&odd), None);
    }
}
