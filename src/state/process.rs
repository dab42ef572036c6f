//! Which process a pid means: a number alone may have been given to another since.

use crate::sys::{Errno, SysResult, pidfd};
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A process for as long as the machine runs: its pid, when it started, and which boot that was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessId {
    /// The pid in the runtime's pid namespace.
    pub pid: i32,
    /// Clock ticks after boot (field 22 of /proc/PID/stat, proc_pid_stat(5)).
    pub start_time: u64,
    /// /proc/sys/kernel/random/boot_id
    pub boot_id: String,
}

impl ProcessId {
    /// The process that has this pid now; `None` when there is none.
    pub fn of(pid: i32) -> Option<Self> {
        let (_, start_time) = stat(pid)?;
        Some(ProcessId { pid, start_time, boot_id: boot_id().to_owned() })
    }

    /// This process.
    pub fn own() -> Option<Self> {
        ProcessId::of(std::process::id().cast_signed())
    }

    /// Whether it runs; one that waits for its parent to reap it does not.
    pub fn is_alive(&self) -> bool {
        let now = stat(self.pid);
        self.boot_id == boot_id() && now.is_some_and(|now| now.1 == self.start_time && !is_over(now.0))
    }

    /// How it ended, as wait(2) gives it, while it waits for its parent to reap it (field 52 of /proc/PID/stat).
    pub fn zombie_status(&self) -> Option<i32> {
        let text = fs::read(format!("/proc/{}/stat", self.pid)).ok()?;
        let (state, start_time) = parse(&text)?;
        let last = text.trim_ascii_end().rsplit(|byte| *byte == b' ').next()?;
        let is_it = self.boot_id == boot_id() && start_time == self.start_time && state == b'Z';
        if is_it { std::str::from_utf8(last).ok()?.parse().ok() } else { None }
    }

    /// A pidfd of it, and of no other.
    ///
    /// # Errors
    /// ESRCH when it is gone; those of pidfd_open(2).
    pub fn open(&self) -> SysResult<OwnedFd> {
        let pidfd = pidfd::open(self.pid)?;
        // Looked at after the descriptor was opened: had the pid changed hands before, this shows it.
        if self.is_alive() { Ok(pidfd) } else { Err(Errno::ESRCH) }
    }

    /// Kills it and waits until it has ended, at most for `patience`; whether it has. A process that cannot be
    /// killed by us, or hangs in the kernel, has not.
    pub fn kill(&self, patience: Duration) -> bool {
        let Ok(pidfd) = self.open() else { return !self.is_alive() };
        let _ = pidfd::signal(pidfd.as_fd(), libc::SIGKILL);
        wait(&pidfd, patience)
    }
}

/// Waits until the process behind a pidfd has ended, reaped or not, at most for `patience`; whether it has.
pub fn wait(pidfd: &OwnedFd, patience: Duration) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let end = Instant::now() + patience;
    loop {
        let left = end.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)], timeout) {
            Err(Errno::EINTR) => {}
            Ok(ready) => return ready > 0,
            Err(errno) => {
                log::warn!("wait for the process behind descriptor {}: {errno}", pidfd.as_raw_fd());
                return false;
            }
        }
    }
}

fn is_over(state: u8) -> bool {
    matches!(state, b'Z' | b'X' | b'x')
}

/// State and start time of a process.
fn stat(pid: i32) -> Option<(u8, u64)> {
    parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

fn parse(text: &[u8]) -> Option<(u8, u64)> {
    // The name, in parentheses, may have any byte in it.
    let after = text.iter().rposition(|byte| *byte == b')')? + 2;
    let fields = std::str::from_utf8(text.get(after..)?).ok()?;
    let mut fields = fields.split(' ');
    let state = *fields.next()?.as_bytes().first()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// The name of this boot.
pub fn boot_id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        text.trim_end().to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_itself_until_it_ends_and_its_pid_alone_is_not_enough() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let id = ProcessId::of(child.id().cast_signed()).unwrap();
        assert!(id.is_alive() && id.open().is_ok());
        let other_time = ProcessId { start_time: id.start_time + 1, ..id.clone() };
        let other_boot = ProcessId { boot_id: "another".into(), pid: id.pid, start_time: id.start_time };
        for other in [other_time, other_boot] {
            assert!(!other.is_alive() && other.open().is_err() && other.kill(Duration::ZERO));
        }
        assert!(id.kill(Duration::from_secs(60)));
        assert!(!id.is_alive(), "a zombie is over");
        child.wait().unwrap();
        assert!(!id.is_alive() && ProcessId::of(id.pid).is_none_or(|now| now != id));
    }
}
