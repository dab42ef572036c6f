//! Early notification that a sandbox approaches its memory limit, and counts of the kernel's kills there.
//!
//! memory.high is set slightly below memory.max. Above it the kernel throttles allocations, the more the closer usage
//! is to the limit, and memory.events counts that. This leaves time to choose which process to kill at the limit
//! (Documentation/admin-guide/cgroup-v2.rst, "memory.high … external process"). The throttle must not last longer than
//! that: it is released once the choice is made, until usage has dropped again. Otherwise all processes inside would be
//! slowed down for seconds while the kernel can only reclaim the pages of their executables.

use super::usage::parse_field;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// Minimum distance in bytes between memory.high and the limit, in addition to a 64th of the limit. The kernel delays
/// every 256 KiB charged at a share f beyond memory.high by 64·f² seconds (mm/memcontrol.c, calculate_high_delay), so
/// reaching the limit takes at least a third of a second at any limit.
const MIN_HEADROOM: u64 = 3 << 20;

/// Watches `memory.events` of a sandbox, whose counts include the cgroups below it.
#[derive(Debug)]
pub struct MemoryWatch {
    sandbox: PathBuf,
    events: File,
    last_counts: MemoryEventCounts,
    /// The value of memory.high that we set, in bytes; `None` if we did not set it.
    high: Option<u64>,
    /// Whether the throttle is released.
    released: bool,
}

/// Counts from `memory.events`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryEventCounts {
    /// Number of times the sandbox was throttled.
    pub throttled: u64,
    /// Number of processes that were killed.
    pub killed: u64,
}

impl MemoryWatch {
    /// Starts watching the sandbox with this cgroup; `None` without the memory controller.
    pub fn new(sandbox: &Path) -> Option<Self> {
        let events = File::open(sandbox.join("memory.events")).ok()?;
        let (sandbox, seen) = (sandbox.to_owned(), MemoryEventCounts::default());
        let mut watch = MemoryWatch { sandbox, events, last_counts: seen, high: None, released: true };
        watch.high = watch.throttle_point();
        watch.set_throttle();
        // If memory.high cannot be set, there is no throttle to release.
        watch.high = watch.high.filter(|_| !watch.released);
        watch.read_new_counts();
        Some(watch)
    }

    /// A watch that only counts kills, from the start of the sandbox on; `None` without the memory controller.
    pub fn kills_only(sandbox: &Path) -> Option<Self> {
        let events = File::open(sandbox.join("memory.events")).ok()?;
        let seen = MemoryEventCounts::default();
        Some(MemoryWatch {
            sandbox: sandbox.to_owned(),
            events,
            last_counts: seen,
            high: None,
            released: false,
        })
    }

    /// The value for memory.high; `None` without a limit, or if another process has set memory.high: its value
    /// throttles and notifies as well.
    fn throttle_point(&self) -> Option<u64> {
        let limit = self.number("memory.max")?;
        let headroom = limit / 64 + MIN_HEADROOM;
        (self.number("memory.high").is_none() && limit > 2 * headroom).then(|| limit - headroom)
    }

    /// The number in a file; `None` for `max`.
    fn number(&self, file: &str) -> Option<u64> {
        fs::read_to_string(self.sandbox.join(file)).ok()?.trim().parse().ok()
    }

    /// Sets memory.high if usage is below it.
    fn set_throttle(&mut self) {
        let Some(high) = self.high.filter(|_| self.released) else { return };
        // If usage is higher, the write would reclaim memory from programs immediately.
        if self.number("memory.current").is_some_and(|current| current < high) {
            self.released = !self.write_high(&high.to_string());
        }
    }

    fn write_high(&self, text: &str) -> bool {
        fs::write(self.sandbox.join("memory.high"), text).is_ok()
    }

    /// Releases the throttle if the sandbox is being throttled, or restores it if usage has dropped. Call it when all
    /// processes inside have been inspected.
    pub fn update_throttle(&mut self) {
        let Some(high) = self.high else { return };
        if self.released {
            return self.set_throttle();
        }
        // The kernel does not delay below a share of 1/80 (penalty_jiffies of a hundredth of a second).
        if self.number("memory.current").is_some_and(|current| current > high + high / 80) {
            self.released = self.write_high("max");
        }
    }

    /// Releases the throttle temporarily: the limit or memory.high is about to change.
    pub fn release_throttle(&mut self) {
        if self.high.is_some() && !self.released {
            self.released = self.write_high("max");
        }
    }

    /// Restores the throttle below the current limit; a value that another process has set is kept.
    pub fn restore_throttle(&mut self) {
        self.released = true;
        self.high = self.throttle_point();
        self.set_throttle();
        self.high = self.high.filter(|_| !self.released);
    }

    /// Whether the throttle is released: no process is slowed down or reported, although usage is near the limit.
    pub fn is_released(&self) -> bool {
        self.released && self.high.is_some()
    }

    /// The counts since the last call; zero if the cgroup was removed.
    pub fn read_new_counts(&mut self) -> MemoryEventCounts {
        let mut text = String::new();
        if self.events.rewind().and_then(|()| self.events.read_to_string(&mut text)).is_err() {
            return MemoryEventCounts::default();
        }
        let count = |name| parse_field(&text, name).unwrap_or(0);
        let now = MemoryEventCounts { throttled: count("high"), killed: count("oom_kill") };
        let before = std::mem::replace(&mut self.last_counts, now);
        let (near, kills) =
            (now.throttled.saturating_sub(before.throttled), now.killed.saturating_sub(before.killed));
        MemoryEventCounts { throttled: near, killed: kills }
    }
}

impl AsFd for MemoryWatch {
    /// The descriptor is ready for POLLPRI when counts have changed.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with these files, as a fake cgroup.
    fn cgroup(files: &[(&str, &str)]) -> tempfile::TempDir {
        let scratch = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| fs::write(scratch.path().join(name), text).unwrap());
        scratch
    }

    #[test]
    fn near_the_limit_is_set_by_nobody_else_and_let_go_when_it_bites() {
        let high =
            |scratch: &tempfile::TempDir| fs::read_to_string(scratch.path().join("memory.high")).unwrap();
        let with = |max: &str, high: &str| {
            let files =
                [("memory.events", ""), ("memory.max", max), ("memory.high", high), ("memory.current", "5")];
            cgroup(&files)
        };
        let scratch = with("67108864\n", "max\n");
        let mut watch = MemoryWatch::new(scratch.path()).unwrap();
        assert_eq!((high(&scratch), watch.is_released()), ((60 << 20).to_string(), false));
        for (current, free) in [(60 << 20, false), (61 << 20, true), (60 << 20, true), (59 << 20, false)] {
            fs::write(scratch.path().join("memory.current"), current.to_string()).unwrap();
            watch.update_throttle();
            assert_eq!((watch.is_released(), high(&scratch) == "max"), (free, free), "{current}");
        }
        for (max, set) in [("67108864\n", "1000\n"), ("max\n", "max\n"), ("4194304\n", "max\n")] {
            let scratch = with(max, set);
            assert!(!MemoryWatch::new(scratch.path()).unwrap().is_released());
            assert_eq!(high(&scratch), set);
        }
        assert!(MemoryWatch::new(cgroup(&[]).path()).is_none());
    }

    #[test]
    fn a_look_tells_what_is_new() {
        let scratch = cgroup(&[("memory.events", "low 0\nhigh 2\nmax 1\noom 1\noom_kill 1\n")]);
        let mut watch = MemoryWatch::new(scratch.path()).unwrap();
        assert_eq!(watch.read_new_counts(), MemoryEventCounts::default());
        fs::write(scratch.path().join("memory.events"), "low 0\nhigh 5\nmax 9\noom 1\noom_kill 3\n").unwrap();
        assert_eq!(watch.read_new_counts(), MemoryEventCounts { throttled: 3, killed: 2 });
        assert_eq!(watch.read_new_counts(), MemoryEventCounts::default());
    }
}
