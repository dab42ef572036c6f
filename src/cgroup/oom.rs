//! Being told when a cgroup runs out of memory.

use super::tree::{Dirs, Tree};
use crate::error::{Code, Error, Result};
use crate::host::cgroups::Version;
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Becomes readable when the cgroup ran out of memory, and when that is over: when the last process ended (v2), or
/// the cgroup was removed.
#[derive(Debug)]
pub struct OomWatch {
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// `memory.events` and `cgroup.events` change, and the directory goes (cgroup v2).
    V2 { inotify: Inotify, memory: PathBuf, cgroup: PathBuf, killed: u64, populated: bool },
    /// The kernel counts in an eventfd (Documentation/admin-guide/cgroup-v1/memory.rst, section 10).
    V1 { count: EventFd, control: PathBuf, _file: OwnedFd },
}

/// What happened since the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OomEvent {
    /// Nothing that counts.
    Nothing,
    /// A process was killed, or waits where the killer is off.
    OutOfMemory,
    /// No process is left, or the cgroup is gone.
    Over,
}

impl OomWatch {
    pub(super) fn new(dirs: &Dirs) -> Result<Self> {
        let no_memory = || {
            Error::new(Code::Unsupported, "the container has no memory cgroup, which would tell of it")
                .hint("start it where the memory controller is to be had (saggar doctor tells)")
        };
        let dir = dirs.home("memory").ok_or_else(no_memory)?;
        let failed = |file: &str, errno: Errno| {
            Error::system(format_args!("watch {}", dir.path.join(file).display()), errno.desc())
        };
        let source = match dir.version {
            Version::V2 => {
                let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK);
                let inotify = inotify.map_err(|errno| failed("memory.events", errno))?;
                for file in ["memory.events", "cgroup.events"] {
                    let watched = inotify.add_watch(&dir.path.join(file), AddWatchFlags::IN_MODIFY);
                    watched.map_err(|errno| failed(file, errno))?;
                }
                // The kernel holds changes back for 10 ms, and forgets them with the file: so the removal, too.
                let flags = AddWatchFlags::IN_DELETE | AddWatchFlags::IN_ONLYDIR;
                let watched = dir.path.parent().map(|above| inotify.add_watch(above, flags));
                watched.transpose().map_err(|errno| failed("..", errno))?;
                let (memory, cgroup) = (dir.path.join("memory.events"), dir.path.join("cgroup.events"));
                let killed = value(&memory, "oom_kill").unwrap_or(0);
                let populated = value(&cgroup, "populated").is_some_and(|value| value > 0);
                Source::V2 { inotify, memory, cgroup, killed, populated }
            }
            Version::V1 => {
                let file = dir.file("memory.oom_control", libc::O_RDONLY);
                let file = file.map_err(|errno| failed("memory.oom_control", errno))?;
                let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
                let count = EventFd::from_value_and_flags(0, flags);
                let count = count.map_err(|errno| failed("memory.oom_control", errno))?;
                let order = format!("{} {}", count.as_fd().as_raw_fd(), file.as_raw_fd());
                let written = dirs.write("memory", "cgroup.event_control", &order);
                written.map_err(|errno| failed("cgroup.event_control", errno))?;
                Source::V1 { count, control: dir.path.join("cgroup.event_control"), _file: file }
            }
        };
        Ok(OomWatch { source })
    }

    /// What happened since the last look; does not wait. Look again after [`OomEvent::OutOfMemory`]: it may be over,
    /// too.
    ///
    /// # Errors
    /// When the descriptor cannot be read.
    pub fn look(&mut self) -> Result<OomEvent> {
        match &mut self.source {
            Source::V2 { inotify, memory, cgroup, killed, populated } => {
                // Whatever the events are: the files say how many, and whether there is still somebody.
                match inotify.read_events() {
                    Ok(_) | Err(Errno::EAGAIN) => {}
                    Err(errno) => return Err(Error::system("read inotify(7) events", errno.desc())),
                }
                let before = (*killed, *populated);
                let now = (value(memory, "oom_kill"), value(cgroup, "populated"));
                let (Some(kills), Some(some)) = now else { return Ok(OomEvent::Over) };
                if kills > before.0 {
                    // Whether it is over the next look tells.
                    *killed = kills;
                    return Ok(OomEvent::OutOfMemory);
                }
                *populated = some > 0;
                Ok(if before.1 && !*populated { OomEvent::Over } else { OomEvent::Nothing })
            }
            Source::V1 { count, control, .. } => match count.read() {
                // The kernel counts the removal, too.
                Ok(_) if !control.exists() => Ok(OomEvent::Over),
                Ok(_) => Ok(OomEvent::OutOfMemory),
                Err(Errno::EAGAIN) if !control.exists() => Ok(OomEvent::Over),
                Err(Errno::EAGAIN) => Ok(OomEvent::Nothing),
                Err(errno) => Err(Error::system("read an eventfd(2)", errno.desc())),
            },
        }
    }
}

/// A value of a flat keyed file; `None` when the cgroup is gone. Of `memory.events` only `oom_kill` counts: `oom`
/// also counts what was got by other means in the end.
fn value(file: &Path, key: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
    Some(pairs.find(|(name, _)| *name == key).and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(0))
}

impl AsFd for OomWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.source {
            Source::V2 { inotify, .. } => inotify.as_fd(),
            Source::V1 { count, .. } => count.as_fd(),
        }
    }
}
