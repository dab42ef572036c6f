//! The raw system calls of saggar, as thin safe wrappers, and what each of its processes needs: errors with an exit code and
//! a hint, validated ids, escaping of untrusted text, the log back end, names of any bytes in JSON.
//!
//! Every crate of saggar but the mailbox uses it. It knows no sandbox, no policy and no protocol.
//!
//! The functions take borrowed descriptors and C strings and return owned descriptors or an [`Errno`]. They allocate
//! nothing unless the module says so, because the child of a start uses the same functions as the parent. Beside
//! this crate only the stage and the trampoline of sandboxes, and the start of the program, contain `unsafe` code.

#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub mod args;
pub mod attempt;
#[cfg_attr(not(test), deny(clippy::disallowed_methods))]
pub mod beneath;
pub mod bpf;
pub mod caps;
pub mod clock;
pub mod clone;
#[cfg(feature = "confine")]
pub mod confine;
pub mod disposable_child;
pub mod error;
pub mod exact_name;
pub mod exe;
pub mod file;
#[cfg(feature = "confine")]
#[cfg_attr(not(test), deny(clippy::disallowed_methods))]
pub mod file_worker;
pub mod futex;
pub mod id;
pub mod keyring;
pub mod landlock;
pub mod log;
pub mod loop_device;
pub mod mount;
pub mod namespace;
pub mod net;
pub mod peer;
pub mod pidfd;
pub mod process;
pub mod processes;
pub mod pty;
pub mod quota;
pub mod random;
pub mod read;
pub mod redirect;
pub mod reject_sniffer;
pub mod replace_file;
pub mod route;
pub mod scm;
pub mod seccomp;
pub mod service_socket;
pub mod shared_words;
pub mod signal_name;
pub mod socket_record;
pub mod spawn;
pub mod startup;
pub mod text;
pub mod unix_diag;
pub mod untrusted_directory;
pub mod worker;

pub use nix::errno::Errno;

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// The result of a system call: its value or the error number.
pub type SysResult<T> = Result<T, Errno>;

/// Turns the return value of `libc::syscall` into a result.
pub fn check(ret: libc::c_long) -> SysResult<libc::c_long> {
    if ret < 0 { Err(Errno::last()) } else { Ok(ret) }
}

/// Turns the return value of a call that creates a descriptor into an owned descriptor.
pub(crate) fn check_fd(ret: libc::c_long) -> SysResult<OwnedFd> {
    let fd = RawFd::try_from(check(ret)?).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just created this descriptor for us, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes a raw system call and checks its result. Only for calls that neither nix nor libc wraps.
macro_rules! call {
    ($nr:expr $(, $arg:expr)* $(,)?) => {
        // SAFETY: every caller in this module passes arguments of the types that the manual page of the
        // call names, and pointers to values that live until the call returns.
        $crate::check(unsafe { libc::syscall($nr $(, $arg)*) })
    };
}
/// As [`call`], for calls that return a new descriptor.
macro_rules! call_fd {
    ($nr:expr $(, $arg:expr)* $(,)?) => {
        // SAFETY: as for `call!`.
        $crate::check_fd(unsafe { libc::syscall($nr $(, $arg)*) })
    };
}
pub(crate) use {call, call_fd};
