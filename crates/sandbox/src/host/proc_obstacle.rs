//! Tests whether this user can mount a new procfs.

use saggar_sys::Errno;
use saggar_sys::attempt::{AttemptOutcome, attempt};
use saggar_sys::mount::{self, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC, MOUNT_ATTR_NOSUID};

/// Whether the kernel refuses a new `/proc` because the existing one is not completely visible, as in most containers
/// (`mount_too_revealing` in fs/namespace.c of Linux). Called only if the profile permits a start without one. Other
/// failures, such as that of the user namespace around it, are ignored: the start reports them.
pub fn refuses_new_proc() -> bool {
    let flags = libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWPID;
    let attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    let mount = || mount::new_filesystem(c"proc", &[], attributes).map(drop);
    attempt(u64::from(flags.cast_unsigned()), |_| Ok(()), mount) == AttemptOutcome::Fails(Errno::EPERM)
}
