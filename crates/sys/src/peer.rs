//! Decides which processes may connect to saggar's sockets: those of the accepted users that run in the
//! same pid and user namespaces as this process, or in the user namespace of the host. Programs of a
//! sandbox are always refused, and so are those of a container with a pid namespace.
//!
//! The process is held by a pidfd, so that a reused pid cannot be mistaken for it. Nothing here needs a
//! privilege, except on kernels before 6.5 (see `pidfd_by_number`). The pid namespace is read from the
//! fdinfo of the pidfd, the user namespace from its id maps, which every process can read. If a fact cannot
//! be determined, the connection is refused.

use crate::unix_diag;
use crate::{Errno, pidfd};
use nix::fcntl::{OFlag, open, readlink};
use nix::sys::socket::sockopt::{PeerCredentials, PeerPidfd};
use nix::sys::socket::{UnixCredentials, getsockopt};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::geteuid;
use std::cell::OnceCell;
use std::ffi::OsString;
use std::fmt;
use std::fs::{File, read_dir};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The most bytes of an id map that are read: the kernel accepts 340 lines (user_namespaces(7)) of 33 bytes
/// each.
const MAX_MAP_BYTES: u64 = 16 << 10;
/// The most bytes of a pidfd's fdinfo that are read.
const MAX_FDINFO_BYTES: u64 = 4 << 10;

/// The reason for a peer whose pid may have been reused.
pub const UNVERIFIABLE_PID: &str =
    "cannot be distinguished from another process with the same pid (this needs Linux 6.5)";
/// All reasons for a refusal.
pub const REFUSAL_REASONS: [&str; 7] =
    [UNKNOWN, OTHER_USER, OTHER_PID_NAMESPACE, OTHER_USER_NAMESPACE, ENDED, NOT_IN_PROC, UNVERIFIABLE_PID];

const UNKNOWN: &str = "is unknown";
const OTHER_USER: &str = "belongs to another user";
const ENDED: &str = "has ended";
const NOT_IN_PROC: &str = "cannot be seen in /proc";
const OTHER_PID_NAMESPACE: &str = "is in another pid namespace";
const OTHER_USER_NAMESPACE: &str = "is in another user namespace";

/// A check of a peer, for a process that has given up the right to inspect other processes.
pub(crate) type PeerCheckFn = Box<dyn Fn(BorrowedFd<'_>) -> Result<(), &'static str>>;

thread_local! {
    static PEER_CHECK: OnceCell<PeerCheckFn> = const { OnceCell::new() };
}

/// Sets the function that checks peers of the accepted users. For a process that is about to give up the
/// right to inspect them.
pub fn set_peer_check(check: PeerCheckFn) {
    PEER_CHECK.with(|held| held.set(check).ok());
}

/// The processes that are accepted.
#[derive(Debug, Clone)]
pub struct PeerPolicy {
    /// The user who started this process, and root.
    accepted_uids: [u32; 2],
    /// The number of pid namespaces, from that of /proc down, in which processes of this namespace have a
    /// pid.
    pid_namespace_depth: usize,
    user_namespace: UserNamespace,
}

/// A refused connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerRefusal {
    /// The pid of the process that connected; 0 if it has none in this pid namespace.
    pub pid: i32,
    /// The reason for the refusal; one of [`REFUSAL_REASONS`].
    pub reason: &'static str,
}

impl fmt::Display for PeerRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            0 => write!(f, "its process {}", self.reason),
            pid => write!(f, "process {pid} {}", self.reason),
        }
    }
}

impl PeerPolicy {
    /// Accepts root and the current effective user, in the current namespaces; later changes of either have
    /// no effect.
    ///
    /// # Errors
    /// When /proc is not that of this process's pid namespace or an ancestor, or cannot be read.
    pub fn of_this_process() -> io::Result<PeerPolicy> {
        let own = std::process::id().cast_signed();
        let numbers = namespace_pids(pidfd::open(own)?.as_fd())?;
        if numbers.last() != Some(&own) {
            return Err(io::Error::other("/proc is that of another pid namespace"));
        }
        Ok(PeerPolicy {
            accepted_uids: [geteuid().as_raw(), 0],
            pid_namespace_depth: numbers.len(),
            user_namespace: UserNamespace::of_process_directory(Path::new("/proc/self"))?,
        })
    }

    /// Checks the process that made a connection, with its credentials at that time.
    ///
    /// # Errors
    /// The reason for a refusal.
    pub fn check_connection(&self, connection: BorrowedFd<'_>) -> Result<(), PeerRefusal> {
        let refused = |pid| move |reason| PeerRefusal { pid, reason };
        let peer = getsockopt(&connection, PeerCredentials).map_err(|_| refused(0)(UNKNOWN))?;
        self.check_credentials(connection, peer).map_err(refused(peer.pid()))
    }

    /// As [`PeerPolicy::check_connection`], if the kernel holds the peer by a pidfd (Linux 6.5): then a few short files of
    /// /proc are read. `None` if it does not.
    pub fn check_held_connection(&self, connection: BorrowedFd<'_>) -> Option<Result<(), PeerRefusal>> {
        match getsockopt(&connection, PeerPidfd) {
            Err(Errno::ENOPROTOOPT) => None,
            _ => Some(self.check_connection(connection)),
        }
    }

    fn check_credentials(
        &self,
        connection: BorrowedFd<'_>,
        peer: UnixCredentials,
    ) -> Result<(), &'static str> {
        if !self.accepted_uids.contains(&peer.uid()) {
            return Err(OTHER_USER);
        }
        if let Some(judged) = PEER_CHECK.with(|judge| judge.get().map(|judge| judge(connection))) {
            return judged;
        }
        // A process with a pid here is in this pid namespace or a descendant. At the same depth, it is in
        // this one.
        if peer.pid() == 0 {
            return Err(OTHER_PID_NAMESPACE);
        }
        let process = match getsockopt(&connection, PeerPidfd) {
            Ok(process) => process,
            Err(Errno::ENOPROTOOPT) => pidfd_by_number(connection, peer)?,
            Err(_) => return Err(ENDED),
        };
        self.check_namespaces(process.as_fd())
    }

    /// Whether a process runs in the namespaces of this process, as processes of the host do; true if they
    /// cannot be determined.
    pub fn is_in_own_namespaces(&self, process: BorrowedFd<'_>) -> bool {
        !matches!(self.check_namespaces(process), Err(OTHER_PID_NAMESPACE | OTHER_USER_NAMESPACE))
    }

    fn check_namespaces(&self, process: BorrowedFd<'_>) -> Result<(), &'static str> {
        let numbers = living_pids(process)?;
        if numbers.len() != self.pid_namespace_depth {
            return Err(OTHER_PID_NAMESPACE);
        }
        let directory = Path::new("/proc").join(numbers[0].to_string());
        let found = UserNamespace::of_process_directory(&directory);
        // The maps belong to this process only if it has not been reaped since: the pid may have been reused.
        living_pids(process)?;
        match found {
            Ok(found) if self.user_namespace.accepts(&found) => Ok(()),
            Ok(_) => Err(OTHER_USER_NAMESPACE),
            Err(_) => Err(NOT_IN_PROC),
        }
    }
}

/// A user namespace, identified by its readable attributes.
#[derive(Debug, Clone)]
struct UserNamespace {
    /// uid_map and gid_map, which every process can read. Two namespaces have equal maps only if all ids
    /// are mapped to themselves, which requires root outside.
    maps: [Vec<u8>; 2],
    /// Its namespace link, readable only with the right to trace the process.
    name: Option<OsString>,
}

impl UserNamespace {
    /// The user namespace of a process, from its directory in /proc.
    fn of_process_directory(directory: &Path) -> io::Result<UserNamespace> {
        let map = |name| read(&directory.join(name), MAX_MAP_BYTES);
        let name = readlink(&directory.join("ns/user"));
        let name = match name {
            Ok(name) => Some(name),
            Err(Errno::EACCES | Errno::EPERM) => None,
            Err(errno) => return Err(errno.into()),
        };
        Ok(UserNamespace { maps: [map("uid_map")?, map("gid_map")?], name })
    }

    /// A supervisor in a user namespace accepts processes of that namespace and of the host's.
    fn accepts(&self, other: &UserNamespace) -> bool {
        self.is_same(other) || (other.has_all_ids() && !self.has_all_ids())
    }

    /// Whether it maps all ids, as the host's does. Only root outside could write such a map for another
    /// namespace.
    fn has_all_ids(&self) -> bool {
        let has_all = |map: &Vec<u8>| {
            let text = String::from_utf8_lossy(map);
            let words: Vec<&str> = text.split_whitespace().collect();
            matches!(words[..], ["0", _, "4294967295"])
        };
        self.maps.iter().all(has_all)
    }

    fn is_same(&self, other: &UserNamespace) -> bool {
        let named = self.name.as_ref().zip(other.name.as_ref());
        self.maps == other.maps && named.is_none_or(|(one, other)| one == other)
    }
}

/// Opens a process by its pid, if the kernel provides no pidfd of a peer (before Linux 6.5). The pid may
/// have been reused, so the process is accepted only while it holds the other end of the connection.
/// Checking that requires the right to trace it; without that right, or without the kernel's unix_diag, the
/// result is uncertain.
///
/// A user's supervisor cannot trace processes of root. For them, the uid of the connection, which is
/// certain, and the pid namespace decide. The remaining risk is a process of root in a container without a
/// user namespace that exits while pids wrap around.
fn pidfd_by_number(connection: BorrowedFd<'_>, peer: UnixCredentials) -> Result<OwnedFd, &'static str> {
    let process = pidfd::open(peer.pid()).map_err(|_| ENDED)?;
    let number = living_pids(process.as_fd())?[0];
    let mut open = match read_dir(format!("/proc/{number}/fd")) {
        Ok(open) => open,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && peer.uid() == 0 => {
            return Ok(process);
        }
        Err(_) => return Err(UNVERIFIABLE_PID),
    };
    let inode = fstat(connection).map_err(|_| UNVERIFIABLE_PID)?.st_ino;
    let other_end = unix_diag::peer_inode(inode).map_err(|_| UNVERIFIABLE_PID)?;
    let name = OsString::from(format!("socket:[{other_end}]"));
    match open.any(|entry| entry.is_ok_and(|entry| readlink(&entry.path()).is_ok_and(|is| is == name))) {
        true => Ok(process),
        false => Err(UNVERIFIABLE_PID),
    }
}

/// The pids of a process that has not been reaped.
fn living_pids(process: BorrowedFd<'_>) -> Result<Vec<i32>, &'static str> {
    match namespace_pids(process) {
        Ok(numbers) if numbers.first().is_some_and(|number| *number > 0) => Ok(numbers),
        _ => Err(ENDED),
    }
}

/// The pids of a process in the pid namespace of /proc and in the descendants that it is in
/// (proc_pid_fdinfo(5)); -1 if it has been reaped, 0 if it has no pid there.
fn namespace_pids(process: BorrowedFd<'_>) -> io::Result<Vec<i32>> {
    let info = read(Path::new(&format!("/proc/self/fdinfo/{}", process.as_raw_fd())), MAX_FDINFO_BYTES)?;
    let info = String::from_utf8(info).map_err(io::Error::other)?;
    let line = info.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let line = line.ok_or(io::ErrorKind::InvalidData)?;
    line.split_whitespace().map(|number| number.parse().map_err(io::Error::other)).collect()
}

/// Reads a file of /proc, at most `max_bytes`. The flags make it safe to open any other file at that path: no
/// link is followed, open(2) does not block, and a terminal does not become the controlling terminal.
fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let mut text = Vec::new();
    File::from(open(path, flags, Mode::empty())?).take(max_bytes).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::process::{Child, Command, Stdio};

    fn waiting(command: &[&str]) -> Child {
        let mut command_ = Command::new(command[0]);
        let mut child =
            command_.args(&command[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // The output proves that the shell runs in its namespaces.
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        child
    }

    /// Credentials as a kernel reports them for a process of this user.
    fn credentials(pid: u32) -> UnixCredentials {
        let (uid, gid) = (geteuid().as_raw(), nix::unistd::getegid().as_raw());
        libc::ucred { pid: pid.cast_signed(), uid, gid }.into()
    }

    #[test]
    fn own_connection_is_accepted_on_every_kernel() {
        let peers = PeerPolicy::of_this_process().unwrap();
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(peers.check_connection(one.as_fd()), Ok(()));
        pidfd_by_number(one.as_fd(), credentials(std::process::id())).unwrap();
    }

    #[test]
    fn number_of_a_process_without_the_other_end_is_refused() {
        let mut child = waiting(&["/bin/sh", "-c", "echo; read x"]);
        let (one, other) = UnixStream::pair().unwrap();
        let by = |connection: &UnixStream, pid: u32| pidfd_by_number(connection.as_fd(), credentials(pid));
        assert!(by(&one, child.id()).is_err(), "it holds neither end");
        drop(other);
        assert!(by(&one, std::process::id()).is_err(), "the other end is closed");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(by(&one, child.id()).unwrap_err(), "has ended");
    }

    #[test]
    fn reaped_process_has_no_numbers() {
        let mut child = waiting(&["/bin/sh", "-c", "echo; read x"]);
        let process = pidfd::open(child.id().cast_signed()).unwrap();
        assert_eq!(living_pids(process.as_fd()).unwrap(), [child.id().cast_signed()]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(living_pids(process.as_fd()).unwrap_err(), "has ended");
    }

    #[test]
    fn user_namespaces_differ_by_what_everybody_can_read() {
        let own = UserNamespace::of_process_directory(Path::new("/proc/self")).unwrap();
        assert!(own.name.is_some() && own.is_same(&own));
        let nameless = |namespace: &UserNamespace| UserNamespace { name: None, ..namespace.clone() };
        let mut child = waiting(&["/usr/bin/unshare", "--user", "/bin/sh", "-c", "echo; read x"]);
        let other = UserNamespace::of_process_directory(Path::new(&format!("/proc/{}", child.id()))).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!own.accepts(&other) && !own.accepts(&nameless(&other)) && own.accepts(&nameless(&own)));
        // The host's namespace contains the other one.
        assert!(!own.has_all_ids() || other.accepts(&own));
        // Equal maps, but another namespace.
        assert!(!own.accepts(&UserNamespace { name: other.name, ..own.clone() }));
    }
}
