//! clone3(2): the birth of a sandbox, and of the short-lived holder of a user namespace.

use super::{Errno, SysResult, call, pidfd, process};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Which side of a clone we are.
#[derive(Debug)]
pub enum Side {
    /// The new process.
    Child,
    /// The caller: the child's pid here, and a pidfd of it.
    Parent {
        /// The child's pid in the caller's pid namespace.
        pid: i32,
        /// A close-on-exec pidfd of the child.
        pidfd: OwnedFd,
    },
}

/// `clone3` with fork semantics (own memory), `CLONE_PIDFD`, and SIGCHLD at the end; the child has none of our
/// signal handlers (CLONE_CLEAR_SIGHAND, Linux 5.5). Linux 5.7 for `into_cgroup` (CLONE_INTO_CGROUP).
///
/// # Errors
/// The error number of clone3(2).
///
/// # Safety
/// As fork(2): in the child of a process with several threads only async-signal-safe code may run.
pub unsafe fn clone3(flags: u64, into_cgroup: Option<BorrowedFd<'_>>) -> SysResult<Side> {
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
        return Ok(Side::Child);
    }
    let pid = i32::try_from(pid).map_err(|_| Errno::EOVERFLOW)?;
    // SAFETY: clone3 succeeded with CLONE_PIDFD, so `pidfd` is a descriptor made for us.
    Ok(Side::Parent { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } })
}

/// As [`clone3`], for a child of our own parent (CLONE_PARENT): the pid in our namespace is nobody's business but
/// our parent's, who learns it from the child itself. True in the child.
///
/// # Errors
/// The error number of clone3(2).
///
/// # Safety
/// As [`clone3`].
pub unsafe fn clone3_sibling(flags: u64) -> SysResult<bool> {
    // SAFETY: all zeros is a valid clone_args.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    // The exit signal is ours by inheritance, and must be zero here.
    args.flags = flags | libc::CLONE_PARENT as u64;
    Ok(call!(libc::SYS_clone3, std::ptr::from_mut(&mut args), size_of::<libc::clone_args>())? == 0)
}

/// Starts a thread of this process on `stack`, with nothing of its own but that: one that a filter of the caller
/// does not hold (SECCOMP_FILTER_FLAG_TSYNC aside).
///
/// # Errors
/// Those of clone(2).
///
/// # Safety
/// As [`share_memory`]; the thread ends by [`end_thread`] or with the process.
pub unsafe fn thread(
    stack: &Stack,
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

/// A plain fork by the clone system call, without glibc's handlers: 0 in the child, the pid in the parent.
/// It is `clone`, not `clone3`, because the filter of pid 1 answers ENOSYS to the latter.
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

/// As [`fork`], with a pidfd of the child (CLONE_PIDFD, Linux 5.2): for processes whose filter answers ENOSYS to clone3.
/// Signal handlers stay; see [`process::reset_signals`].
///
/// # Errors
/// The error number of clone(2).
///
/// # Safety
/// As [`fork`].
pub unsafe fn fork_with_pidfd() -> SysResult<Side> {
    let mut pidfd: RawFd = -1;
    let flags = (libc::SIGCHLD | libc::CLONE_PIDFD) as libc::c_ulong;
    let pid = call!(libc::SYS_clone, flags, 0usize, &raw mut pidfd, 0usize, 0usize)?;
    if pid == 0 {
        return Ok(Side::Child);
    }
    let pid = i32::try_from(pid).map_err(|_| Errno::EOVERFLOW)?;
    // SAFETY: clone succeeded with CLONE_PIDFD, so `pidfd` is a descriptor made for us.
    Ok(Side::Parent { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } })
}

/// A stack for a process that shares our memory, with a page below it that faults.
#[derive(Debug)]
pub struct Stack {
    base: *mut libc::c_void,
    len: usize,
}

impl Stack {
    /// At least `len` bytes.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(len: usize) -> SysResult<Self> {
        const PAGE: usize = 4096;
        let len = len.next_multiple_of(PAGE) + PAGE;
        let (none, protection) = (std::ptr::null_mut(), libc::PROT_READ | libc::PROT_WRITE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
        // SAFETY: fresh anonymous memory, wherever there is room.
        let base = unsafe { libc::mmap(none, len, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        // SAFETY: the first page of the memory just mapped.
        let guarded = unsafe { libc::mprotect(base, PAGE, libc::PROT_NONE) };
        let stack = Stack { base, len };
        super::check(guarded.into())?;
        Ok(stack)
    }

    fn top(&self) -> *mut libc::c_void {
        self.base.wrapping_byte_add(self.len)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and whoever ran on it has been reaped ([`share_memory`]).
        unsafe { libc::munmap(self.base, self.len) };
    }
}

/// Starts `entry(argument)` as a child process that shares our memory (CLONE_VM), with `flags` more, on a
/// stack of its own; its pid and a close-on-exec pidfd. There is no copy of page tables, and no page of ours
/// becomes copy-on-write.
///
/// # Errors
/// The error number of clone(2).
///
/// # Safety
/// While this process lives, `entry` may change nothing but its own stack and make no call that can fail,
/// since errno is shared. `stack` may be dropped only when the child has been reaped.
pub unsafe fn share_memory(
    flags: i32,
    stack: &Stack,
    entry: extern "C" fn(*mut libc::c_void) -> libc::c_int,
    argument: *mut libc::c_void,
) -> SysResult<(i32, OwnedFd)> {
    let mut pidfd: RawFd = -1;
    let flags = flags | libc::CLONE_VM | libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: the stack is ours and unused; with CLONE_PIDFD the next argument is where the pidfd goes.
    let pid = unsafe { libc::clone(entry, stack.top(), flags, argument, &raw mut pidfd) };
    let pid = i32::try_from(super::check(pid.into())?).map_err(|_| Errno::EOVERFLOW)?;
    // SAFETY: clone succeeded with CLONE_PIDFD, so `pidfd` is a descriptor made for us.
    Ok((pid, unsafe { OwnedFd::from_raw_fd(pidfd) }))
}

/// Starts `entry(argument)` as a child process on `stack` that has our memory while we stand still, until it executes
/// a program or ends (CLONE_VFORK): there are no page tables to copy, and none to take down again. By clone, not
/// clone3, as [`fork`].
///
/// # Errors
/// The error number of clone(2).
///
/// # Safety
/// What `entry` leaves in our memory, errno included, is there when we go on. It does not return.
pub unsafe fn lend_memory(
    stack: &Stack,
    entry: extern "C" fn(*mut libc::c_void) -> libc::c_int,
    argument: *mut libc::c_void,
) -> SysResult<i32> {
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack is ours and unused, and stays until the call returns, when the child has left it.
    let pid = unsafe { libc::clone(entry, stack.top(), flags, argument) };
    i32::try_from(super::check(pid.into())?).map_err(|_| Errno::EOVERFLOW)
}

/// A process that does nothing but hold a user namespace of its own. It shares our memory, touches none of it,
/// and ends when this is dropped.
#[derive(Debug)]
pub struct Holder {
    pid: i32,
    pidfd: OwnedFd,
    _stack: Stack,
}

impl Holder {
    /// Starts it.
    ///
    /// # Errors
    /// Those of clone(2) for CLONE_NEWUSER; ENOMEM.
    pub fn new() -> SysResult<Self> {
        extern "C" fn hold(launcher: *mut libc::c_void) -> libc::c_int {
            let _ = process::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64, 0, 0);
            // A launcher that died before the signal was set has left us to somebody else.
            while nix::unistd::getppid().as_raw().unsigned_abs() as usize == launcher.addr() {
                nix::unistd::pause();
            }
            process::exit_now(0)
        }
        const SMALL: usize = 16 << 10;
        let stack = Stack::new(SMALL)?;
        let launcher = std::ptr::without_provenance_mut(std::process::id() as usize);
        // SAFETY: `hold` changes nothing, and its calls do not fail while we live; the drop reaps it before the
        // stack goes.
        let (pid, pidfd) = unsafe { share_memory(libc::CLONE_NEWUSER, &stack, hold, launcher)? };
        Ok(Holder { pid, pidfd, _stack: stack })
    }

    /// Its pid; it is our unreaped child, so that the number is surely its.
    pub fn pid(&self) -> i32 {
        self.pid
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = pidfd::signal(self.pidfd.as_fd(), libc::SIGKILL);
        let _ = pidfd::reap(self.pidfd.as_fd());
    }
}

#[cfg(test)]
mod tests {
    /// The layout that linux/sched.h gives (CLONE_ARGS_SIZE_VER2).
    #[test]
    fn clone_args_has_the_kernel_layout() {
        assert_eq!(size_of::<libc::clone_args>(), 88);
        assert_eq!(std::mem::offset_of!(libc::clone_args, cgroup), 80);
    }
}
