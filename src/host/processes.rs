//! The processes of this host.

/// The parent of a process, as long as it lives and can be seen (proc_pid_stat(5)).
pub fn parent_of(pid: i32) -> Option<i32> {
    Some(procfs::process::Process::new(pid).ok()?.stat().ok()?.ppid)
}
