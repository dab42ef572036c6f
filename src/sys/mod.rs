//! The only raw system calls of saggar, as thin safe wrappers.
//!
//! Everything here takes borrowed descriptors and C strings, gives back owned descriptors or an
//! [`Errno`], and allocates nothing: the child of a start uses the same functions as the parent.
//! `unsafe` lives here and in [`crate::stage`] only.
#![allow(unsafe_code)]

pub mod args;
pub mod attempt;
pub mod begin;
pub mod bpf;
pub mod caps;
pub mod catch;
pub mod clone;
pub mod confine;
pub mod exe;
pub mod file;
pub mod folder;
pub mod futex;
pub mod keyring;
pub mod landlock;
pub mod loopback;
pub mod mount;
pub mod namespace;
pub mod net;
pub mod offer;
pub mod pidfd;
pub mod process;
pub mod pty;
pub mod quota;
pub mod random;
pub mod read;
pub mod route;
pub mod scm;
pub mod seccomp;
pub mod shared;
pub mod throwaway;
pub mod unheard;
pub mod unix_diag;
pub mod worker;

pub use nix::errno::Errno;

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// What a system call gives: its value or the error number.
pub type SysResult<T> = Result<T, Errno>;

/// Turns the return value of `libc::syscall` into a result.
pub(crate) fn check(ret: libc::c_long) -> SysResult<libc::c_long> {
    if ret < 0 { Err(Errno::last()) } else { Ok(ret) }
}

/// Turns the return value of a call that makes a descriptor into an owned one.
pub(crate) fn check_fd(ret: libc::c_long) -> SysResult<OwnedFd> {
    let fd = RawFd::try_from(check(ret)?).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just made this descriptor for us, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The raw system call, checked. Only for numbers that neither nix nor libc wraps.
macro_rules! call {
    ($nr:expr $(, $arg:expr)* $(,)?) => {
        // SAFETY: every caller in this module passes arguments of the types that the manual page of the
        // call names, and pointers to values that live until the call returns.
        $crate::sys::check(unsafe { libc::syscall($nr $(, $arg)*) })
    };
}
/// As [`call`], for calls that return a new descriptor.
macro_rules! call_fd {
    ($nr:expr $(, $arg:expr)* $(,)?) => {
        // SAFETY: as for `call!`.
        $crate::sys::check_fd(unsafe { libc::syscall($nr $(, $arg)*) })
    };
}
pub(crate) use {call, call_fd};
