//! Processes of this host.

use crate::read::kernel_file;
use procfs::FromRead;
use procfs::process::Stat;

/// The parent of a process; `None` if the process has exited or is hidden (proc_pid_stat(5)).
pub fn parent_of(pid: i32) -> Option<i32> {
    let text = kernel_file(format!("/proc/{pid}/stat").as_ref()).ok()?;
    Some(Stat::from_read(&text[..]).ok()?.ppid)
}

/// The `hidepid` option of `/proc` in the text of `/proc/self/mounts`, if it is not off (proc(5)).
pub fn hidepid_option(mounts: &str) -> Option<String> {
    let proc = mounts.lines().rfind(|line| line.split(' ').nth(1) == Some("/proc"))?;
    let options = proc.split(' ').nth(3)?;
    let off = ["hidepid=0", "hidepid=off"];
    options
        .split(',')
        .find(|option| option.starts_with("hidepid=") && !off.contains(option))
        .map(str::to_owned)
}

/// Whether `/proc` hides processes that this process may not trace: also those of its own user that are not dumpable.
pub fn are_hidden() -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts");
    mounts.is_ok_and(|mounts| hidepid_option(&mounts).is_some())
}

#[cfg(test)]
mod tests {
    use super::hidepid_option;

    #[test]
    fn hidepid_is_that_of_the_uppermost_proc() {
        let mounts = "proc /proc proc rw,hidepid=2 0 0\nproc /proc proc rw,hidepid=invisible 0 0\n";
        assert_eq!(hidepid_option(mounts).as_deref(), Some("hidepid=invisible"));
        assert_eq!(hidepid_option("proc /proc proc rw,hidepid=off 0 0\n"), None);
        assert_eq!(hidepid_option("proc /x/proc proc rw,hidepid=2 0 0\n"), None);
    }
}
