//! The watcher: a second process that removes what a killed supervisor could not (DECISIONS 11). It is made
//! before a sandbox leaves anything on the host, and goes when the launcher ([`super::agent::launcher`]) takes its
//! charges over: from then on no process with privileges shares the supervisor's memory.
//!
//! It runs on the host with the supervisor's rights, in a session of its own, holds one descriptor, the read
//! end of the supervisor's life pipe, and shares the supervisor's memory: a fork would copy its page tables
//! at the start and then fault on every page that it writes, which costs a sixth of a whole start. So it runs
//! on a stack of its own and touches nothing but that stack: no heap, no lock, no static. While the
//! supervisor lives, calls that may well fail go by rustix, which leaves errno alone: that is shared too.
//! When the supervisor is dead, the memory is the watcher's alone.
//!
//! The supervisor writes down each thing before it makes it. [`DONE`] says that it has removed all of them
//! itself, or that the launcher will; an end of the stream without it is the supervisor's death, and the watcher
//! removes them.

use crate::stage::call;
use nix::fcntl::OFlag;
use rustix::fs::{AtFlags, Mode, OFlags};
use saggar_sys::clone::{self, ChildStack};
use saggar_sys::file::{self, Resolve};
use saggar_sys::{SysResult, check, pidfd, process, quota};
use std::ffi::{CStr, c_int, c_void};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The record that dismisses the watcher.
const DONE: u8 = b'!';
/// What is added to the path of a sandbox's cgroup for the leaf into which the supervisor stepped aside for it
/// (cgroup/agent/aside.rs).
pub(crate) const SUPERVISOR_LEAF_SUFFIX: &str = ".supervisor";
/// The lock in a runtime directory.
const LOCK: &CStr = c"lock";
/// The most that may be put in a watcher's charge, in bytes of records.
const RECORDS_LEN: usize = 16 << 10;
/// Its name, as `ps` shows it.
pub const NAME: &CStr = c"saggar:watch";
/// The stack of the watcher: the charges, a path, and what the calls need.
const STACK: usize = 128 << 10;
/// The longest path.
const MAX_PATH: usize = 4096;
/// How often a cgroup is looked at until its dying processes have left it, and how long between two looks: a
/// process that was killed takes some tenths of a millisecond.
const SHORT_RETRIES: (usize, i64) = (40, 50_000);
const LONG_RETRIES: (usize, i64) = (5000, 1_000_000);

/// The supervisor's side of the watcher.
#[derive(Debug)]
pub(crate) struct Watcher {
    life: File,
    pidfd: OwnedFd,
    /// Lives as long as the watcher.
    _stack: ChildStack,
}

/// A watcher that is about to end.
#[derive(Debug)]
pub(crate) struct ReleasedWatcher(Watcher);

impl Drop for ReleasedWatcher {
    fn drop(&mut self) {
        let _ = pidfd::reap(self.0.pidfd.as_fd());
    }
}

/// One thing that is to be removed when the supervisor dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CleanupItem<'a> {
    /// A cgroup of ours and those below it, with the processes in them.
    Cgroup(&'a CStr),
    /// A cgroup of ours in a hierarchy of version 1, when its processes have left: the end of pid 1 kills them.
    V1Cgroup(&'a CStr),
    /// A directory of ours with files in it, one level deep.
    Directory(&'a CStr),
    /// What a session has for as long as a sandbox runs: the limit of its project (0: it has none), and the place
    /// for the changes of an overlay, where there were none (session/changes.rs).
    Session {
        /// The directory of the session.
        path: &'a CStr,
        /// The number of the project.
        project: u32,
    },
    /// A file elsewhere, as long as it is still this very one.
    File {
        /// Its path.
        path: &'a CStr,
        /// st_dev and st_ino.
        id: file::FileId,
    },
}

impl<'a> CleanupItem<'a> {
    /// A record: a letter, two numbers, the path with its NUL byte.
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, numbers, path) = match self {
            CleanupItem::Cgroup(path) => (b'c', (0, 0), path),
            CleanupItem::V1Cgroup(path) => (b'v', (0, 0), path),
            CleanupItem::Directory(path) => (b'd', (0, 0), path),
            CleanupItem::Session { path, project } => (b's', (u64::from(*project), 0), path),
            CleanupItem::File { path, id: is } => (b'f', (is.device, is.inode), path),
        };
        let mut record = vec![kind];
        record.extend(numbers.0.to_ne_bytes());
        record.extend(numbers.1.to_ne_bytes());
        record.extend(path.to_bytes_with_nul());
        record
    }

    /// The first record of `bytes`, and what follows it.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (kind, rest) = bytes.split_first()?;
        let (device, rest) = rest.split_first_chunk()?;
        let (inode, rest) = rest.split_first_chunk()?;
        let path = CStr::from_bytes_until_nul(rest).ok()?;
        let rest = rest.get(path.to_bytes_with_nul().len()..)?;
        let is = file::FileId { device: u64::from_ne_bytes(*device), inode: u64::from_ne_bytes(*inode) };
        let charge = match kind {
            b'c' => CleanupItem::Cgroup(path),
            b'v' => CleanupItem::V1Cgroup(path),
            b'd' => CleanupItem::Directory(path),
            b's' => CleanupItem::Session { path, project: u32::try_from(is.device).ok()? },
            b'f' => CleanupItem::File { path, id: is },
            _ => return None,
        };
        Some((charge, rest))
    }

    /// Removes it, without a heap. What is gone already is fine.
    pub fn remove(&self) {
        match self {
            CleanupItem::Cgroup(path) => remove_cgroup(path),
            CleanupItem::V1Cgroup(path) => {
                let _ = retry_while_busy(|| unlink(file::cwd(), path, AtFlags::REMOVEDIR));
            }
            CleanupItem::Directory(path) => remove_directory(path),
            CleanupItem::Session { path, project } => {
                if let Ok(session) = open_directory(path) {
                    if *project != 0 {
                        let _ = quota::limit_project(session.as_fd(), *project, 0, 0);
                    }
                    remove_upper_directory(session.as_fd());
                    // Only when it has nothing that lasts.
                    let _ = unlink(file::cwd(), path, AtFlags::REMOVEDIR);
                }
            }
            CleanupItem::File { path, id: is } => {
                let flags = libc::O_PATH | libc::O_NOFOLLOW;
                let found = file::open(file::cwd(), path, flags, 0, Resolve::Ordinary);
                if found.and_then(|found| file::identity(found.as_fd())) == Ok(*is) {
                    let _ = unlink(file::cwd(), path, AtFlags::empty());
                }
            }
        }
    }
}

impl Watcher {
    /// Starts the watcher.
    ///
    /// # Errors
    /// The error number of pipe2(2), mmap(2) or clone(2).
    pub(crate) fn start() -> SysResult<Self> {
        let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        let stack = ChildStack::new(STACK)?;
        let life = std::ptr::without_provenance_mut(usize::try_from(read.as_raw_fd()).unwrap_or(0));
        // SAFETY: `watch` keeps to its own stack, as the head of this file says; the stack lives until the
        // watcher has been reaped, or this process has ended and with it every owner of the memory.
        let (_, pidfd) = unsafe { clone::share_memory(0, &stack, run_watcher, life)? };
        Ok(Watcher { life: File::from(write), pidfd, _stack: stack })
    }

    /// Puts something in the watcher's charge; call it before the thing is made.
    pub(crate) fn register(&mut self, charge: &CleanupItem<'_>) {
        // A watcher that is gone is the business of the next start, which sweeps.
        let _ = self.life.write_all(&charge.encode());
    }

    /// Lets the watcher go: everything is removed, or others are in charge of it. It may still be there until what is
    /// returned is dropped, which waits for its end.
    pub(crate) fn release(mut self) -> ReleasedWatcher {
        let _ = self.life.write_all(&[DONE]);
        let _ = pidfd::signal(self.pidfd.as_fd(), libc::SIGKILL);
        ReleasedWatcher(self)
    }

    /// Lets it go, and waits for its end.
    pub(crate) fn dismiss(self) {
        drop(self.release());
    }
}

/// The watcher's whole life. `life` is the number of the pipe.
extern "C" fn run_watcher(life: *mut c_void) -> c_int {
    let _ = process::block_signals();
    let _ = nix::unistd::setsid();
    let _ = process::set_name(NAME);
    // Its short sleeps are meant to be short: the default slack doubles them.
    let _ = process::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0);
    let life = i32::try_from(life.addr()).unwrap_or(0);
    // The descriptors are a copy of the supervisor's: it must keep no pipe of the caller open.
    // SAFETY: nothing of the others is used in this process.
    let _ = unsafe { file::close_others(0, std::iter::once(life)) };
    let mut charges = [0u8; RECORDS_LEN];
    let mut len = 0;
    while len < RECORDS_LEN {
        let room = &mut charges[len..];
        // SAFETY: read(2) writes at most the length of this part of our own stack.
        let got = check(unsafe { libc::read(life, room.as_mut_ptr().cast(), room.len()) } as libc::c_long);
        match got.map(usize::try_from) {
            Ok(Ok(count)) if count > 0 => len += count,
            _ => break,
        }
        if is_done(&charges[..len]) {
            process::exit_now(0)
        }
    }
    for_each_in_order(&charges[..len], |charge| charge.remove());
    process::exit_now(0)
}

/// The directories last: the record in them is all that a sweep has to go by when the watcher dies as well.
pub(super) fn for_each_in_order<'a>(records: &'a [u8], mut with: impl FnMut(CleanupItem<'a>)) {
    for directories in [false, true] {
        let mut rest = records;
        while let Some((charge, after)) = CleanupItem::decode(rest) {
            if matches!(charge, CleanupItem::Directory(_)) == directories {
                with(charge);
            }
            rest = after;
        }
    }
}

/// Whether the last record says that nothing is left.
fn is_done(mut records: &[u8]) -> bool {
    while let Some((_, rest)) = CleanupItem::decode(records) {
        records = rest;
    }
    *records == [DONE]
}

/// unlinkat(2), which may well fail here: by a crate that makes the call itself, since what libc writes to errno
/// would be the supervisor's errno, as long as that lives.
fn unlink(directory: BorrowedFd<'_>, name: &CStr, flags: AtFlags) -> rustix::io::Result<()> {
    rustix::fs::unlinkat(directory, name, flags)
}

/// Opens a directory, to read it.
fn open_directory(path: &CStr) -> SysResult<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    file::open(file::cwd(), path, flags, 0, Resolve::Ordinary)
}

/// The lock goes last: a directory with a lock that no process holds is a dead sandbox's, without one it may be new.
fn remove_directory(path: &CStr) {
    if let Ok(directory) = open_directory(path) {
        each_entry(directory.as_fd(), |name, _| {
            if name != LOCK {
                let _ = unlink(directory.as_fd(), name, AtFlags::empty());
            }
        });
        let _ = unlink(directory.as_fd(), LOCK, AtFlags::empty());
    }
    let _ = unlink(file::cwd(), path, AtFlags::REMOVEDIR);
}

/// Lets its owner into a directory: the one that was opened, whatever has its name by then.
fn allow_owner(session: BorrowedFd<'_>, path: &CStr) {
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    let Ok(opened) = file::open(session, path, flags, 0, Resolve::BeneathNoLinks) else { return };
    // fchmod(2) takes no O_PATH descriptor.
    let mut magic = [0; 32];
    if write!(&mut magic[..], "/proc/self/fd/{}", opened.as_raw_fd()).is_ok()
        && let Ok(magic) = CStr::from_bytes_until_nul(&magic)
    {
        let _ = rustix::fs::chmod(magic, Mode::RWXU);
    }
}

/// Removes `upper` in the directory of a session, unless there are changes in it.
fn remove_upper_directory(session: BorrowedFd<'_>) {
    // A kernel that has no changes to take leaves at most odds and ends in its own directory, and no directories.
    if matches!(unlink(session, c"upper/changes", AtFlags::REMOVEDIR), Err(errno) if errno != rustix::io::Errno::NOENT)
    {
        return;
    }
    allow_owner(session, c"upper/work/work");
    let flags = libc::O_RDONLY | libc::O_DIRECTORY;
    if let Ok(work) = file::open(session, c"upper/work/work", flags, 0, Resolve::BeneathNoLinks) {
        each_entry(work.as_fd(), |name, _| {
            let _ = unlink(work.as_fd(), name, AtFlags::empty());
        });
    }
    for name in [c"upper/work/work", c"upper/work", c"upper"] {
        let _ = unlink(session, name, AtFlags::REMOVEDIR);
    }
}

/// Kills what is in it, and removes it with the cgroups below it when the killed have left. A supervisor that had
/// stepped aside for it goes back.
fn remove_cgroup(path: &CStr) {
    // As a rule all processes have left, and this is all there is to do.
    let _ = with_suffix(path, b"/main", |main| unlink(file::cwd(), main, AtFlags::REMOVEDIR));
    if unlink(file::cwd(), path, AtFlags::REMOVEDIR).is_err() {
        kill_and_remove_cgroup(path);
    }
    let _ = restore_supervisor_cgroup(path);
}

/// Does something with a path that has `suffix` behind `path`.
fn with_suffix<T>(
    path: &CStr,
    suffix: &[u8],
    with: impl FnOnce(&CStr) -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    let mut longer = [0u8; MAX_PATH];
    let path = path.to_bytes();
    let end = path.len() + suffix.len();
    if end >= MAX_PATH {
        return Err(rustix::io::Errno::NAMETOOLONG);
    }
    longer[..path.len()].copy_from_slice(path);
    longer[path.len()..end].copy_from_slice(suffix);
    with(CStr::from_bytes_until_nul(&longer).map_err(|_| rustix::io::Errno::INVAL)?)
}

/// Undoes what cgroup/agent/aside.rs did: without controllers for its children our own cgroup can have processes
/// again.
fn restore_supervisor_cgroup(path: &CStr) -> rustix::io::Result<()> {
    with_suffix(path, SUPERVISOR_LEAF_SUFFIX.as_bytes(), restore_from_leaf)
}

fn restore_from_leaf(leaf: &CStr) -> rustix::io::Result<()> {
    let directory = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inside = rustix::fs::open(leaf, directory | OFlags::RDONLY, Mode::empty())?;
    let own = rustix::fs::openat(&inside, c"..", directory | OFlags::RDONLY, Mode::empty())?;
    let control = |name: &CStr, how| rustix::fs::openat(&own, name, how | OFlags::CLOEXEC, Mode::empty());
    let (mut on, mut off) = ([0u8; 256], [0u8; 512]);
    let switches = control(c"cgroup.subtree_control", OFlags::RDWR)?;
    let count = rustix::io::read(&switches, &mut on)?;
    let length = disable_controllers(on.get(..count).unwrap_or_default(), &mut off);
    let _ = rustix::io::write(&switches, off.get(..length).unwrap_or_default());
    let (procs, mut pids) = (control(c"cgroup.procs", OFlags::WRONLY)?, [0u8; 256]);
    let left = rustix::fs::openat(&inside, c"cgroup.procs", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let count = rustix::io::read(&left, &mut pids)?;
    for pid in
        pids.get(..count).unwrap_or_default().split(|byte| *byte == b'\n').filter(|pid| !pid.is_empty())
    {
        let _ = rustix::io::write(&procs, pid);
    }
    // A killed supervisor has closed its files before it leaves its cgroup, and cannot be moved in between.
    retry_while_busy(|| rustix::fs::unlinkat(rustix::fs::CWD, leaf, AtFlags::REMOVEDIR))
}

/// Tries to remove a cgroup until it is done, or fails for another reason than its processes: those that were killed
/// leave in their own time, and no event tells of the last.
fn retry_while_busy(mut attempt: impl FnMut() -> rustix::io::Result<()>) -> rustix::io::Result<()> {
    for nanoseconds in
        [SHORT_RETRIES, LONG_RETRIES].into_iter().flat_map(|(looks, each)| std::iter::repeat_n(each, looks))
    {
        match attempt() {
            Err(rustix::io::Errno::BUSY) => {
                let pause = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
                let none = std::ptr::null_mut::<libc::timespec>();
                let _ = call!(libc::SYS_nanosleep, &raw const pause, none);
            }
            done => return done,
        }
    }
    Err(rustix::io::Errno::BUSY)
}

/// The words of cgroup.subtree_control, each with what switches it off, in `off`; how many bytes.
fn disable_controllers(on: &[u8], off: &mut [u8; 512]) -> usize {
    let mut length = 0;
    for word in on.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
        let end = length + word.len() + 2;
        let Some([space, sign, rest @ ..]) = off.get_mut(length..end) else { break };
        (*space, *sign) = (b' ', b'-');
        rest.copy_from_slice(word);
        length = end;
    }
    length
}

fn kill_and_remove_cgroup(path: &CStr) {
    let Ok(directory) = open_directory(path) else { return };
    if let Ok(kill) = file::open(directory.as_fd(), c"cgroup.kill", libc::O_WRONLY, 0, Resolve::Ordinary) {
        let _ = file::write_all(kill.as_fd(), b"1");
    }
    let _ = retry_while_busy(|| {
        each_entry(directory.as_fd(), |name, kind| {
            // The rest are control files, and many.
            if kind == libc::DT_DIR {
                let _ = unlink(directory.as_fd(), name, AtFlags::REMOVEDIR);
            }
        });
        unlink(file::cwd(), path, AtFlags::REMOVEDIR)
    });
}

/// Tells the name and the DT_* of every entry of an open directory but `.` and `..` (getdents64(2)), from its
/// beginning.
fn each_entry(directory: BorrowedFd<'_>, mut with: impl FnMut(&CStr, u8)) {
    const KIND: usize = 18;
    const NAME: usize = 19;
    let mut buffer = [0u8; MAX_PATH];
    let _ = call!(libc::SYS_lseek, directory.as_raw_fd(), 0, libc::SEEK_SET);
    while let Ok(got @ 1..) =
        call!(libc::SYS_getdents64, directory.as_raw_fd(), buffer.as_mut_ptr(), buffer.len())
    {
        let mut rest = &buffer[..usize::try_from(got).unwrap_or(0).min(MAX_PATH)];
        // struct linux_dirent64: inode (8), offset (8), length (2), type (1), name.
        while let Some(&[low, high]) = rest.get(16..18) {
            let (entry, after) = rest.split_at(rest.len().min(usize::from(u16::from_ne_bytes([low, high]))));
            if let (Some(&kind), Some(Ok(name))) =
                (entry.get(KIND), entry.get(NAME..).map(CStr::from_bytes_until_nul))
                && name != c"."
                && name != c".."
            {
                with(name, kind);
            }
            if entry.is_empty() {
                return;
            }
            rest = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn charges_survive_the_pipe() {
        let is = file::FileId { device: 1, inode: u64::MAX };
        let charges = [
            CleanupItem::Cgroup(c"/a b/!\n\xff"),
            CleanupItem::V1Cgroup(c"/v"),
            CleanupItem::Directory(c"/run/x"),
            CleanupItem::Session { path: c"/q", project: u32::MAX },
            CleanupItem::File { path: c"/f", id: is },
        ];
        let bytes: Vec<u8> = charges.iter().flat_map(CleanupItem::encode).collect();
        assert!(!is_done(&bytes));
        let mut rest = bytes.as_slice();
        for charge in charges {
            let (decoded, after) = CleanupItem::decode(rest).unwrap();
            assert_eq!(decoded, charge);
            rest = after;
        }
        assert!(rest.is_empty());
        assert!(is_done(&[bytes.as_slice(), &[DONE]].concat()));
    }

    #[test]
    fn a_directory_goes_after_all_that_its_record_names() {
        let is = file::FileId { device: 1, inode: 2 };
        let (directory, cgroup) = (CleanupItem::Directory(c"/run/x"), CleanupItem::Cgroup(c"/c"));
        let (socket, session) =
            (CleanupItem::File { path: c"/s", id: is }, CleanupItem::Session { path: c"/q", project: 1 });
        let records: Vec<u8> =
            [directory, cgroup, socket, session].iter().flat_map(CleanupItem::encode).collect();
        let mut order = Vec::new();
        for_each_in_order(&records, |charge| order.push(charge));
        assert_eq!(order, [cgroup, socket, session, directory]);
    }

    #[test]
    fn every_controller_that_is_on_is_switched_off() {
        let mut off = [0u8; 512];
        let length = disable_controllers(b"cpuset cpu io memory pids\n", &mut off);
        assert_eq!(&off[..length], b" -cpuset -cpu -io -memory -pids");
        assert_eq!(disable_controllers(b"\n", &mut off), 0);
    }

    #[test]
    fn a_directory_goes_with_its_files_and_a_file_only_when_it_is_the_one() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| {
            std::ffi::CString::new(scratch.path().join(name).into_os_string().into_encoded_bytes()).unwrap()
        };
        std::fs::create_dir(scratch.path().join("d")).unwrap();
        for n in 0..300 {
            std::fs::write(scratch.path().join(format!("d/file-{n}")), "").unwrap();
        }
        CleanupItem::Directory(&path("d")).remove();
        assert!(!scratch.path().join("d").exists());

        std::fs::write(scratch.path().join("f"), "").unwrap();
        let meta = std::fs::metadata(scratch.path().join("f")).unwrap();
        let other = file::FileId { device: meta.dev(), inode: meta.ino() + 1 };
        CleanupItem::File { path: &path("f"), id: other }.remove();
        assert!(scratch.path().join("f").exists());
        CleanupItem::File { path: &path("f"), id: file::FileId { inode: meta.ino(), ..other } }.remove();
        assert!(!scratch.path().join("f").exists());
    }
}
