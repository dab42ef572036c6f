//! File operations by descriptor: openat2(2) and related calls. No path is resolved twice.

use super::{Errno, SysResult, call, call_fd};
use crate::error::{Error, Result};
use nix::sys::statfs::{FsType, fstatfs};
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

/// How [`open`] may resolve a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolve {
    /// With the rules of open(2).
    Ordinary,
    /// Never leave the directory, follow no symbolic link at all (openat2(2): RESOLVE_BENEATH,
    /// RESOLVE_NO_SYMLINKS).
    BeneathNoLinks,
    /// Never leave the directory; symbolic links that stay in it are followed (openat2(2): RESOLVE_BENEATH,
    /// RESOLVE_NO_MAGICLINKS).
    Beneath,
    /// The directory is the root: links are followed inside it (RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS).
    InRoot,
}

/// Maximum number of attempts for a path that was not resolved because of concurrent renames or mounts (EAGAIN).
const TRIES: usize = 1000;

/// Opens `path` below `dir`, always close-on-exec. `flags` are those of open(2); `mode` applies with O_CREAT.
///
/// # Errors
/// Those of openat2(2); ELOOP for a refused link, EXDEV for a path that leaves the directory.
pub fn open(dir: BorrowedFd<'_>, path: &CStr, flags: i32, mode: u32, how: Resolve) -> SysResult<OwnedFd> {
    let resolve = match how {
        Resolve::Ordinary => 0,
        Resolve::BeneathNoLinks => libc::RESOLVE_BENEATH | libc::RESOLVE_NO_SYMLINKS,
        Resolve::Beneath => libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS,
        Resolve::InRoot => libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS,
    };
    // SAFETY: all zeros is a valid open_how (openat2(2)).
    let mut args: libc::open_how = unsafe { std::mem::zeroed() };
    args.flags = u64::try_from(flags | libc::O_CLOEXEC).map_err(|_| Errno::EINVAL)?;
    args.mode = if flags & libc::O_CREAT != 0 { u64::from(mode) } else { 0 };
    args.resolve = resolve;
    let size = size_of::<libc::open_how>();
    let mut tries = TRIES;
    loop {
        // EAGAIN: during a rename or mount anywhere on the machine, the kernel cannot guarantee that a ".." in the path
        // has not left the directory.
        match call_fd!(libc::SYS_openat2, dir.as_raw_fd(), path.as_ptr(), &raw const args, size) {
            Err(Errno::EAGAIN) if resolve != 0 && tries > 0 => tries -= 1,
            opened => return opened,
        }
    }
}

/// A path or a name as the system calls take it: with a NUL byte at its end.
///
/// # Errors
/// EINVAL for a path with a NUL byte.
pub fn c_path(path: impl AsRef<OsStr>) -> SysResult<CString> {
    CString::new(path.as_ref().as_bytes()).map_err(|_| Errno::EINVAL)
}

/// The working directory, as the `dir` argument of the functions of this module.
pub fn cwd() -> BorrowedFd<'static> {
    // SAFETY: AT_FDCWD is not a descriptor but a name that is always valid for the *at calls.
    unsafe { BorrowedFd::borrow_raw(libc::AT_FDCWD) }
}

/// Borrows a descriptor by its number, for calls that only inspect it. It may be closed.
pub fn borrow_number(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: the number is never -1, which a borrowed descriptor may not be; a number that is not open gives EBADF.
    unsafe { BorrowedFd::borrow_raw(fd.max(0)) }
}

/// Sets the mode of an open file, also of one opened with O_PATH, which fchmod(2) does not accept. The link in /proc
/// leads to exactly that file.
///
/// # Errors
/// The error number of chmod(2).
pub fn set_mode(file: BorrowedFd<'_>, mode: u32) -> SysResult<()> {
    let mode = rustix::fs::Mode::from_raw_mode(mode & 0o7777);
    rustix::fs::chmod(proc_fd_path(file).as_c_str(), mode).map_err(|e| Errno::from_raw(e.raw_os_error()))
}

/// Whether this kernel has fchmodat2(2) (Linux 6.6).
pub fn has_fchmodat2() -> bool {
    // An empty path names nothing without AT_EMPTY_PATH.
    call!(libc::SYS_fchmodat2, libc::AT_FDCWD, c"".as_ptr(), 0, 0) != Err(Errno::ENOSYS)
}

/// Opens a file again with other flags, for example one that was opened with O_PATH.
///
/// # Errors
/// The error number of open(2).
pub fn reopen(file: BorrowedFd<'_>, flags: i32) -> SysResult<OwnedFd> {
    open(cwd(), &proc_fd_path(file), flags, 0, Resolve::Ordinary)
}

/// The path in /proc/self/fd of an open file.
pub fn proc_fd_path(file: BorrowedFd<'_>) -> CString {
    CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or_default()
}

/// mkdirat(2). An existing entry is left unchanged and is not an error.
///
/// # Errors
/// Those of mkdirat(2) but EEXIST.
pub fn mkdir(dir: BorrowedFd<'_>, path: &CStr, mode: u32) -> SysResult<()> {
    match call!(libc::SYS_mkdirat, dir.as_raw_fd(), path.as_ptr(), mode) {
        Ok(_) | Err(Errno::EEXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// symlinkat(2).
///
/// # Errors
/// Those of symlinkat(2).
pub fn symlink(target: &CStr, dir: BorrowedFd<'_>, path: &CStr) -> SysResult<()> {
    call!(libc::SYS_symlinkat, target.as_ptr(), dir.as_raw_fd(), path.as_ptr())?;
    Ok(())
}

/// fsetxattr(2).
///
/// # Errors
/// Those of fsetxattr(2): EOPNOTSUPP if the file system does not support attributes of this kind.
pub fn set_xattr(fd: BorrowedFd<'_>, name: &CStr, value: &[u8]) -> SysResult<()> {
    call!(libc::SYS_fsetxattr, fd.as_raw_fd(), name.as_ptr(), value.as_ptr(), value.len(), 0)?;
    Ok(())
}

/// Writes all of `bytes`.
///
/// # Errors
/// Those of write(2); EIO if the kernel writes zero bytes.
pub fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> SysResult<()> {
    while !bytes.is_empty() {
        match nix::unistd::write(fd, bytes) {
            Ok(0) => return Err(Errno::EIO),
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Starts writing the dirty pages of a file to disk, without waiting (sync_file_range(2)). Errors are ignored, because
/// the kernel writes the pages later in any case.
pub fn start_writeback(fd: BorrowedFd<'_>) {
    let flags = libc::SYNC_FILE_RANGE_WRITE;
    let _ = call!(libc::SYS_sync_file_range, fd.as_raw_fd(), 0_i64, 0_i64, flags);
}

/// mknodat(2) in `dir`, with the full mode: type and permission bits.
///
/// # Errors
/// Those of mknodat(2).
pub fn make_node(dir: BorrowedFd<'_>, name: &CStr, mode: u32, device: u64) -> SysResult<()> {
    call!(libc::SYS_mknodat, dir.as_raw_fd(), name.as_ptr(), mode, device)?;
    Ok(())
}

/// unlinkat(2) of a file.
///
/// # Errors
/// Those of unlinkat(2).
pub fn unlink(dir: BorrowedFd<'_>, name: &CStr) -> SysResult<()> {
    call!(libc::SYS_unlinkat, dir.as_raw_fd(), name.as_ptr(), 0)?;
    Ok(())
}

/// Reads the target of the symbolic link `name` in `dir` into `buffer`. Returns its length in bytes.
///
/// # Errors
/// EINVAL if the file is not a symbolic link.
pub fn read_link(dir: BorrowedFd<'_>, name: &CStr, buffer: &mut [u8]) -> SysResult<usize> {
    let len = call!(libc::SYS_readlinkat, dir.as_raw_fd(), name.as_ptr(), buffer.as_mut_ptr(), buffer.len())?;
    usize::try_from(len).map_err(|_| Errno::EIO)
}

/// Sets the owner of an open file, also of one opened with O_PATH (fchownat(2), AT_EMPTY_PATH).
///
/// # Errors
/// Those of fchownat(2).
pub fn set_owner(file: BorrowedFd<'_>, uid: u32, gid: u32) -> SysResult<()> {
    call!(libc::SYS_fchownat, file.as_raw_fd(), c"".as_ptr(), uid, gid, libc::AT_EMPTY_PATH)?;
    Ok(())
}

/// Reads entries of an open directory in the layout of getdents64(2). Returns the number of bytes, 0 at the end.
///
/// # Errors
/// Those of getdents64(2).
pub fn read_entries(dir: BorrowedFd<'_>, buffer: &mut [u8]) -> SysResult<usize> {
    let len = call!(libc::SYS_getdents64, dir.as_raw_fd(), buffer.as_mut_ptr(), buffer.len())?;
    usize::try_from(len).map_err(|_| Errno::EIO)
}

/// Device and inode of an open file: its identity, independent of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    /// st_dev
    pub device: u64,
    /// st_ino
    pub inode: u64,
}

/// The identity of an open file.
///
/// # Errors
/// Those of fstat(2).
pub fn identity(fd: BorrowedFd<'_>) -> SysResult<FileId> {
    let stat = nix::sys::stat::fstat(fd)?;
    Ok(FileId { device: stat.st_dev, inode: stat.st_ino })
}

/// Makes a descriptor non-blocking.
///
/// # Errors
/// [`crate::error::Code::System`].
pub fn set_nonblocking(fd: BorrowedFd<'_>) -> Result<()> {
    let flags = nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_GETFL)
        .map_err(|e| Error::system(format_args!("read the flags of descriptor {}", fd.as_raw_fd()), e))?;
    let flags = nix::fcntl::OFlag::from_bits_truncate(flags) | nix::fcntl::OFlag::O_NONBLOCK;
    nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_SETFL(flags))
        .map(drop)
        .map_err(|e| Error::system("make a descriptor non-blocking", e))
}

/// Whether two descriptors of this process are duplicates of each other, with one offset and one set of flags (kcmp(2),
/// KCMP_FILE). False on a kernel without CONFIG_KCMP.
pub fn is_same_description(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> bool {
    const KCMP_FILE: libc::c_int = 0;
    let pid = std::process::id();
    call!(libc::SYS_kcmp, pid, pid, KCMP_FILE, one.as_raw_fd(), other.as_raw_fd()) == Ok(0)
}

/// A close-on-exec duplicate of a descriptor that a caller gave by its number.
///
/// # Errors
/// EBADF if it is not open.
pub fn duplicate(fd: RawFd) -> SysResult<OwnedFd> {
    call_fd!(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, 10)
}

/// Closes every descriptor from `first` to `last` (close_range(2), Linux 5.9).
///
/// # Errors
/// Those of close_range(2).
///
/// # Safety
/// No owned descriptor of that range may be used or dropped afterwards.
pub unsafe fn close_range(first: RawFd, last: RawFd) -> SysResult<()> {
    let number = |fd: RawFd| libc::c_uint::try_from(fd).map_err(|_| Errno::EBADF);
    call!(libc::SYS_close_range, number(first)?, number(last)?, 0)?;
    Ok(())
}

/// Closes every descriptor from `first` up.
///
/// # Errors
/// Those of close_range(2).
///
/// # Safety
/// As [`close_range`].
pub unsafe fn close_from(first: RawFd) -> SysResult<()> {
    // SAFETY: the caller's promise is the same.
    unsafe { close_range(first, RawFd::MAX) }
}

/// Marks every descriptor from `first` up close-on-exec (close_range(2), Linux 5.11).
///
/// # Errors
/// Those of close_range(2).
pub fn cloexec_from(first: RawFd) -> SysResult<()> {
    let first = libc::c_uint::try_from(first).map_err(|_| Errno::EBADF)?;
    call!(libc::SYS_close_range, first, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC)?;
    Ok(())
}

/// Closes every descriptor from `first` on but those of `kept` (close_range(2), Linux 5.9).
///
/// # Errors
/// Those of close_range(2).
///
/// # Safety
/// Owners of the other descriptors may neither use nor close them afterwards.
pub unsafe fn close_others(mut first: RawFd, kept: impl Iterator<Item = RawFd> + Clone) -> SysResult<()> {
    while let Some(next) = kept.clone().filter(|number| *number >= first).min() {
        if next > first {
            call!(libc::SYS_close_range, first, next - 1, 0)?;
        }
        first = next + 1;
    }
    call!(libc::SYS_close_range, first, libc::c_uint::MAX, 0)?;
    Ok(())
}

/// Opens /dev/null as each standard stream that is closed.
///
/// # Errors
/// Those of open(2).
pub fn fill_standard_streams() -> SysResult<()> {
    use std::os::fd::IntoRawFd;
    loop {
        let null = open(cwd(), c"/dev/null", libc::O_RDWR, 0, Resolve::Ordinary)?;
        if null.as_raw_fd() > 2 {
            return Ok(());
        }
        // The descriptor now belongs to the standard stream.
        let _ = null.into_raw_fd();
    }
}

/// A sealed, close-on-exec memory file that holds `bytes` (memfd_create(2)). No process can change its content.
///
/// # Errors
/// Those of memfd_create(2), write(2) and fcntl(2).
pub fn sealed_memfd(name: &CStr, bytes: &[u8]) -> SysResult<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    let fd = call_fd!(libc::SYS_memfd_create, name.as_ptr(), flags)?;
    write_all(std::os::fd::AsFd::as_fd(&fd), bytes)?;
    let seals = libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
    call!(libc::SYS_fcntl, fd.as_raw_fd(), libc::F_ADD_SEALS, seals)?;
    Ok(fd)
}

/// The mode of a pipe that a program with other ids may open by name.
pub const PIPE_FOR_ALL: libc::mode_t = 0o666;

/// A close-on-exec pipe for a program: its reading and its writing end. Programs with any id may open it by name
/// (`/dev/stdout`); it has no other name, and only those may follow the links of `/proc/PID/fd` who may trace the process
/// (proc(5)).
///
/// # Errors
/// EMFILE or ENFILE without descriptors.
pub fn pipe_for_all() -> SysResult<(OwnedFd, OwnedFd)> {
    pipe_with_mode(PIPE_FOR_ALL)
}

/// A close-on-exec pipe with this mode, which says for what it can be opened by name.
///
/// # Errors
/// EMFILE or ENFILE without descriptors.
pub fn pipe_with_mode(mode: libc::mode_t) -> SysResult<(OwnedFd, OwnedFd)> {
    let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    nix::sys::stat::fchmod(&write, nix::sys::stat::Mode::from_bits_truncate(mode))?;
    Ok((read, write))
}

/// Whether a FIFO is one without a path (pipe(7)).
///
/// # Errors
/// Those of fstatfs(2).
pub fn is_nameless_pipe(fd: BorrowedFd<'_>) -> SysResult<bool> {
    const PIPEFS_MAGIC: FsType = FsType(0x5049_5045);
    Ok(fstatfs(fd)?.filesystem_type() == PIPEFS_MAGIC)
}

/// Number of bytes that can be read from a pipe or a stream socket (ioctl_pipe(2), unix(7)).
pub fn bytes_available(fd: BorrowedFd<'_>) -> usize {
    let mut count: libc::c_int = 0;
    let asked = call!(libc::SYS_ioctl, fd.as_raw_fd(), libc::FIONREAD, &raw mut count);
    asked.ok().and_then(|_| usize::try_from(count).ok()).unwrap_or(0)
}
