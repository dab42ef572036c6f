//! Identifies a process by more than its pid, which the kernel may have reused.

use saggar_sys::error::{Error, Result};
use saggar_sys::read::{kernel_file, kernel_text};
use saggar_sys::{Errno, SysResult, pidfd, processes};
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A process, unique across reboots: its pid, its start time, and the boot id.
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
    pub fn from_pid(pid: i32) -> Option<Self> {
        let (_, start_time) = read_stat(pid)?;
        Some(ProcessId { pid, start_time, boot_id: boot_id().to_owned() })
    }

    /// The current process.
    pub fn current() -> Option<Self> {
        ProcessId::from_pid(std::process::id().cast_signed())
    }

    /// Whether it runs; false for a zombie, and for a process that `/proc` hides.
    pub fn is_alive(&self) -> bool {
        self.boot_id == boot_id() && read_stat(self.pid).is_some_and(|now| self.runs_as(now))
    }

    /// Whether it runs; where `/proc` hides the process (hidepid), whether any process of the same user has its pid. A
    /// supervisor is hidden from its own user, since it is not dumpable.
    pub fn is_alive_or_hidden(&self) -> bool {
        self.boot_id == boot_id()
            && read_stat(self.pid).map_or_else(|| is_hidden_and_runs(self.pid), |now| self.runs_as(now))
    }

    /// Whether a state and a start time are those of this process, and it runs.
    fn runs_as(&self, (state, start_time): (u8, u64)) -> bool {
        start_time == self.start_time && !has_exited(state)
    }

    /// The wait status (wait(2)) of a zombie, before its parent reaps it (field 52 of /proc/PID/stat).
    pub fn zombie_status(&self) -> Option<i32> {
        let text = kernel_file(format!("/proc/{}/stat", self.pid).as_ref()).ok()?;
        let (state, start_time) = parse_stat(&text)?;
        let last = text.trim_ascii_end().rsplit(|byte| *byte == b' ').next()?;
        let is_it = self.boot_id == boot_id() && start_time == self.start_time && state == b'Z';
        if is_it { std::str::from_utf8(last).ok()?.parse().ok() } else { None }
    }

    /// Opens a pidfd of this process, and of no other with the same pid.
    ///
    /// # Errors
    /// ESRCH when it has exited or is hidden; those of pidfd_open(2).
    pub fn open_pidfd(&self) -> SysResult<OwnedFd> {
        self.open_pidfd_if(ProcessId::is_alive)
    }

    /// Opens a pidfd to wait for the exit of this process, of which [`ProcessId::is_alive_or_hidden`] holds.
    ///
    /// # Errors
    /// ESRCH when it has exited; those of pidfd_open(2).
    pub fn open_pidfd_to_wait(&self) -> SysResult<OwnedFd> {
        self.open_pidfd_if(ProcessId::is_alive_or_hidden)
    }

    fn open_pidfd_if(&self, is_it: impl FnOnce(&Self) -> bool) -> SysResult<OwnedFd> {
        let pidfd = pidfd::open(self.pid)?;
        // Checked after the open: this detects a pid that was reused before it.
        if is_it(self) { Ok(pidfd) } else { Err(Errno::ESRCH) }
    }

    /// Kills the process and waits at most `max_wait` until it has ended; true if it has. False for a process that this
    /// user cannot kill, that hangs in the kernel, or that `/proc` hides: it could be another one.
    pub fn kill_and_wait(&self, max_wait: Duration) -> bool {
        let Ok(pidfd) = self.open_pidfd() else { return !self.is_alive_or_hidden() };
        let _ = pidfd::signal(pidfd.as_fd(), libc::SIGKILL);
        wait_for_exit(&pidfd, max_wait)
    }
}

/// Waits at most `max_wait` until the process of a pidfd has ended, reaped or not; true if it has.
pub fn wait_for_exit(pidfd: &OwnedFd, max_wait: Duration) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let end = Instant::now() + max_wait;
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

/// Whether a process that `/proc` does not show runs and takes signals of this process.
fn is_hidden_and_runs(pid: i32) -> bool {
    let Ok(pidfd) = pidfd::open(pid) else { return false };
    // Without a signal, only the permission is checked (kill(2)).
    pidfd::signal(pidfd.as_fd(), 0).is_ok()
        && !wait_for_exit(&pidfd, Duration::ZERO)
        && processes::are_hidden()
}

fn has_exited(state: u8) -> bool {
    matches!(state, b'Z' | b'X' | b'x')
}

/// When the process that has this pid now started, in clock ticks after boot.
///
/// # Errors
/// [`saggar_sys::error::Code::System`] when there is none.
pub fn start_time(pid: i32) -> Result<u64> {
    let path = format!("/proc/{pid}/stat");
    let text = kernel_file(path.as_ref()).map_err(|e| {
        let error = Error::system(format_args!("read {path}"), e);
        match processes::are_hidden() {
            true => error.hint(
                "/proc hides processes here (hidepid): mount it without, or with gid= of a group of the user",
            ),
            false => error,
        }
    })?;
    let (_, start_time) = parse_stat(&text)
        .ok_or_else(|| Error::system(format_args!("read {path}"), "it has no start time"))?;
    Ok(start_time)
}

/// State and start time of a process.
fn read_stat(pid: i32) -> Option<(u8, u64)> {
    parse_stat(&kernel_file(format!("/proc/{pid}/stat").as_ref()).ok()?)
}

fn parse_stat(text: &[u8]) -> Option<(u8, u64)> {
    // The process name, in parentheses, may contain any byte.
    let after = text.iter().rposition(|byte| *byte == b')')? + 2;
    let fields = std::str::from_utf8(text.get(after..)?).ok()?;
    let mut fields = fields.split(' ');
    let state = *fields.next()?.as_bytes().first()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// The id of this boot.
pub fn boot_id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| {
        let text = kernel_text("/proc/sys/kernel/random/boot_id".as_ref()).unwrap_or_default();
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
        let id = ProcessId::from_pid(child.id().cast_signed()).unwrap();
        assert!(id.is_alive() && id.open_pidfd().is_ok());
        let other_time = ProcessId { start_time: id.start_time + 1, ..id.clone() };
        let other_boot = ProcessId { boot_id: "another".into(), pid: id.pid, start_time: id.start_time };
        for other in [other_time, other_boot] {
            assert!(!other.is_alive() && other.open_pidfd().is_err() && other.kill_and_wait(Duration::ZERO));
        }
        assert!(id.kill_and_wait(Duration::from_secs(60)));
        assert!(!id.is_alive(), "a zombie is over");
        child.wait().unwrap();
        assert!(!id.is_alive() && ProcessId::from_pid(id.pid).is_none_or(|now| now != id));
    }
}
