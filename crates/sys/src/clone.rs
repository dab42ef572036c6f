//! clone3(2): creates the first process of a sandbox, and short-lived processes that hold a user namespace.

use super::{Errno, SysResult, call, pidfd, process};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The process in which a clone returned.
#[derive(Debug)]
pub enum CloneSide {
    /// The new process.
    Child,
    /// The caller, with the pid and a pidfd of the child.
    Parent {
        /// The child's pid in the caller's pid namespace.
        pid: i32,
        /// A close-on-exec pidfd of the child.
        pidfd: OwnedFd,
    },
}

/// Calls `clone3` with fork semantics (separate memory), `CLONE_PIDFD`, and SIGCHLD as exit signal. The child starts
/// without our signal handlers (CLONE_CLEAR_SIGHAND, Linux 5.5). `into_cgroup` needs Linux 5.7 (CLONE_INTO_CGROUP).
///
/// # Errors
/// The error number of clone3(2).
///
/// # Safety
/// As fork(2): in the child of a process with several threads only async-signal-safe code may run.
pub unsafe fn clone3(flags: u64, into_cgroup: Option<BorrowedFd<'_>>) -> SysResult<CloneSide> {
    let mut pidfd: RawFd = -1;
    // SAFETY: all zeros is a valid clone_args (clone3(2): unused fields must be zero).
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags | libc::CLONE_PIDFD as u64 | CLONE_CLEAR_SIGHAND;
    args.pidfd = std::ptr::from_mut(&mut pidfd) as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    if let Some(cgroup) = into_cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = u64::try_from(cgroup.as_raw_fd()).map_err(|_| Errno::EBADF)?;
    }
    let pid = call!(libc::SYS_clone3, std::ptr::from_mut(&mut args), size_of::<libc::clone_args>())?;
    if pid == 0 {
        return Ok(CloneSide::Child);
    }
    let pid = i32::try_from(pid).map_err(|_| Errno::EOVERFLOW)?;
    // SAFETY: clone3 succeeded with CLONE_PIDFD, so `pidfd` is a new descriptor that this process owns.
    Ok(CloneSide::Parent { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } })
}

/// As [`clone3`], but the parent of the child is our parent (CLONE_PARENT). The child's pid is not returned: only our
/// parent uses it, and learns it from the child itself. Returns true in the child.
///
/// # Errors
/// The error number of clone3(2).
///
/// # Safety
/// As [`clone3`].
pub unsafe fn clone3_sibling(flags: u64) -> SysResult<bool> {
    // SAFETY: all zeros is a valid clone_args.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    // With CLONE_PARENT the child inherits our exit signal; the field must be zero.
    args.flags = flags | libc::CLONE_PARENT as u64;
    Ok(call!(libc::SYS_clone3, std::ptr::from_mut(&mut args), size_of::<libc::clone_args>())? == 0)
}

/// Starts a thread of this process on `stack`. It shares everything but the stack. A seccomp filter that the caller
/// loads later does not apply to it (unless loaded with SECCOMP_FILTER_FLAG_TSYNC).
///
/// # Errors
/// Those of clone(2).
///
/// # Safety
/// As [`share_memory`]; the thread ends by [`end_thread`] or with the process.
pub unsafe fn thread(
    stack: &ChildStack,
    entry: extern "C" fn(*mut libc::c_void) -> libc::c_int,
    argument: *mut libc::c_void,
) -> SysResult<()> {
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM;
    // SAFETY: the stack is ours and unused.
    super::check(unsafe { libc::clone(entry, stack.top(), flags, argument) }.into())?;
    Ok(())
}

/// Ends the calling thread alone (exit(2), not exit_group(2)).
pub fn end_thread() -> ! {
    loop {
        let _ = call!(libc::SYS_exit, 0);
    }
}

const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// A plain fork by the clone system call, without glibc's handlers. Returns 0 in the child and the child's pid in the
/// parent. It is `clone`, not `clone3`, because the filter of pid 1 returns ENOSYS for the latter.
///
/// # Errors
/// The error number of clone(2).
///
/// # Safety
/// As fork(2): in the child only async-signal-safe code may run.
pub unsafe fn fork() -> SysResult<i32> {
    let pid = call!(libc::SYS_clone, libc::SIGCHLD as libc::c_ulong, 0usize, 0usize, 0usize, 0usize)?;
    i32::try_from(pid).map_err(|_| Errno::EOVERFLOW)
}

/// As [`fork`], with a pidfd of the child (CLONE_PIDFD, Linux 5.2), for processes whose filter returns ENOSYS for
/// clone3. The child keeps the signal handlers; see [`process::reset_signals`].
///
/// # Errors
/// The error number of clone(2).
///
/// # Safety
/// As [`fork`].
pub(crate) unsafe fn fork_with_pidfd() -> SysResult<CloneSide> {
    let mut pidfd: RawFd = -1;
    let flags = (libc::SIGCHLD | libc::CLONE_PIDFD) as libc::c_ulong;
    let pid = call!(libc::SYS_clone, flags, 0usize, &raw mut pidfd, 0usize, 0usize)?;
    if pid == 0 {
        return Ok(CloneSide::Child);
    }
    let pid = i32::try_from(pid).map_err(|_| Errno::EOVERFLOW)?;
    // SAFETY: clone succeeded with CLONE_PIDFD, so `pidfd` is a new descriptor that this process owns.
    Ok(CloneSide::Parent { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } })
}

/// A stack for a process that shares our memory, with a guard page below it.
#[derive(Debug)]
pub struct ChildStack {
    base: *mut libc::c_void,
    len: usize,
}

impl ChildStack {
    /// Maps a stack of at least `len` bytes.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(len: usize) -> SysResult<Self> {
        const PAGE: usize = 4096;
        let len = len.next_multiple_of(PAGE) + PAGE;
        let (none, protection) = (std::ptr::null_mut(), libc::PROT_READ | libc::PROT_WRITE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
        // SAFETY: a new anonymous mapping at an address that the kernel chooses.
        let base = unsafe { libc::mmap(none, len, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        // SAFETY: the first page of the memory just mapped.
        let guarded = unsafe { libc::mprotect(base, PAGE, libc::PROT_NONE) };
        let stack = ChildStack { base, len };
        super::check(guarded.into())?;
        Ok(stack)
    }

    fn top(&self) -> *mut libc::c_void {
        self.base.wrapping_byte_add(self.len)
    }
}

impl Drop for ChildStack {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; the process that ran on this stack has been reaped ([`share_memory`]).
        unsafe { libc::munmap(self.base, self.len) };
    }
}

/// Starts `entry(argument)` on `stack` as a child process that shares our memory (CLONE_VM), with additional `flags`.
/// Returns the child's pid and a close-on-exec pidfd. No page tables are copied, and none of our pages become
/// copy-on-write.
///
/// # Errors
/// The error number of clone(2).
///
/// # Safety
/// While this process lives, `entry` may change nothing but its own stack and make no call that can fail, since errno
/// is shared. `stack` may be dropped only when the child has been reaped.
pub unsafe fn share_memory(
    flags: i32,
    stack: &ChildStack,
    entry: extern "C" fn(*mut libc::c_void) -> libc::c_int,
    argument: *mut libc::c_void,
) -> SysResult<(i32, OwnedFd)> {
    let mut pidfd: RawFd = -1;
    let flags = flags | libc::CLONE_VM | libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: the stack is ours and unused; with CLONE_PIDFD the next argument is where the pidfd goes.
    let pid = unsafe { libc::clone(entry, stack.top(), flags, argument, &raw mut pidfd) };
    let pid = i32::try_from(super::check(pid.into())?).map_err(|_| Errno::EOVERFLOW)?;
    // SAFETY: clone succeeded with CLONE_PIDFD, so `pidfd` is a new descriptor that this process owns.
    Ok((pid, unsafe { OwnedFd::from_raw_fd(pidfd) }))
}

/// Starts `entry(argument)` on `stack` as a child process that borrows our memory: this process is suspended until the
/// child executes a program or exits (CLONE_VFORK). No page tables are copied or torn down. It uses clone, not clone3,
/// for the reason given at [`fork`].
///
/// # Errors
/// The error number of clone(2).
///
/// # Safety
/// Changes that `entry` makes to our memory, errno included, are visible when this process resumes. `entry` does not
/// return.
pub unsafe fn lend_memory(
    stack: &ChildStack,
    entry: extern "C" fn(*mut libc::c_void) -> libc::c_int,
    argument: *mut libc::c_void,
) -> SysResult<i32> {
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack is ours and unused, and stays until the call returns, when the child has left it.
    let pid = unsafe { libc::clone(entry, stack.top(), flags, argument) };
    i32::try_from(super::check(pid.into())?).map_err(|_| Errno::EOVERFLOW)
}

/// A child process that only holds a user namespace. It shares our memory, changes none of it, and ends when this value
/// is dropped.
#[derive(Debug)]
pub struct UserNamespaceHolder {
    pid: i32,
    pidfd: OwnedFd,
    _stack: ChildStack,
}

impl UserNamespaceHolder {
    /// Starts the child.
    ///
    /// # Errors
    /// Those of clone(2) for CLONE_NEWUSER; ENOMEM.
    pub fn new() -> SysResult<Self> {
        extern "C" fn hold(launcher: *mut libc::c_void) -> libc::c_int {
            let _ = process::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64, 0, 0);
            // If the launcher died before the parent-death signal was set, this process has another parent by now.
            while nix::unistd::getppid().as_raw().unsigned_abs() as usize == launcher.addr() {
                nix::unistd::pause();
            }
            process::exit_now(0)
        }
        const SMALL: usize = 16 << 10;
        let stack = ChildStack::new(SMALL)?;
        let launcher = std::ptr::without_provenance_mut(std::process::id() as usize);
        // SAFETY: `hold` changes nothing, and its calls do not fail while we live; the drop reaps the child before the
        // stack is unmapped.
        let (pid, pidfd) = unsafe { share_memory(libc::CLONE_NEWUSER, &stack, hold, launcher)? };
        Ok(UserNamespaceHolder { pid, pidfd, _stack: stack })
    }

    /// The child's pid. The child is unreaped until the drop, so the kernel cannot reuse the number.
    pub fn pid(&self) -> i32 {
        self.pid
    }
}

impl Drop for UserNamespaceHolder {
    fn drop(&mut self) {
        let _ = pidfd::signal(self.pidfd.as_fd(), libc::SIGKILL);
        let _ = pidfd::reap(self.pidfd.as_fd());
    }
}

#[cfg(test)]
mod tests {
    /// The layout is that of linux/sched.h (CLONE_ARGS_SIZE_VER2).
    #[test]
    fn clone_args_has_the_kernel_layout() {
        assert_eq!(size_of::<libc::clone_args>(), 88);
        assert_eq!(std::mem::offset_of!(libc::clone_args, cgroup), 80);
    }
}
