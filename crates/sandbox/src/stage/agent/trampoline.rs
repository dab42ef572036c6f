//! The program that executes the sandbox's programs (`trampoline/main.rs`), as a file of the sandbox.
//!
//! The kernel looks up what is executed for the process that asks, so that `/proc/self/exe`, as a program, at the end of
//! a link or in a `#!` line, is the file of that process. Were that saggar's, it would be one on a mount of the host:
//! what runs inside could execute it, and change its mode where its user owns it. So each child of pid 1 is this file
//! first. It has no name, lies on the private root, which is read-only before anything runs, and may be executed but not
//! read: the kernel lets nobody inside look into a process of it (ptrace(2), "dumpable").

use saggar_sys::SysResult;
use saggar_sys::file::{self, Resolve};
use saggar_sys::landlock::{self, EXECUTE, READ_FILE};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What `trampoline/build.rs` made.
const IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trampoline"));

/// The name that it has while it is written.
const NAME: &CStr = c"trampoline";

/// Puts it into the new root, which is empty yet; the file, to be executed only.
///
/// # Errors
/// Those of open(2), write(2) and unlink(2).
pub(super) fn install(root: BorrowedFd<'_>) -> SysResult<OwnedFd> {
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_NOFOLLOW;
    let writer = file::open(root, NAME, flags, 0o111, Resolve::BeneathNoLinks)?;
    file::write_all(writer.as_fd(), IMAGE)?;
    // Nothing is executed that is open for writing.
    drop(writer);
    let file = file::open(root, NAME, libc::O_PATH | libc::O_NOFOLLOW, 0, Resolve::BeneathNoLinks)?;
    file::unlink(root, NAME)?;
    Ok(file)
}

/// Grants it to a landlock domain that handles `access`; execve(2) opens what it executes for reading too.
///
/// # Errors
/// Those of landlock_add_rule(2).
pub(super) fn allow(ruleset: BorrowedFd<'_>, file: BorrowedFd<'_>, access: u64) -> SysResult<()> {
    match access & (EXECUTE | READ_FILE) {
        0 => Ok(()),
        access => landlock::allow_beneath(ruleset, file, access),
    }
}
