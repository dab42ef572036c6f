//! Judges which processes may talk to a socket of ours: those of the accepted users that run in the very pid and user
//! namespaces that we run in, or in the user namespace of the host. Programs of a sandbox never do, nor do those of a
//! container that has a pid namespace.
//!
//! The process is held by a pidfd, so that a number that was given to another process cannot stand for it. Nothing here
//! takes a privilege, but on kernels before 6.5 (see [`by_number`]): the pid namespace is read from what the kernel
//! says of our own descriptor, the user namespace from its id maps, which every process can read. Whatever cannot be
//! found out is a refusal.

use crate::sys::unix_diag;
use crate::sys::{Errno, pidfd};
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

/// The longest id map that is read: the kernel takes 340 lines (user_namespaces(7)) of 33 bytes each.
const LONGEST_MAP: u64 = 16 << 10;
/// The longest description of a pidfd that is read.
const LONGEST_INFO: u64 = 4 << 10;

/// Whether the number of a caller is still its own cannot be found out.
pub const UNCERTAIN: &str = "cannot be told from another one that has its number (Linux 6.5 can)";
/// All that can be wrong with a caller.
pub const REASONS: [&str; 7] = [UNKNOWN, OTHER_USER, OTHER_PIDS, OTHER_USERS, ENDED, UNSEEN, UNCERTAIN];

const UNKNOWN: &str = "is unknown";
const OTHER_USER: &str = "belongs to another user";
const ENDED: &str = "has ended";
const UNSEEN: &str = "cannot be seen in /proc";
const OTHER_PIDS: &str = "is in another pid namespace";
const OTHER_USERS: &str = "is in another user namespace";

/// Judges a caller for a process that has given up the right to.
pub type Judge = Box<dyn Fn(BorrowedFd<'_>) -> Result<(), &'static str>>;

thread_local! {
    static JUDGE: OnceCell<Judge> = const { OnceCell::new() };
}

/// Has this judge callers of the accepted users; for a process that is about to give up the right to look at them.
pub fn judge_by(judge: Judge) {
    JUDGE.with(|held| held.set(judge).ok());
}

/// Which processes are accepted.
#[derive(Debug, Clone)]
pub struct Peers {
    /// The user who started us, and root.
    users: [u32; 2],
    /// How many pid namespaces, counted from that of /proc on, our processes have a number in.
    level: usize,
    user_namespace: UserNamespace,
}

/// Why a connection is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The process that connected, 0 where it has no number here.
    pub pid: i32,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            0 => write!(f, "its process {}", self.reason),
            pid => write!(f, "process {pid} {}", self.reason),
        }
    }
}

impl Peers {
    /// Accepts root and the effective user of now, in the namespaces of now: what changes afterwards changes nothing.
    ///
    /// # Errors
    /// When /proc is not that of our own pid namespace or one above, or cannot be read.
    pub fn of_this_process() -> io::Result<Peers> {
        let own = std::process::id().cast_signed();
        let numbers = numbers(pidfd::open(own)?.as_fd())?;
        if numbers.last() != Some(&own) {
            return Err(io::Error::other("/proc is that of another pid namespace"));
        }
        Ok(Peers {
            users: [geteuid().as_raw(), 0],
            level: numbers.len(),
            user_namespace: UserNamespace::of(Path::new("/proc/self"))?,
        })
    }

    /// Judges the process that made a connection, as it was when it did.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn judge(&self, connection: BorrowedFd<'_>) -> Result<(), Refusal> {
        let refused = |pid| move |reason| Refusal { pid, reason };
        let peer = getsockopt(&connection, PeerCredentials).map_err(|_| refused(0)(UNKNOWN))?;
        self.check(connection, peer).map_err(refused(peer.pid()))
    }

    fn check(&self, connection: BorrowedFd<'_>, peer: UnixCredentials) -> Result<(), &'static str> {
        if !self.users.contains(&peer.uid()) {
            return Err(OTHER_USER);
        }
        if let Some(judged) = JUDGE.with(|judge| judge.get().map(|judge| judge(connection))) {
            return judged;
        }
        // A process that has a number here is in our pid namespace or below it, one of the same level in ours.
        if peer.pid() == 0 {
            return Err(OTHER_PIDS);
        }
        let process = match getsockopt(&connection, PeerPidfd) {
            Ok(process) => process,
            Err(Errno::ENOPROTOOPT) => by_number(connection, peer)?,
            Err(_) => return Err(ENDED),
        };
        self.check_namespaces(process.as_fd())
    }

    /// Whether a process runs in our namespaces, so that it passes for one of the host's; yes where nothing is known.
    pub fn take_for_own(&self, process: BorrowedFd<'_>) -> bool {
        !matches!(self.check_namespaces(process), Err(OTHER_PIDS | OTHER_USERS))
    }

    fn check_namespaces(&self, process: BorrowedFd<'_>) -> Result<(), &'static str> {
        let numbers = living(process)?;
        if numbers.len() != self.level {
            return Err(OTHER_PIDS);
        }
        let directory = Path::new("/proc").join(numbers[0].to_string());
        let found = UserNamespace::of(&directory);
        // What was read was its own only if the number is still.
        living(process)?;
        match found {
            Ok(found) if self.user_namespace.accepts(&found) => Ok(()),
            Ok(_) => Err(OTHER_USERS),
            Err(_) => Err(UNSEEN),
        }
    }
}

/// A user namespace, by what can be read of it.
#[derive(Debug, Clone)]
struct UserNamespace {
    /// uid_map and gid_map. Every process can read them; two namespaces have the same ones where all ids are mapped to
    /// themselves, which takes root outside.
    maps: [Vec<u8>; 2],
    /// Its name, which only processes can read that could trace.
    name: Option<OsString>,
}

impl UserNamespace {
    /// That of a process, by its directory in /proc.
    fn of(directory: &Path) -> io::Result<UserNamespace> {
        let map = |name| read(&directory.join(name), LONGEST_MAP);
        let name = readlink(&directory.join("ns/user"));
        let name = match name {
            Ok(name) => Some(name),
            Err(Errno::EACCES | Errno::EPERM) => None,
            Err(errno) => return Err(errno.into()),
        };
        Ok(UserNamespace { maps: [map("uid_map")?, map("gid_map")?], name })
    }

    /// A supervisor in a user namespace is called by processes of it, and of the host's own.
    fn accepts(&self, other: &UserNamespace) -> bool {
        self.is(other) || (other.has_all_ids() && !self.has_all_ids())
    }

    /// Whether it is the host's, in which all ids are: no map of another has as many that root outside did not write.
    fn has_all_ids(&self) -> bool {
        let has_all = |map: &Vec<u8>| {
            let text = String::from_utf8_lossy(map);
            let words: Vec<&str> = text.split_whitespace().collect();
            matches!(words[..], ["0", _, "4294967295"])
        };
        self.maps.iter().all(has_all)
    }

    fn is(&self, other: &UserNamespace) -> bool {
        let named = self.name.as_ref().zip(other.name.as_ref());
        self.maps == other.maps && named.is_none_or(|(one, other)| one == other)
    }
}

/// The process behind a number, where the kernel gives no pidfd of a peer (before Linux 6.5): the number may be
/// another process's by now, so it counts only while that process holds the other end of the connection. To see that
/// takes the right to trace it; without that right, or the kernel's unix_diag, nothing is certain.
///
/// Root's processes cannot be traced by a user's supervisor. There the user of the connection, which is certain, and
/// the namespace of the number decide: what is left is a process of root's in a container without a user namespace
/// that ends while a number wraps around.
fn by_number(connection: BorrowedFd<'_>, peer: UnixCredentials) -> Result<OwnedFd, &'static str> {
    let process = pidfd::open(peer.pid()).map_err(|_| ENDED)?;
    let number = living(process.as_fd())?[0];
    let mut open = match read_dir(format!("/proc/{number}/fd")) {
        Ok(open) => open,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && peer.uid() == 0 => {
            return Ok(process);
        }
        Err(_) => return Err(UNCERTAIN),
    };
    let inode = fstat(connection).map_err(|_| UNCERTAIN)?.st_ino;
    let other_end = unix_diag::peer(inode).map_err(|_| UNCERTAIN)?;
    let name = OsString::from(format!("socket:[{other_end}]"));
    match open.any(|entry| entry.is_ok_and(|entry| readlink(&entry.path()).is_ok_and(|is| is == name))) {
        true => Ok(process),
        false => Err(UNCERTAIN),
    }
}

/// The numbers of a process that has not been reaped.
fn living(process: BorrowedFd<'_>) -> Result<Vec<i32>, &'static str> {
    match numbers(process) {
        Ok(numbers) if numbers.first().is_some_and(|number| *number > 0) => Ok(numbers),
        _ => Err(ENDED),
    }
}

/// The numbers of a process in the pid namespace of /proc and in those below that it is in (proc_pid_fdinfo(5)); -1
/// for one that has been reaped, 0 for one that has no number there.
fn numbers(process: BorrowedFd<'_>) -> io::Result<Vec<i32>> {
    let info = read(Path::new(&format!("/proc/self/fdinfo/{}", process.as_raw_fd())), LONGEST_INFO)?;
    let info = String::from_utf8(info).map_err(io::Error::other)?;
    let line = info.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let line = line.ok_or(io::ErrorKind::InvalidData)?;
    line.split_whitespace().map(|number| number.parse().map_err(io::Error::other)).collect()
}

/// The text of a file of /proc, which is not a terminal's whoever put it there.
fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let mut text = Vec::new();
    File::from(open(path, flags, Mode::empty())?).take(most).read_to_end(&mut text)?;
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
        // The shell runs, in its namespaces, once it has written.
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        child
    }

    /// As a kernel gives them of a process of ours.
    fn credentials(pid: u32) -> UnixCredentials {
        let (uid, gid) = (geteuid().as_raw(), nix::unistd::getegid().as_raw());
        libc::ucred { pid: pid.cast_signed(), uid, gid }.into()
    }

    #[test]
    fn own_connection_is_accepted_on_every_kernel() {
        let peers = Peers::of_this_process().unwrap();
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(peers.judge(one.as_fd()), Ok(()));
        by_number(one.as_fd(), credentials(std::process::id())).unwrap();
    }

    #[test]
    fn number_of_a_process_without_the_other_end_is_refused() {
        let mut child = waiting(&["/bin/sh", "-c", "echo; read x"]);
        let (one, other) = UnixStream::pair().unwrap();
        let by = |connection: &UnixStream, pid: u32| by_number(connection.as_fd(), credentials(pid));
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
        assert_eq!(living(process.as_fd()).unwrap(), [child.id().cast_signed()]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(living(process.as_fd()).unwrap_err(), "has ended");
    }

    #[test]
    fn user_namespaces_differ_by_what_everybody_can_read() {
        let own = UserNamespace::of(Path::new("/proc/self")).unwrap();
        assert!(own.name.is_some() && own.is(&own));
        let nameless = |namespace: &UserNamespace| UserNamespace { name: None, ..namespace.clone() };
        let mut child = waiting(&["/usr/bin/unshare", "--user", "/bin/sh", "-c", "echo; read x"]);
        let other = UserNamespace::of(Path::new(&format!("/proc/{}", child.id()))).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!own.accepts(&other) && !own.accepts(&nameless(&other)) && own.accepts(&nameless(&own)));
        // That of the host is above the other one.
        assert!(!own.has_all_ids() || other.accepts(&own));
        // The same maps, and another namespace.
        assert!(!own.accepts(&UserNamespace { name: other.name, ..own.clone() }));
    }
}
