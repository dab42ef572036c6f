//! The executable file of this process: checks whether it can be written through /proc/PID/exe, and executes it again
//! from a read-only copy or mount.

use super::{Errno, SysResult, call, call_fd, file, mount};
use nix::sys::statvfs::{FsFlags, fstatvfs};
use std::ffi::{CStr, CString, c_char};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

const SELF: &CStr = c"/proc/self/exe";

/// How often the kernel is asked to seal a copy whose pages something else in the system holds: each time it waits for
/// them itself, about 150 ms.
const SEAL_ATTEMPTS: u32 = 20;

/// Whether the executable is on a read-only mount or is a sealed memory file.
///
/// # Errors
/// Those of open(2) without /proc.
pub fn is_read_only() -> SysResult<bool> {
    let exe = file::open(file::cwd(), SELF, libc::O_RDONLY, 0, file::Resolve::Ordinary)?;
    if fstatvfs(&exe)?.flags().contains(FsFlags::ST_RDONLY) {
        return Ok(true);
    }
    let seals = call!(libc::SYS_fcntl, exe.as_raw_fd(), libc::F_GET_SEALS);
    Ok(seals.is_ok_and(|seals| seals & i64::from(libc::F_SEAL_WRITE) != 0))
}

/// Whether this user could change the executable: the user owns it or may write it.
///
/// # Errors
/// Those of stat(2) without /proc.
pub fn is_writable_by_us() -> SysResult<bool> {
    use nix::unistd::{AccessFlags, faccessat};
    let owner = nix::sys::stat::stat(SELF)?.st_uid;
    let writable = faccessat(file::cwd(), SELF, AccessFlags::W_OK, nix::fcntl::AtFlags::AT_EACCESS);
    // A running executable is busy (ETXTBSY). For its owner that is the only obstacle to writing it.
    Ok(owner == nix::unistd::geteuid().as_raw() || matches!(writable, Ok(()) | Err(Errno::ETXTBSY)))
}

/// The executable in a detached read-only mount that no other process has.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN; EINVAL for a file that is in no mount of this namespace.
pub fn read_only_view() -> SysResult<OwnedFd> {
    const CLONE: libc::c_uint = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
    let view = call_fd!(libc::SYS_open_tree, libc::AT_FDCWD, SELF.as_ptr(), CLONE)?;
    mount::change(view.as_fd(), libc::MOUNT_ATTR_RDONLY, 0, libc::MS_PRIVATE, false)?;
    Ok(view)
}

/// A sealed copy of the executable in a memory file.
///
/// # Errors
/// Those of memfd_create(2), sendfile(2) and fcntl(2).
pub fn sealed_copy() -> SysResult<OwnedFd> {
    const MFD_EXEC: libc::c_uint = 0x10;
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // Kernels before 6.3 do not support the flag, and execute the memory file without it.
    let copy = match call_fd!(libc::SYS_memfd_create, c"saggar".as_ptr(), flags | MFD_EXEC) {
        Err(Errno::EINVAL) => call_fd!(libc::SYS_memfd_create, c"saggar".as_ptr(), flags)?,
        other => other?,
    };
    let exe = file::open(file::cwd(), SELF, libc::O_RDONLY, 0, file::Resolve::Ordinary)?;
    let nowhere = std::ptr::null_mut::<libc::off_t>();
    while call!(libc::SYS_sendfile, copy.as_raw_fd(), exe.as_raw_fd(), nowhere, 1usize << 30)? > 0 {}
    seal(&copy)?;
    Ok(copy)
}

/// Nobody has mapped the file, and still the kernel may say EBUSY: reclaim, compaction or DAMON hold a page of it for a
/// moment, which looks like one that a device is to write to (mm/memfd.c, memfd_wait_for_pins).
fn seal(file: &OwnedFd) -> SysResult<()> {
    let seals = libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
    let mut left = SEAL_ATTEMPTS;
    loop {
        left -= 1;
        match call!(libc::SYS_fcntl, file.as_raw_fd(), libc::F_ADD_SEALS, seals) {
            Err(Errno::EBUSY) if left > 0 => {}
            done => return done.map(drop),
        }
    }
}

/// Executes an open file (execveat(2), AT_EMPTY_PATH). Returns only on failure.
pub fn execute(file: &OwnedFd, argv: &[CString], env: &[CString]) -> Errno {
    let list = |strings: &[CString]| -> Vec<*const c_char> {
        strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (argv, env) = (list(argv), list(env));
    let _ = call!(
        libc::SYS_execveat,
        file.as_raw_fd(),
        c"".as_ptr(),
        argv.as_ptr(),
        env.as_ptr(),
        libc::AT_EMPTY_PATH
    );
    Errno::last()
}
