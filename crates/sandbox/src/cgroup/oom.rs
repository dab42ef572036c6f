//! Notification when a cgroup runs out of memory.

use super::agent::usage::{SandboxUsage, parse_field};
use super::control_files::{ControlFiles, OpenCgroups};
use super::limits::V1_NO_LIMIT;
use crate::host::cgroups::CgroupVersion;
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use saggar_sys::error::{Code, Error, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A descriptor that becomes readable when the cgroup runs out of memory, and when it ends: when its last process exits
/// (v2), or when the cgroup is removed.
#[derive(Debug)]
pub struct OomWatch {
    source: OomSource,
}

#[derive(Debug)]
enum OomSource {
    /// inotify reports changes of `memory.events` and `cgroup.events`, and the removal of the directory (cgroup v2).
    V2 { inotify: Inotify, memory: PathBuf, cgroup: PathBuf, killed: u64, populated: bool },
    /// The kernel counts events in an eventfd (Documentation/admin-guide/cgroup-v1/memory.rst, section 10).
    V1 { count: EventFd, control: PathBuf, _file: OwnedFd },
}

/// An event since the last call of [`OomWatch::next_event`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OomEvent {
    /// No relevant change.
    NoChange,
    /// The kernel killed a process, or a process waits because the OOM killer is disabled.
    OutOfMemory,
    /// The last process has exited, or the cgroup was removed.
    Ended,
}

impl OomWatch {
    pub(super) fn new(dirs: &OpenCgroups) -> Result<Self> {
        let no_memory = || {
            Error::new(Code::Unsupported, "the container has no memory cgroup, which would report it")
                .hint("start it where the memory controller is available (see saggar doctor)")
        };
        let dir = dirs.directory_for("memory").ok_or_else(no_memory)?;
        let failed = |file: &str, errno: Errno| {
            Error::system(format_args!("watch {}", dir.path.join(file).display()), errno.desc())
        };
        let source = match dir.version {
            CgroupVersion::V2 => {
                let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK);
                let inotify = inotify.map_err(|errno| failed("memory.events", errno))?;
                for file in ["memory.events", "cgroup.events"] {
                    let watched = inotify.add_watch(&dir.path.join(file), AddWatchFlags::IN_MODIFY);
                    watched.map_err(|errno| failed(file, errno))?;
                }
                // The kernel delays change events by 10 ms, and drops them when the file is removed. So the removal is
                // watched too.
                let flags = AddWatchFlags::IN_DELETE | AddWatchFlags::IN_ONLYDIR;
                let watched = dir.path.parent().map(|above| inotify.add_watch(above, flags));
                watched.transpose().map_err(|errno| failed("..", errno))?;
                let (memory, cgroup) = (dir.path.join("memory.events"), dir.path.join("cgroup.events"));
                let killed = read_key(&memory, "oom_kill").unwrap_or(0);
                let populated = read_key(&cgroup, "populated").is_some_and(|value| value > 0);
                OomSource::V2 { inotify, memory, cgroup, killed, populated }
            }
            CgroupVersion::V1 => {
                let file = dir.file("memory.oom_control", libc::O_RDONLY);
                let file = file.map_err(|errno| failed("memory.oom_control", errno))?;
                let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
                let count = EventFd::from_value_and_flags(0, flags);
                let count = count.map_err(|errno| failed("memory.oom_control", errno))?;
                let order = format!("{} {}", count.as_fd().as_raw_fd(), file.as_raw_fd());
                let written = dirs.write("memory", "cgroup.event_control", &order);
                written.map_err(|errno| failed("cgroup.event_control", errno))?;
                OomSource::V1 { count, control: dir.path.join("cgroup.event_control"), _file: file }
            }
        };
        Ok(OomWatch { source })
    }

    /// The event since the last call; does not wait. After [`OomEvent::OutOfMemory`] call it again: the cgroup may have
    /// ended too.
    ///
    /// # Errors
    /// If the descriptor cannot be read.
    pub fn next_event(&mut self) -> Result<OomEvent> {
        match &mut self.source {
            OomSource::V2 { inotify, memory, cgroup, killed, populated } => {
                // The content of the inotify events is not used: the files hold the number of kills, and whether
                // processes are left.
                match inotify.read_events() {
                    Ok(_) | Err(Errno::EAGAIN) => {}
                    Err(errno) => return Err(Error::system("read inotify(7) events", errno.desc())),
                }
                let before = (*killed, *populated);
                let now = (read_key(memory, "oom_kill"), read_key(cgroup, "populated"));
                let (Some(kills), Some(some)) = now else { return Ok(OomEvent::Ended) };
                if kills > before.0 {
                    // The next call reports whether the cgroup has ended.
                    *killed = kills;
                    return Ok(OomEvent::OutOfMemory);
                }
                *populated = some > 0;
                Ok(if before.1 && !*populated { OomEvent::Ended } else { OomEvent::NoChange })
            }
            OomSource::V1 { count, control, .. } => match count.read() {
                // The kernel counts the removal as an event, too.
                Ok(_) if !control.exists() => Ok(OomEvent::Ended),
                Ok(_) => Ok(OomEvent::OutOfMemory),
                Err(Errno::EAGAIN) if !control.exists() => Ok(OomEvent::Ended),
                Err(Errno::EAGAIN) => Ok(OomEvent::NoChange),
                Err(errno) => Err(Error::system("read an eventfd(2)", errno.desc())),
            },
        }
    }
}

/// Limit and peak of memory, and the number of processes that the kernel killed because it ran out. Without a memory
/// controller all are `None`.
pub(super) fn memory_usage(dirs: &OpenCgroups) -> SandboxUsage {
    let Some(dir) = dirs.directory_for("memory") else { return SandboxUsage::default() };
    let (limit, peak, kills) = match dir.version {
        CgroupVersion::V2 => ("memory.max", "memory.peak", "memory.events"),
        CgroupVersion::V1 => ("memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control"),
    };
    let number = |file: &str| dir.read(file).ok()?.trim().parse::<u64>().ok();
    SandboxUsage {
        memory_max: number(limit).filter(|limit| *limit < V1_NO_LIMIT),
        memory_peak: number(peak),
        oom_kills: dir.read(kills).ok().and_then(|text| parse_field(&text, "oom_kill")),
        ..SandboxUsage::default()
    }
}

/// A value of a flat keyed file; `None` if the cgroup was removed. Of `memory.events` only `oom_kill` is used: `oom`
/// also counts allocations that succeeded in the end.
fn read_key(file: &Path, key: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
    Some(pairs.find(|(name, _)| *name == key).and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(0))
}

impl AsFd for OomWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.source {
            OomSource::V2 { inotify, .. } => inotify.as_fd(),
            OomSource::V1 { count, .. } => count.as_fd(),
        }
    }
}
