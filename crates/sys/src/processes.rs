//! Processes of this host.

use crate::read::kernel_file;
use procfs::FromRead;
use procfs::process::Stat;

/// The parent of a process; `None` if the process has exited or is hidden (proc_pid_stat(5)).
pub fn parent_of(pid: i32) -> Option<i32> {
    let text = kernel_file(format!("/proc/{pid}/stat").as_ref()).ok()?;
    Some(Stat::from_read(&text[..]).ok()?.ppid)
}
