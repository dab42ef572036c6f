//! Creates and joins namespaces (namespaces(7)).

use super::{Errno, SysResult, call, call_fd};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Creates namespaces (CLONE_NEW* flags) and moves this process into them.
///
/// # Errors
/// The error number of unshare(2).
pub fn unshare(flags: libc::c_int) -> SysResult<()> {
    call!(libc::SYS_unshare, flags)?;
    Ok(())
}

/// Joins a namespace. `kind` is its CLONE_NEW* flag; with a pidfd it can hold several flags (Linux 5.8).
///
/// # Errors
/// The error number of setns(2).
pub fn join(namespace: BorrowedFd<'_>, kind: libc::c_int) -> SysResult<()> {
    call!(libc::SYS_setns, namespace.as_raw_fd(), kind)?;
    Ok(())
}

/// The user namespace that owns a namespace (ioctl_ns(2), Linux 4.9).
///
/// # Errors
/// EPERM if it is not a descendant of the caller's user namespace.
pub fn owner(namespace: BorrowedFd<'_>) -> SysResult<OwnedFd> {
    const NS_GET_USERNS: libc::Ioctl = 0xb701;
    call_fd!(libc::SYS_ioctl, namespace.as_raw_fd(), NS_GET_USERNS)
}

/// The kind of the namespace behind a file of /proc/PID/ns, as its CLONE_NEW* flag (ioctl_ns(2), Linux 4.11).
///
/// # Errors
/// ENOTTY for any other file.
pub fn namespace_kind(file: BorrowedFd<'_>) -> SysResult<u64> {
    const NS_GET_NSTYPE: libc::c_ulong = 0xb703;
    let kind = call!(libc::SYS_ioctl, file.as_raw_fd(), NS_GET_NSTYPE)?;
    u64::try_from(kind).map_err(|_| Errno::EINVAL)
}
