//! Making and joining namespaces (namespaces(7)).

use super::{SysResult, call};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Makes namespaces, CLONE_NEW* flags, for this process alone.
///
/// # Errors
/// The error number of unshare(2).
pub fn unshare(flags: libc::c_int) -> SysResult<()> {
    call!(libc::SYS_unshare, flags)?;
    Ok(())
}

/// Joins a namespace; `kind` is its CLONE_NEW* flag.
///
/// # Errors
/// The error number of setns(2).
pub fn join(namespace: BorrowedFd<'_>, kind: libc::c_int) -> SysResult<()> {
    call!(libc::SYS_setns, namespace.as_raw_fd(), kind)?;
    Ok(())
}
