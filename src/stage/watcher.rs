//! The watcher: a second process that removes what a killed supervisor could not (DECISIONS 11). It is made
//! before a sandbox leaves anything on the host.
//!
//! It runs on the host with the supervisor's rights, in a session of its own, holds one descriptor, the read
//! end of the supervisor's life pipe, and shares the supervisor's memory: a fork would copy its page tables
//! at the start and then fault on every page that it writes, which costs a sixth of a whole start. So it runs
//! on a stack of its own and touches nothing but that stack: no heap, no lock, no static. While the
//! supervisor lives it makes one call, read(2), and that one does not fail, so that not even errno is shared.
//! When the supervisor is dead, the memory is the watcher's alone.
//!
//! The supervisor writes down each thing before it makes it. [`DONE`] says that it has removed all of them
//! itself; [`END`] that the watcher is to remove them, now; an end of the stream without either is the
//! supervisor's death, and means the same.

use crate::sys::clone::{self, Stack};
use crate::sys::file::{self, Resolve};
use crate::sys::{Errno, SysResult, call, check, pidfd, process};
use nix::fcntl::OFlag;
use nix::sys::wait::WaitStatus;
use std::ffi::{CStr, c_int, c_void};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The record that dismisses the watcher.
const DONE: u8 = b'!';
/// The record that ends the watch: what is in charge is to be removed.
const END: u8 = b'.';
/// The most that may be put in a watcher's charge, in bytes of records.
const CHARGES: usize = 16 << 10;
/// The stack of the watcher: the charges, a path, and what the calls need.
const STACK: usize = 128 << 10;
/// The longest path.
const PATH: usize = 4096;
/// How often a cgroup is looked at until its dying processes have left it, and how long between two looks: a
/// process that is about to end takes some tenths of a millisecond.
const SOON: (usize, i64) = (40, 50_000);
const LATER: (usize, i64) = (5000, 1_000_000);

/// The supervisor's side of the watcher.
#[derive(Debug)]
pub struct Watcher {
    life: File,
    pidfd: OwnedFd,
    /// Lives as long as the watcher.
    _stack: Stack,
}

/// One thing that is to be removed when the supervisor dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge<'a> {
    /// A cgroup of ours and those below it, with the processes in them.
    Cgroup(&'a CStr),
    /// A directory of ours with files in it, one level deep.
    Directory(&'a CStr),
    /// A file elsewhere, as long as it is still this very one.
    File {
        /// Its path.
        path: &'a CStr,
        /// st_dev and st_ino.
        is: file::FileId,
    },
}

impl<'a> Charge<'a> {
    /// A record: a letter, two numbers, the path with its NUL byte.
    fn encode(&self) -> Vec<u8> {
        let (kind, is, path) = match self {
            Charge::Cgroup(path) => (b'c', None, path),
            Charge::Directory(path) => (b'd', None, path),
            Charge::File { path, is } => (b'f', Some(is), path),
        };
        let is = is.map_or((0, 0), |is| (is.device, is.inode));
        let mut record = vec![kind];
        record.extend(is.0.to_ne_bytes());
        record.extend(is.1.to_ne_bytes());
        record.extend(path.to_bytes_with_nul());
        record
    }

    /// The first record of `bytes`, and what follows it.
    fn decode(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (kind, rest) = bytes.split_first()?;
        let (device, rest) = rest.split_first_chunk()?;
        let (inode, rest) = rest.split_first_chunk()?;
        let path = CStr::from_bytes_until_nul(rest).ok()?;
        let rest = rest.get(path.to_bytes_with_nul().len()..)?;
        let is = file::FileId { device: u64::from_ne_bytes(*device), inode: u64::from_ne_bytes(*inode) };
        let charge = match kind {
            b'c' => Charge::Cgroup(path),
            b'd' => Charge::Directory(path),
            b'f' => Charge::File { path, is },
            _ => return None,
        };
        Some((charge, rest))
    }

    /// Removes it, without a heap. What is gone already is fine.
    pub fn remove(&self) {
        match self {
            Charge::Cgroup(path) => remove_cgroup(path),
            Charge::Directory(path) => remove_directory(path),
            Charge::File { path, is } => {
                let flags = libc::O_PATH | libc::O_NOFOLLOW;
                let found = file::open(file::cwd(), path, flags, 0, Resolve::Ordinary);
                if found.and_then(|found| file::identity(found.as_fd())) == Ok(*is) {
                    let _ = unlink(file::cwd(), path, 0);
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
    pub fn start() -> SysResult<Self> {
        let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        let stack = Stack::new(STACK)?;
        let life = std::ptr::without_provenance_mut(usize::try_from(read.as_raw_fd()).unwrap_or(0));
        // SAFETY: `watch` keeps to its own stack, as the head of this file says; the stack lives until the
        // watcher has been reaped, or this process has ended and with it every owner of the memory.
        let (_, pidfd) = unsafe { clone::share_memory(0, &stack, watch, life)? };
        Ok(Watcher { life: File::from(write), pidfd, _stack: stack })
    }

    /// Puts something in the watcher's charge; call it before the thing is made.
    pub fn charge(&mut self, charge: &Charge<'_>) {
        // A watcher that is gone is the business of the next start, which sweeps.
        let _ = self.life.write_all(&charge.encode());
    }

    /// Lets the watcher go: everything is removed.
    pub fn dismiss(mut self) {
        let _ = self.life.write_all(&[DONE]);
        let _ = pidfd::signal(self.pidfd.as_fd(), libc::SIGKILL);
        let _ = pidfd::reap(self.pidfd.as_fd());
    }

    /// Has the watcher remove what is in its charge, while this process goes on; the processes in a cgroup of
    /// it may still be about to end. [`Ending::wait`] waits for it.
    ///
    /// # Errors
    /// The watcher is gone, and the charge is the supervisor's.
    pub fn end(mut self) -> Result<Ending, std::io::Error> {
        self.life.write_all(&[END])?;
        Ok(Ending(self))
    }
}

/// A watcher that removes what was in its charge, and ends.
#[derive(Debug)]
pub struct Ending(Watcher);

impl Ending {
    /// Waits until it has ended; whether it did all of it.
    pub fn wait(self) -> bool {
        matches!(pidfd::reap(self.0.pidfd.as_fd()), Ok(WaitStatus::Exited(_, 0)))
    }
}

/// The watcher's whole life. `life` is the number of the pipe.
extern "C" fn watch(life: *mut c_void) -> c_int {
    let _ = process::block_signals();
    let _ = nix::unistd::setsid();
    let _ = process::set_name(c"saggar:watch");
    // Its short sleeps are meant to be short: the default slack doubles them.
    let _ = process::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0);
    let life = i32::try_from(life.addr()).unwrap_or(0);
    // The descriptors are a copy of the supervisor's: it must keep no pipe of the caller open.
    for (first, last) in [(0, life - 1), (life + 1, i32::MAX)] {
        // SAFETY: nothing of them is used in this process.
        let _ = unsafe { file::close_range(first, last) };
    }
    let mut charges = [0u8; CHARGES];
    let mut len = 0;
    while len < CHARGES {
        let room = &mut charges[len..];
        // SAFETY: read(2) writes at most the length of this part of our own stack.
        let got = check(unsafe { libc::read(life, room.as_mut_ptr().cast(), room.len()) } as libc::c_long);
        match got.map(usize::try_from) {
            Ok(Ok(count)) if count > 0 => len += count,
            _ => break,
        }
        match said(&charges[..len]) {
            Some(DONE) => process::exit_now(0),
            Some(_) => break,
            None => {}
        }
    }
    let mut rest = &charges[..len];
    while let Some((charge, after)) = Charge::decode(rest) {
        charge.remove();
        rest = after;
    }
    process::exit_now(0)
}

/// [`DONE`] or [`END`], when the last record is that.
fn said(mut records: &[u8]) -> Option<u8> {
    while let Some((_, rest)) = Charge::decode(records) {
        records = rest;
    }
    match records {
        [last @ (DONE | END)] => Some(*last),
        _ => None,
    }
}

fn unlink(directory: BorrowedFd<'_>, name: &CStr, flags: i32) -> SysResult<()> {
    call!(libc::SYS_unlinkat, directory.as_raw_fd(), name.as_ptr(), flags)?;
    Ok(())
}

/// Opens a directory, to read it.
fn open_directory(path: &CStr) -> SysResult<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    file::open(file::cwd(), path, flags, 0, Resolve::Ordinary)
}

fn remove_directory(path: &CStr) {
    if let Ok(directory) = open_directory(path) {
        each_entry(directory.as_fd(), |name| {
            let _ = unlink(directory.as_fd(), name, 0);
        });
    }
    let _ = unlink(file::cwd(), path, libc::AT_REMOVEDIR);
}

/// Kills what is in it, and removes it with the cgroups below it when the killed have left.
fn remove_cgroup(path: &CStr) {
    let Ok(directory) = open_directory(path) else { return };
    if let Ok(kill) = file::open(directory.as_fd(), c"cgroup.kill", libc::O_WRONLY, 0, Resolve::Ordinary) {
        let _ = file::write_all(kill.as_fd(), b"1");
    }
    for nanoseconds in [SOON, LATER].into_iter().flat_map(|(looks, each)| std::iter::repeat_n(each, looks)) {
        each_entry(directory.as_fd(), |name| {
            let _ = unlink(directory.as_fd(), name, libc::AT_REMOVEDIR);
        });
        match unlink(file::cwd(), path, libc::AT_REMOVEDIR) {
            // Killed processes leave in their own time; no event tells of the last.
            Err(Errno::EBUSY) => {
                let pause = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
                let none = std::ptr::null_mut::<libc::timespec>();
                let _ = call!(libc::SYS_nanosleep, &raw const pause, none);
            }
            _ => return,
        }
    }
}

/// Names every entry of an open directory but `.` and `..` (getdents64(2)), from its beginning.
fn each_entry(directory: BorrowedFd<'_>, mut with: impl FnMut(&CStr)) {
    const NAME: usize = 19;
    let mut buffer = [0u8; PATH];
    let _ = call!(libc::SYS_lseek, directory.as_raw_fd(), 0, libc::SEEK_SET);
    while let Ok(got @ 1..) =
        call!(libc::SYS_getdents64, directory.as_raw_fd(), buffer.as_mut_ptr(), buffer.len())
    {
        let mut rest = &buffer[..usize::try_from(got).unwrap_or(0).min(PATH)];
        // struct linux_dirent64: inode (8), offset (8), length (2), type (1), name.
        while let Some(&[low, high]) = rest.get(16..18) {
            let (entry, after) = rest.split_at(rest.len().min(usize::from(u16::from_ne_bytes([low, high]))));
            if let Some(Ok(name)) = entry.get(NAME..).map(CStr::from_bytes_until_nul)
                && name != c"."
                && name != c".."
            {
                with(name);
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
        let charges =
            [Charge::Cgroup(c"/a b/!\n\xff"), Charge::Directory(c"/run/x"), Charge::File { path: c"/f", is }];
        let bytes: Vec<u8> = charges.iter().flat_map(Charge::encode).collect();
        assert_eq!(said(&bytes), None);
        let mut rest = bytes.as_slice();
        for charge in charges {
            let (decoded, after) = Charge::decode(rest).unwrap();
            assert_eq!(decoded, charge);
            rest = after;
        }
        assert!(rest.is_empty());
        for word in [DONE, END] {
            let said_last = [bytes.as_slice(), &[word]].concat();
            assert_eq!(said(&said_last), Some(word));
        }
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
        Charge::Directory(&path("d")).remove();
        assert!(!scratch.path().join("d").exists());

        std::fs::write(scratch.path().join("f"), "").unwrap();
        let meta = std::fs::metadata(scratch.path().join("f")).unwrap();
        let other = file::FileId { device: meta.dev(), inode: meta.ino() + 1 };
        Charge::File { path: &path("f"), is: other }.remove();
        assert!(scratch.path().join("f").exists());
        Charge::File { path: &path("f"), is: file::FileId { inode: meta.ino(), ..other } }.remove();
        assert!(!scratch.path().join("f").exists());
    }
}
