//! Being told of a sandbox that comes near its limit of memory, and of what the kernel kills there.
//!
//! memory.high lies a little below memory.max. What goes beyond it is slowed down by the kernel, ever more the
//! nearer it comes to the limit, and memory.events says so: that is when somebody can still choose what is to be
//! killed at the limit (Documentation/admin-guide/cgroup-v2.rst, "memory.high … external process"). It is to take no
//! longer than that: once the choice is made the brake is let go, until there is room again. Else all inside would
//! crawl for seconds where the kernel has only the pages of its programs left to take away.

use super::usage::field_of;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// What is left to the limit when the kernel begins to slow down: a 64th of the limit, and this. The kernel waits
/// 64·f² seconds for every 256 KiB that are charged at a share f beyond memory.high (mm/memcontrol.c,
/// calculate_high_delay), so that the rest of the way takes a third of a second or more at any limit.
const ROOM: u64 = 3 << 20;

/// Counts of `memory.events` of a sandbox, which include those of the cgroups below it.
#[derive(Debug)]
pub struct MemoryWatch {
    sandbox: PathBuf,
    events: File,
    seen: Counts,
    /// Our memory.high, where it is ours, in bytes.
    high: Option<u64>,
    /// It is let go.
    free: bool,
}

/// What was counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often it was slowed down.
    pub near: u64,
    /// How many processes were killed.
    pub kills: u64,
}

impl MemoryWatch {
    /// Begins to watch the sandbox whose cgroup this is; `None` without the memory controller.
    pub fn new(sandbox: &Path) -> Option<Self> {
        let events = File::open(sandbox.join("memory.events")).ok()?;
        let (sandbox, seen) = (sandbox.to_owned(), Counts::default());
        let mut watch = MemoryWatch { sandbox, events, seen, high: None, free: true };
        watch.high = watch.near();
        watch.brake();
        // Where it cannot be set, there is nothing to let go.
        watch.high = watch.high.filter(|_| !watch.free);
        watch.look();
        Some(watch)
    }

    /// One that only counts what is killed, from the begin of the sandbox on; `None` without the memory controller.
    pub fn of_kills(sandbox: &Path) -> Option<Self> {
        let events = File::open(sandbox.join("memory.events")).ok()?;
        let seen = Counts::default();
        Some(MemoryWatch { sandbox: sandbox.to_owned(), events, seen, high: None, free: false })
    }

    /// Where memory.high is to lie; nowhere without a limit, or where somebody has set it: that tells as well.
    fn near(&self) -> Option<u64> {
        let limit = self.number("memory.max")?;
        let room = limit / 64 + ROOM;
        (self.number("memory.high").is_none() && limit > 2 * room).then(|| limit - room)
    }

    /// A number of a file; `max` is none.
    fn number(&self, file: &str) -> Option<u64> {
        fs::read_to_string(self.sandbox.join(file)).ok()?.trim().parse().ok()
    }

    /// Sets memory.high, when there is room.
    fn brake(&mut self) {
        let Some(high) = self.high.filter(|_| self.free) else { return };
        // With more than that in use, to write it would take memory away from programs here and now.
        if self.number("memory.current").is_some_and(|current| current < high) {
            self.free = !self.write_high(&high.to_string());
        }
    }

    fn write_high(&self, text: &str) -> bool {
        fs::write(self.sandbox.join("memory.high"), text).is_ok()
    }

    /// Lets go of what is being slowed down, or takes hold again when there is room. To be called when all inside
    /// have been looked at.
    pub fn ease(&mut self) {
        let Some(high) = self.high else { return };
        if self.free {
            return self.brake();
        }
        // The kernel does not wait before a share of 1/80 (penalty_jiffies of a hundredth of a second).
        if self.number("memory.current").is_some_and(|current| current > high + high / 80) {
            self.free = self.write_high("max");
        }
    }

    /// Lets go for a while: the limit is about to change, or memory.high is.
    pub fn let_go(&mut self) {
        if self.high.is_some() && !self.free {
            self.free = self.write_high("max");
        }
    }

    /// Takes hold again, below the limit as it is now; what somebody else has set stays.
    pub fn take_hold(&mut self) {
        self.free = true;
        self.high = self.near();
        self.brake();
        self.high = self.high.filter(|_| !self.free);
    }

    /// Whether nobody is slowed down now, and nothing told, though it is near the limit.
    pub fn is_free(&self) -> bool {
        self.free && self.high.is_some()
    }

    /// What has been counted since the last look. Nothing, when the cgroup is gone.
    pub fn look(&mut self) -> Counts {
        let mut text = String::new();
        if self.events.rewind().and_then(|()| self.events.read_to_string(&mut text)).is_err() {
            return Counts::default();
        }
        let count = |name| field_of(&text, name).unwrap_or(0);
        let now = Counts { near: count("high"), kills: count("oom_kill") };
        let before = std::mem::replace(&mut self.seen, now);
        let (near, kills) = (now.near.saturating_sub(before.near), now.kills.saturating_sub(before.kills));
        Counts { near, kills }
    }
}

impl AsFd for MemoryWatch {
    /// POLLPRI when there is something new.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with these files stands for a cgroup.
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
        assert_eq!((high(&scratch), watch.is_free()), ((60 << 20).to_string(), false));
        for (current, free) in [(60 << 20, false), (61 << 20, true), (60 << 20, true), (59 << 20, false)] {
            fs::write(scratch.path().join("memory.current"), current.to_string()).unwrap();
            watch.ease();
            assert_eq!((watch.is_free(), high(&scratch) == "max"), (free, free), "{current}");
        }
        for (max, set) in [("67108864\n", "1000\n"), ("max\n", "max\n"), ("4194304\n", "max\n")] {
            let scratch = with(max, set);
            assert!(!MemoryWatch::new(scratch.path()).unwrap().is_free());
            assert_eq!(high(&scratch), set);
        }
        assert!(MemoryWatch::new(cgroup(&[]).path()).is_none());
    }

    #[test]
    fn a_look_tells_what_is_new() {
        let scratch = cgroup(&[("memory.events", "low 0\nhigh 2\nmax 1\noom 1\noom_kill 1\n")]);
        let mut watch = MemoryWatch::new(scratch.path()).unwrap();
        assert_eq!(watch.look(), Counts::default());
        fs::write(scratch.path().join("memory.events"), "low 0\nhigh 5\nmax 9\noom 1\noom_kill 3\n").unwrap();
        assert_eq!(watch.look(), Counts { near: 3, kills: 2 });
        assert_eq!(watch.look(), Counts::default());
    }
}
