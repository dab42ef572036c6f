//! Processes of the sandbox: a request names one by its number, and what is no descendant of pid 1 is left alone.

use super::{KILL, KILL_FIRST, KILL_LAST, Workers};
use crate::host::processes::parent_of;
use crate::stage::launcher::Launcher;
use crate::supervise::{memory, tree};
use nix::fcntl::OFlag;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;

/// How far a process is below pid 1 at most.
const DEEPEST: usize = 4096;

/// Kills this program with everything that it has started.
pub(in crate::supervise) fn kill(launcher: &Launcher, pid: i32) {
    wait(launcher, KILL, u64::from(pid.cast_unsigned()));
}

/// Has the kernel take this process before others.
pub(in crate::supervise) fn kill_first(launcher: &Launcher, pid: i32) {
    wait(launcher, KILL_FIRST, u64::from(pid.cast_unsigned()));
}

/// Has the kernel take all others before these two.
pub(in crate::supervise) fn kill_last(launcher: &Launcher, [one, other]: [i32; 2]) {
    wait(launcher, KILL_LAST, u64::from(one.cast_unsigned()) << 32 | u64::from(other.cast_unsigned()));
}

/// Has it done, and waits until it is.
fn wait(launcher: &Launcher, worker: u32, argument: u64) {
    let Ok((read, write)) = nix::unistd::pipe2(OFlag::O_CLOEXEC) else { return };
    // Without a launcher the sandbox ends anyway.
    if launcher.work(worker, argument, &[write.as_raw_fd()]).is_ok() {
        drop(write);
        let _ = File::from(read).read(&mut [0]);
    }
}

impl Workers<'_> {
    pub(super) fn kill(&self, argument: u64) {
        if let Some(pid) = self.inside(argument) {
            tree::kill(pid);
        }
    }

    pub(super) fn kill_first(&self, argument: u64) {
        let name =
            self.cgroup.as_deref().and_then(|cgroup| cgroup.file_name()).and_then(|name| name.to_str());
        if let Some((pid, name)) = self.inside(argument).zip(name) {
            memory::kill_first(pid, name);
        }
    }

    pub(super) fn kill_last(&self, argument: u64) {
        let number = |half: u64| u32::try_from(half & u64::from(u32::MAX)).unwrap_or(0).cast_signed();
        if let Some(cgroup) = &self.cgroup {
            memory::kill_last([number(argument >> 32), number(argument)], cgroup);
        }
    }

    /// The process that a request names, if it is one of the sandbox.
    pub(super) fn inside(&self, argument: u64) -> Option<i32> {
        let pid = i32::try_from(argument).ok()?;
        let above = std::iter::successors(Some(pid), |pid| parent_of(*pid)).take(DEEPEST).skip(1);
        above.take_while(|pid| *pid > 1).any(|pid| pid == self.init).then_some(pid)
    }
}
