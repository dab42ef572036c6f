//! Sets the mode of a directory for a program whose mode has the set-group-ID bit. pid 1's filter cannot see whether the
//! call names a file, which must not get that bit, or a directory, which only passes its group on; it notifies
//! (`seccomp/asking.json`), and a worker performs the call:
//!
//! ```text
//! chmod(2) ── notification ──> supervisor ──> worker: opens the caller's root and memory, drops all rights,
//!                                             reads the path, opens the directory, sets the mode, responds
//! ```
//! The kernel never performs the call, so nothing is gained by a change of the path in the caller's memory. The worker
//! has the ids of the programs when it reads that path, resolves it in the caller's root, and so reaches what the caller
//! can reach itself, on the caller's mounts. On an error the call fails with it, as without a sandbox.

use super::request::{read_request, start_worker};
use super::{DIRECTORY_MODE, WorkerContext};
use crate::error::Result;
use crate::stage::agent::launcher::Launcher;
use crate::sys::confine::{self, RetainedRights};
use crate::sys::file::{self, Resolve};
use crate::sys::seccomp::listener::{self, SyscallNotification};
use crate::sys::{Errno, SysResult, process};
use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Most processor time of a worker, in seconds: a path may have many links.
const CPU_SECONDS: u64 = 10;
/// The permission bits, with set-user-ID, set-group-ID and sticky.
const MODE_BITS: u32 = 0o7777;
/// The directory of the descriptors of a process in its own words (proc_pid_fd(5)). In the worker's it is another one.
const OWN_DESCRIPTORS: [&[u8]; 2] = [b"/proc/self/fd/", b"/dev/fd/"];

/// Starts a worker for a forwarded notification, or for the next one of `listener`. Returns a pipe that is closed when
/// the worker is done.
///
/// # Errors
/// As [`start_worker`].
pub(in crate::supervise) fn start_call(
    launcher: &Launcher,
    forwarded: Option<&SyscallNotification>,
    listener: BorrowedFd<'_>,
) -> Result<File> {
    start_worker(launcher, DIRECTORY_MODE, &forwarded, Some(listener))
}

/// The file that a call names.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    /// An open file of the caller, by its number.
    Descriptor(i32),
    /// A path.
    Path {
        /// The descriptor of the directory that a relative path starts at; AT_FDCWD is the caller's working directory.
        base: i32,
        /// Address of the path in the caller's memory.
        address: u64,
        /// The AT_* flags of fchmodat2(2).
        flags: i32,
    },
}

/// A call, with its arguments decoded.
#[derive(Debug, PartialEq, Eq)]
struct ModeCall {
    target: Target,
    mode: u32,
}

impl ModeCall {
    /// Decodes chmod(2) and its relatives.
    ///
    /// # Errors
    /// ENOSYS for another call, EINVAL for unknown flags, EPERM for a mode with the set-user-ID bit.
    fn decode(number: i32, args: &[u64; 6]) -> SysResult<Self> {
        // The kernel takes an int, and an umode_t of 16 bits, of each register.
        #[expect(clippy::cast_possible_truncation, reason = "as the kernel does")]
        let (int, mode) = (|at: usize| args[at] as i32, |at: usize| args[at] as u32 & MODE_BITS);
        let path = |base, address, flags| Target::Path { base, address, flags };
        let (target, mode) = match i64::from(number) {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chmod => (path(libc::AT_FDCWD, args[0], 0), mode(1)),
            libc::SYS_fchmod => (Target::Descriptor(int(0)), mode(1)),
            libc::SYS_fchmodat => (path(int(0), args[1], 0), mode(2)),
            libc::SYS_fchmodat2 => (path(int(0), args[1], int(3)), mode(2)),
            _ => return Err(Errno::ENOSYS),
        };
        match target {
            Target::Path { flags, .. } if flags & !(libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH) != 0 => {
                Err(Errno::EINVAL)
            }
            _ if mode & libc::S_ISUID != 0 => Err(Errno::EPERM),
            target => Ok(ModeCall { target, mode }),
        }
    }
}

impl WorkerContext<'_> {
    /// In the worker: serves one request.
    pub(super) fn serve_directory_mode(&self, request: Option<OwnedFd>, listener: Option<OwnedFd>) {
        let Some((request, listener)) = request.zip(listener) else { return };
        let listener = listener.as_fd();
        let asked = match read_request::<Option<SyscallNotification>>(request) {
            Ok(Some(forwarded)) => forwarded,
            // A caller that was killed meanwhile needs no response.
            _ => match listener::receive(listener) {
                Ok(Some(next)) => next,
                _ => return,
            },
        };
        let _ = match self.set_directory_mode(listener, &asked) {
            Ok(()) => listener::respond_success(listener, &asked),
            Err(errno) => listener::respond_error(listener, &asked, errno),
        };
    }

    fn set_directory_mode(&self, listener: BorrowedFd<'_>, asked: &SyscallNotification) -> SysResult<()> {
        let thread = u64::try_from(asked.thread).map_err(|_| Errno::ESRCH)?;
        let thread = self.find_descendant(thread).ok_or(Errno::ESRCH)?;
        // A program finds out by this call what the kernel has.
        if i64::from(asked.number) == libc::SYS_fchmodat2 && !file::has_fchmodat2() {
            return Err(Errno::ENOSYS);
        }
        let call = ModeCall::decode(asked.number, &asked.args)?;
        let caller = CallerFiles::open(thread, &call.target)?;
        // What was opened is the caller's, since its thread id was not reused until here.
        if !listener::is_valid(listener, asked) {
            return Err(Errno::ESRCH);
        }
        process::lower_limit(libc::RLIMIT_CPU.cast_signed(), CPU_SECONDS, CPU_SECONDS)?;
        confine::drop_rights(RetainedRights { ids: self.program_ids, ..RetainedRights::default() })
            .map_err(|(_, errno)| errno)?;
        let target = caller.open_target(&call.target)?;
        if nix::sys::stat::fstat(&target)?.st_mode & libc::S_IFMT != libc::S_IFDIR {
            return Err(Errno::EPERM);
        }
        file::set_mode(target.as_fd(), call.mode)
    }
}

/// What a caller's path means: opened with the rights of the launcher, and used without them.
#[derive(Debug)]
struct CallerFiles {
    root: OwnedFd,
    /// The bytes of the path, up to its end or more; empty without a path.
    path: Vec<u8>,
    /// The open file that the call names, or the directory that its path starts at.
    base: Option<OwnedFd>,
}

impl CallerFiles {
    /// Opens the files of a thread. Of its path only the number in `/proc/self/fd/NUMBER` is looked at, which is an open
    /// file of the caller: the C library names one so where a system call is missing.
    fn open(thread: i32, target: &Target) -> SysResult<Self> {
        let open = |what: &str, flags| {
            let path = file::c_path(format!("/proc/{thread}/{what}"))?;
            file::open(file::cwd(), &path, flags, 0, Resolve::Ordinary)
        };
        let named = |number: i32| open(&format!("fd/{number}"), libc::O_PATH);
        let descriptor = |number: i32| {
            named(number).map_err(|errno| if errno == Errno::ENOENT { Errno::EBADF } else { errno })
        };
        let root = open("root", libc::O_PATH | libc::O_DIRECTORY)?;
        let (base, address) = match *target {
            Target::Descriptor(number) => {
                return Ok(CallerFiles { root, path: Vec::new(), base: Some(descriptor(number)?) });
            }
            Target::Path { base, address, .. } => (base, address),
        };
        let path = read_path(&File::from(open("mem", libc::O_RDONLY)?), address)?;
        let base = match own_descriptor(&path) {
            Some(number) => named(number)?,
            None if path.starts_with(b"/") => return Ok(CallerFiles { root, path, base: None }),
            None if base == libc::AT_FDCWD => open("cwd", libc::O_PATH | libc::O_DIRECTORY)?,
            None => descriptor(base)?,
        };
        Ok(CallerFiles { root, path, base: Some(base) })
    }

    /// Opens the file that the call names.
    fn open_target(self, target: &Target) -> SysResult<OwnedFd> {
        let Target::Path { flags, .. } = *target else { return self.base.ok_or(Errno::EBADF) };
        let follow = if flags & libc::AT_SYMLINK_NOFOLLOW == 0 { 0 } else { libc::O_NOFOLLOW };
        let open =
            |at: &OwnedFd, path: &CStr, how| file::open(at.as_fd(), path, libc::O_PATH | follow, 0, how);
        let Some(base) = self.base else { return open(&self.root, &c_path(&self.path)?, Resolve::InRoot) };
        if own_descriptor(&self.path).is_some() || self.path.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
            return Ok(base);
        }
        if self.path.is_empty() {
            return Err(Errno::ENOENT);
        }
        match open(&base, &c_path(&self.path)?, Resolve::Beneath) {
            // It leads out of the directory, or over a link that starts at the root.
            Err(Errno::EXDEV) => {
                let whole = path_of(base.as_fd())?.as_path().join(OsStr::from_bytes(&self.path));
                open(&self.root, &c_path(whole.as_os_str().as_bytes())?, Resolve::InRoot)
            }
            opened => opened,
        }
    }
}

fn c_path(path: &[u8]) -> SysResult<CString> {
    file::c_path(OsStr::from_bytes(path))
}

/// The path of an open file, in the mount namespace that it is in.
fn path_of(open: BorrowedFd<'_>) -> SysResult<PathBuf> {
    nix::fcntl::readlink(file::proc_fd_path(open).as_c_str()).map(Into::into)
}

/// The path at this address of a process's memory, without its final zero.
///
/// # Errors
/// EFAULT if it cannot be read; ENAMETOOLONG.
fn read_path(memory: &File, address: u64) -> SysResult<Vec<u8>> {
    let mut path = vec![0; libc::PATH_MAX.unsigned_abs() as usize];
    // Memory behind the end of the path may not be mapped.
    let length = memory.read_at(&mut path, address).map_err(|_| Errno::EFAULT)?;
    let bytes = path.get(..length).unwrap_or_default();
    match bytes.iter().position(|byte| *byte == 0) {
        Some(end) => path.truncate(end),
        None if length == path.len() => return Err(Errno::ENAMETOOLONG),
        None => return Err(Errno::EFAULT),
    }
    Ok(path)
}

/// The number of an open file of the caller, if the path names one by the directory of its descriptors.
fn own_descriptor(path: &[u8]) -> Option<i32> {
    let digits = OWN_DESCRIPTORS.iter().find_map(|directory| path.strip_prefix(*directory))?;
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 0x7f00_0000_1000;
    /// AT_FDCWD in a register.
    const CWD: u64 = 0xffff_ff9c;

    fn decode(number: i64, args: [u64; 4]) -> SysResult<ModeCall> {
        let [first, second, third, fourth] = args;
        ModeCall::decode(i32::try_from(number).unwrap(), &[first, second, third, fourth, 7, 7])
    }

    #[test]
    fn each_call_has_its_arguments_where_its_manual_says() {
        let path = |base, flags| Target::Path { base, address: AT, flags };
        let cwd = libc::AT_FDCWD;
        for (number, args, target) in [
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_chmod, [AT, 0o2775, 9, 9], path(cwd, 0)),
            (libc::SYS_fchmod, [5, 0o2775, 9, 9], Target::Descriptor(5)),
            (libc::SYS_fchmodat, [CWD, AT, 0o2775, 9], path(cwd, 0)),
            // The high half of a register is no part of an int, nor of a mode.
            (libc::SYS_fchmodat, [0xffff_ffff_ffff_ff9c, AT, 0xffff_0000_0000_2775_u64, 9], path(cwd, 0)),
            (libc::SYS_fchmodat2, [3, AT, 0o42775, 0], path(3, 0)),
            (libc::SYS_fchmodat2, [3, AT, 0o2775, 0x1100], path(3, 0x1100)),
        ] {
            let decoded = decode(number, args).unwrap();
            assert_eq!(decoded.target, target);
            assert!(decoded.mode <= 0o7777, "{decoded:?}");
        }
        assert_eq!(decode(libc::SYS_fchmod, [5, 0o2775, 0, 0]).unwrap().mode, 0o2775);
    }

    #[test]
    fn what_the_filter_does_not_ask_about_is_refused() {
        assert_eq!(decode(libc::SYS_fchmod, [5, 0o6755, 0, 0]), Err(Errno::EPERM));
        assert_eq!(decode(libc::SYS_fchmodat2, [3, AT, 0o2775, 1]), Err(Errno::EINVAL));
        assert_eq!(decode(libc::SYS_openat, [3, AT, 0o2775, 0]), Err(Errno::ENOSYS));
    }

    #[test]
    fn a_path_ends_at_its_zero() {
        let memory = File::open("/proc/self/mem").unwrap();
        let read = |bytes: &[u8]| read_path(&memory, bytes.as_ptr() as u64);
        assert_eq!(read(b"a/b\0c\0"), Ok(b"a/b".to_vec()));
        assert_eq!(read(b"\0"), Ok(Vec::new()));
        assert_eq!(read(&[b'a'; 5000]), Err(Errno::ENAMETOOLONG));
        assert_eq!(read_path(&memory, 8), Err(Errno::EFAULT));
        assert_eq!(read_path(&memory, u64::MAX), Err(Errno::EFAULT));
    }

    #[test]
    fn a_descriptor_has_two_directories_and_a_number() {
        assert_eq!(own_descriptor(b"/proc/self/fd/17"), Some(17));
        assert_eq!(own_descriptor(b"/dev/fd/0"), Some(0));
        for other in [
            &b"/proc/self/fd/"[..],
            b"/proc/self/fd/+1",
            b"/proc/self/fd/-1",
            b"/proc/self/fd/1/a",
            b"/proc/1/fd/1",
            b"proc/self/fd/1",
            b"/proc/self/fd/99999999999",
            b"",
        ] {
            assert_eq!(own_descriptor(other), None, "{}", String::from_utf8_lossy(other));
        }
    }
}
