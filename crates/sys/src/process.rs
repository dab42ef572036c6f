//! Attributes of the current process: prctl(2), ids, signals, limits, scheduling, execve.

use super::{Errno, SysResult, call, check};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::ffi::{CStr, c_char};
use std::os::fd::{BorrowedFd, RawFd};

/// prctl(2) with up to three arguments.
///
/// # Errors
/// Those of the option.
pub fn prctl(option: i32, a: u64, b: u64, c: u64) -> SysResult<()> {
    call!(libc::SYS_prctl, option, a, b, c, 0u64)?;
    Ok(())
}

/// Names this thread, at most 15 bytes, as `ps` shows it.
///
/// # Errors
/// Those of prctl(2).
pub fn set_name(name: &CStr) -> SysResult<()> {
    call!(libc::SYS_prctl, libc::PR_SET_NAME, name.as_ptr(), 0u64, 0u64, 0u64)?;
    Ok(())
}

/// Changes the uid and gid of this thread. It makes the raw calls: glibc's wrappers would signal other threads, and
/// there are none. It also drops supplementary groups if `clear_groups`.
///
/// # Errors
/// EINVAL for an id that the user namespace does not map; EPERM.
pub fn become_user(uid: u32, gid: u32, clear_groups: bool) -> SysResult<()> {
    if clear_groups {
        call!(libc::SYS_setgroups, 0usize, std::ptr::null::<libc::gid_t>())?;
    }
    call!(libc::SYS_setresgid, gid, gid, gid)?;
    call!(libc::SYS_setresuid, uid, uid, uid)?;
    Ok(())
}

/// Sets supplementary groups, gid and uid: each as real, effective, saved and file system id. `None` leaves a value
/// unchanged. An empty list is ignored where setgroups is denied (user_namespaces(7)), because there are then no groups
/// to drop.
///
/// # Errors
/// EINVAL for an id that the user namespace does not map; EPERM.
pub fn set_ids(uid: Option<u32>, gid: Option<u32>, groups: Option<&[u32]>) -> SysResult<()> {
    if let Some(groups) = groups {
        match call!(libc::SYS_setgroups, groups.len(), groups.as_ptr()) {
            Err(Errno::EPERM) if groups.is_empty() => {}
            other => drop(other?),
        }
    }
    if let Some(gid) = gid {
        call!(libc::SYS_setresgid, gid, gid, gid)?;
    }
    if let Some(uid) = uid {
        call!(libc::SYS_setresuid, uid, uid, uid)?;
    }
    Ok(())
}

/// Sets one resource limit of a process (0: this one) exactly, soft and hard (prlimit(2)).
///
/// # Errors
/// EPERM for a hard limit above the current one without CAP_SYS_RESOURCE; EINVAL.
pub fn set_limit(pid: i32, resource: i32, soft: u64, hard: u64) -> SysResult<()> {
    let new = libc::rlimit64 { rlim_cur: soft, rlim_max: hard };
    call!(libc::SYS_prlimit64, pid, resource, &raw const new, std::ptr::null_mut::<libc::rlimit64>())?;
    Ok(())
}

/// One resource limit of a process (0: this one).
///
/// # Errors
/// EINVAL for an unknown resource; EPERM for a process of another user.
pub fn limit(pid: i32, resource: i32) -> SysResult<libc::rlimit64> {
    let mut now = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let none = std::ptr::null::<libc::rlimit64>();
    call!(libc::SYS_prlimit64, pid, resource, none, &raw mut now)?;
    Ok(now)
}

/// sched_setaffinity(2) of a process (0: this one): CPUs as a bit mask in words of 64 bits.
///
/// # Errors
/// EINVAL if none of the CPUs can be used.
pub fn set_affinity(pid: i32, cpus: &[u64]) -> SysResult<()> {
    call!(libc::SYS_sched_setaffinity, pid, size_of_val(cpus), cpus.as_ptr())?;
    Ok(())
}

/// Whether this thread has a real-time policy (sched_getscheduler(2)), which its children inherit.
pub fn is_real_time() -> bool {
    let policy = call!(libc::SYS_sched_getscheduler, 0).unwrap_or(libc::SCHED_OTHER.into());
    let real_time = [libc::SCHED_FIFO, libc::SCHED_RR].map(i64::from);
    real_time.contains(&(policy & !i64::from(libc::SCHED_RESET_ON_FORK)))
}

/// sched_getaffinity(2) of a process (0: this one): CPUs as a bit mask in words of 64 bits.
///
/// # Errors
/// ESRCH without the process; EINVAL for a kernel with more than 8192 CPUs.
pub fn affinity(pid: i32) -> SysResult<Vec<u64>> {
    let mut mask = vec![0_u64; 128];
    let bytes = call!(libc::SYS_sched_getaffinity, pid, size_of_val(mask.as_slice()), mask.as_mut_ptr())?;
    mask.truncate(usize::try_from(bytes).unwrap_or(0) / size_of::<u64>());
    Ok(mask)
}

/// Adds to the niceness of a process (0: this one), up to 19 (setpriority(2)).
///
/// # Errors
/// ESRCH without the process; EPERM for a process of another user.
pub fn raise_niceness(pid: i32, by: i32) -> SysResult<()> {
    // The call returns 20 minus the niceness, so that it is never negative.
    let now = 20 - i32::try_from(call!(libc::SYS_getpriority, libc::PRIO_PROCESS, pid)?).unwrap_or(20);
    call!(libc::SYS_setpriority, libc::PRIO_PROCESS, pid, now + by)?;
    Ok(())
}

/// `struct sched_attr` of linux/sched/types.h, its first version.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct SchedAttr {
    /// Size of this struct in bytes; [`set_scheduler`] sets it.
    pub size: u32,
    /// SCHED_*.
    pub policy: u32,
    /// SCHED_FLAG_*.
    pub flags: u64,
    /// Nice value.
    pub nice: i32,
    /// Priority under a real-time policy.
    pub priority: u32,
    /// Runtime for SCHED_DEADLINE, in nanoseconds.
    pub runtime: u64,
    /// Deadline for SCHED_DEADLINE, in nanoseconds.
    pub deadline: u64,
    /// Period for SCHED_DEADLINE, in nanoseconds.
    pub period: u64,
}

/// sched_setattr(2) for the current process.
///
/// # Errors
/// Those of sched_setattr(2).
pub fn set_scheduler(mut attributes: SchedAttr) -> SysResult<()> {
    attributes.size = 48;
    call!(libc::SYS_sched_setattr, 0, std::ptr::from_ref(&attributes), 0)?;
    Ok(())
}

/// ioprio_set(2) for the current process: class and priority, packed.
///
/// # Errors
/// Those of ioprio_set(2).
pub fn set_io_priority(value: i32) -> SysResult<()> {
    const IOPRIO_WHO_PROCESS: libc::c_int = 1;
    call!(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, value)?;
    Ok(())
}

/// personality(2).
///
/// # Errors
/// Those of personality(2).
pub fn set_personality(value: u64) -> SysResult<()> {
    call!(libc::SYS_personality, value)?;
    Ok(())
}

/// set_mempolicy(2): MPOL_* with flags, and nodes as a bit mask in words of 64 bits.
///
/// # Errors
/// EINVAL for a node that does not exist; ENOSYS without NUMA.
pub fn set_memory_policy(mode: i32, nodes: &[u64]) -> SysResult<()> {
    // An empty set needs a null pointer: with any other pointer the kernel checks the length, and rejects 0.
    if nodes.is_empty() {
        call!(libc::SYS_set_mempolicy, mode, std::ptr::null::<u64>(), 0)?;
        return Ok(());
    }
    // The kernel reads one bit fewer than the length argument (set_mempolicy(2), BUGS).
    call!(libc::SYS_set_mempolicy, mode, nodes.as_ptr(), nodes.len() * 64 + 1)?;
    Ok(())
}

/// setdomainname(2).
///
/// # Errors
/// EINVAL for more than 64 bytes; EPERM.
pub fn set_domain_name(name: &CStr) -> SysResult<()> {
    call!(libc::SYS_setdomainname, name.as_ptr(), name.to_bytes().len())?;
    Ok(())
}

/// Whether the working directory is below the root of this process: otherwise getcwd(2) returns "(unreachable)".
///
/// # Errors
/// Those of getcwd(2).
pub fn working_directory_is_inside() -> SysResult<bool> {
    let mut buffer = [0u8; libc::PATH_MAX as usize];
    call!(libc::SYS_getcwd, buffer.as_mut_ptr(), buffer.len())?;
    Ok(buffer[0] == b'/')
}

/// Sets one resource limit of this process, soft and hard (setrlimit(2)), at most to its current hard limit.
///
/// # Errors
/// EINVAL for an unknown resource.
pub fn lower_limit(resource: i32, soft: u64, hard: u64) -> SysResult<()> {
    let hard = hard.min(limit(0, resource)?.rlim_max);
    set_limit(0, resource, soft.min(hard), hard)
}

/// Sets the default action for every signal and an empty mask: the state that programs expect at their start
/// (signal(7)).
pub fn reset_signals() {
    reset_signal_actions();
    unblock_signals();
}

/// Sets an empty signal mask.
pub fn unblock_signals() {
    let empty = 0u64;
    let _ = call!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const empty, 0usize, 8usize);
}

/// Sets the default action for every signal; the mask is unchanged. It makes the raw calls, because glibc hides its two
/// internal signals.
pub fn reset_signal_actions() {
    // SAFETY: all zeros is the kernel's `struct sigaction` with SIG_DFL, no flags and an empty mask, at
    // least as long as the kernel reads.
    let default: libc::sigaction = unsafe { std::mem::zeroed() };
    let old = std::ptr::null_mut::<libc::sigaction>();
    for signal in 1..=64 {
        // SIGKILL and SIGSTOP return EINVAL; their actions cannot change.
        let _ = call!(libc::SYS_rt_sigaction, signal, &raw const default, old, 8usize);
    }
}

/// Ignores a signal. If SIGCHLD is ignored, the kernel reaps children (sigaction(2)).
///
/// # Errors
/// EINVAL for a signal that cannot be ignored.
pub fn ignore_signal(signal: i32) -> SysResult<()> {
    // SAFETY: as in `reset_signal_actions`, with SIG_IGN for the handler, the first field of the kernel's struct.
    let mut ignore: libc::sigaction = unsafe { std::mem::zeroed() };
    ignore.sa_sigaction = libc::SIG_IGN;
    let old = std::ptr::null_mut::<libc::sigaction>();
    call!(libc::SYS_rt_sigaction, signal, &raw const ignore, old, 8usize)?;
    Ok(())
}

/// Whether this process ignores the signal.
pub fn ignores(signal: i32) -> bool {
    // SAFETY: all zeros is a valid sigaction, at least as long as the kernel writes.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    let none = std::ptr::null::<libc::sigaction>();
    // The kernel's struct begins with the handler, as glibc's does.
    call!(libc::SYS_rt_sigaction, signal, none, &raw mut now, 8usize).is_ok()
        && now.sa_sigaction == libc::SIG_IGN
}

/// Blocks every signal. Returns the previous mask.
///
/// # Errors
/// Those of rt_sigprocmask(2).
pub fn block_signals() -> SysResult<u64> {
    let (all, mut old) = (u64::MAX, 0u64);
    call!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const all, &raw mut old, 8usize)?;
    Ok(old)
}

/// The set of these signals, real-time signals among them, which [`nix::sys::signal::Signal`] does not have.
pub fn signal_set(signals: impl Iterator<Item = i32>) -> nix::sys::signal::SigSet {
    // SAFETY: all zeros is a valid sigset_t, and sigemptyset(3) makes it an empty one.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is ours.
    unsafe { libc::sigemptyset(&raw mut set) };
    for signal in signals {
        // SAFETY: `set` is an initialised set; a number that is no signal is refused (EINVAL).
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    // SAFETY: an initialised set.
    unsafe { nix::sys::signal::SigSet::from_sigset_t_unchecked(set) }
}

/// Replaces this process by the program at `path`. Returns only on failure.
///
/// # Safety
/// `argv` and `envp` must be null-terminated lists of NUL-terminated strings.
pub unsafe fn execve(path: &CStr, argv: *const *const c_char, envp: *const *const c_char) -> Errno {
    let _ = call!(libc::SYS_execve, path.as_ptr(), argv, envp);
    Errno::last()
}

/// Replaces this process by the program behind descriptor `file` (execveat(2), AT_EMPTY_PATH). Returns only on failure.
///
/// # Safety
/// `argv` and `envp` must be null-terminated lists of NUL-terminated strings.
pub unsafe fn execveat(file: RawFd, argv: *const *const c_char, envp: *const *const c_char) -> Errno {
    let _ = call!(libc::SYS_execveat, file, c"".as_ptr(), argv, envp, libc::AT_EMPTY_PATH);
    Errno::last()
}

/// Sleeps until a signal arrives. If all signals are blocked, only SIGKILL ends the sleep.
pub fn sleep_forever() {
    let (none, forever) = (std::ptr::null_mut::<libc::pollfd>(), std::ptr::null::<libc::timespec>());
    let _ = call!(libc::SYS_ppoll, none, 0usize, forever, std::ptr::null::<u64>(), 0usize);
}

/// Ends this process at once: no destructors, no exit handlers.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: _exit(2) has no conditions.
    unsafe { libc::_exit(status) }
}

/// The number of threads of this process (/proc/self/task, proc(5)). A fork requires one.
///
/// # Errors
/// Those of stat(2) on /proc/self/task.
pub(crate) fn thread_count() -> SysResult<u64> {
    // The link count of a directory is 2 plus the number of its subdirectories.
    Ok(nix::sys::stat::stat(c"/proc/self/task")?.st_nlink.saturating_sub(2))
}

/// Polls one descriptor for `events` without waiting. Returns true if one of them or an error is pending.
///
/// # Errors
/// Those of poll(2).
pub fn is_ready(fd: RawFd, events: i16) -> SysResult<bool> {
    let mut poll = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one pollfd, which lives until the call returns.
    let ready = check(unsafe { libc::poll(&raw mut poll, 1, 0) }.into())?;
    Ok(ready > 0)
}

/// Waits at most `most` until the descriptor is readable or has an error. Returns whether it is. A signal ends the wait
/// early.
pub fn is_readable_within(fd: BorrowedFd<'_>, most: impl Into<PollTimeout>) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    poll(&mut fds, most).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn sched_attr_has_the_kernel_layout() {
        assert_eq!(size_of::<super::SchedAttr>(), 48);
    }
}
