//! Operations on processes of the sandbox. A request names one by its pid; a process that is not a descendant of pid 1
//! is left alone.

use super::{KILL_TREE, PREFER_FOR_OOM, SPARE_FROM_OOM, WorkerContext};
use crate::host::processes::parent_of;
use crate::stage::agent::launcher::Launcher;
use crate::supervise::{memory, process_tree};
use nix::fcntl::OFlag;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;

/// Most levels of a process below pid 1.
const MAX_DEPTH: usize = 4096;

/// Kills this program with all of its descendants.
pub(in crate::supervise) fn kill_tree(launcher: &Launcher, pid: i32) {
    run_and_wait(launcher, KILL_TREE, u64::from(pid.cast_unsigned()));
}

/// Makes the OOM killer prefer this process.
pub(in crate::supervise) fn prefer_for_oom(launcher: &Launcher, pid: i32) {
    run_and_wait(launcher, PREFER_FOR_OOM, u64::from(pid.cast_unsigned()));
}

/// Makes the OOM killer prefer all others to these two.
pub(in crate::supervise) fn spare_from_oom(launcher: &Launcher, [one, other]: [i32; 2]) {
    run_and_wait(
        launcher,
        SPARE_FROM_OOM,
        u64::from(one.cast_unsigned()) << 32 | u64::from(other.cast_unsigned()),
    );
}

/// Runs a worker, and waits until it has exited.
fn run_and_wait(launcher: &Launcher, worker: u32, argument: u64) {
    let Ok((read, write)) = nix::unistd::pipe2(OFlag::O_CLOEXEC) else { return };
    // Without a launcher the sandbox ends anyway.
    if launcher.start_worker(worker, argument, &[write.as_raw_fd()]).is_ok() {
        drop(write);
        let _ = File::from(read).read(&mut [0]);
    }
}

impl WorkerContext<'_> {
    pub(super) fn serve_kill_tree(&self, argument: u64) {
        if let Some(pid) = self.find_descendant(argument) {
            process_tree::kill_tree(pid);
        }
    }

    pub(super) fn serve_prefer_for_oom(&self, argument: u64) {
        let name =
            self.cgroup.as_deref().and_then(|cgroup| cgroup.file_name()).and_then(|name| name.to_str());
        if let Some((pid, name)) = self.find_descendant(argument).zip(name) {
            memory::prefer_for_oom(pid, name);
        }
    }

    pub(super) fn serve_spare_from_oom(&self, argument: u64) {
        let number = |half: u64| u32::try_from(half & u64::from(u32::MAX)).unwrap_or(0).cast_signed();
        if let Some(cgroup) = &self.cgroup {
            memory::spare_from_oom([number(argument >> 32), number(argument)], cgroup);
        }
    }

    /// The process that a request names, if it belongs to the sandbox.
    pub(super) fn find_descendant(&self, argument: u64) -> Option<i32> {
        let pid = i32::try_from(argument).ok()?;
        let above = std::iter::successors(Some(pid), |pid| parent_of(*pid)).take(MAX_DEPTH).skip(1);
        above.take_while(|pid| *pid > 1).any(|pid| pid == self.init).then_some(pid)
    }
}
