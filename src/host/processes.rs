//! Processes of this host.

/// The parent of a process; `None` if the process has exited or is hidden (proc_pid_stat(5)).
pub fn parent_of(pid: i32) -> Option<i32> {
    Some(procfs::process::Process::new(pid).ok()?.stat().ok()?.ppid)
}
