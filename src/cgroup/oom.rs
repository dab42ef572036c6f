//! Being told when a cgroup runs out of memory.

use super::layout::Version;
use super::tree::{Dirs, Tree};
use crate::error::{Code, Error, Result};
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// Becomes readable when the cgroup ran out of memory, and when it is removed.
#[derive(Debug)]
pub struct OomWatch {
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// `memory.events` changes (cgroup v2).
    V2 { inotify: Inotify, events: PathBuf, killed: u64 },
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
    /// The cgroup is gone.
    Removed,
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
                let events = dir.path.join("memory.events");
                let failed = |errno| failed("memory.events", errno);
                let inotify =
                    Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).map_err(failed)?;
                let flags = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_DELETE_SELF;
                inotify.add_watch(&events, flags).map_err(failed)?;
                let killed = killed(&events).unwrap_or(0);
                Source::V2 { inotify, events, killed }
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

    /// What happened since the last look; does not wait. Ask again after [`OomEvent::OutOfMemory`]: the cgroup may
    /// be gone, too.
    ///
    /// # Errors
    /// When the descriptor cannot be read.
    pub fn look(&mut self) -> Result<OomEvent> {
        match &mut self.source {
            Source::V2 { inotify, events, killed: before } => {
                // Whatever the events are: the file says how many.
                match inotify.read_events() {
                    Ok(_) | Err(Errno::EAGAIN) => {}
                    Err(errno) => return Err(Error::system("read inotify(7) events", errno.desc())),
                }
                let Some(now) = killed(events) else { return Ok(OomEvent::Removed) };
                let more = now > *before;
                *before = now;
                Ok(if more { OomEvent::OutOfMemory } else { OomEvent::Nothing })
            }
            Source::V1 { count, control, .. } => match count.read() {
                // The kernel counts the removal, too.
                Ok(_) if !control.exists() => Ok(OomEvent::Removed),
                Ok(_) => Ok(OomEvent::OutOfMemory),
                Err(Errno::EAGAIN) if !control.exists() => Ok(OomEvent::Removed),
                Err(Errno::EAGAIN) => Ok(OomEvent::Nothing),
                Err(errno) => Err(Error::system("read an eventfd(2)", errno.desc())),
            },
        }
    }
}

/// How many processes were killed; `None` when the cgroup is gone. Only those count: `oom` also counts what was
/// got by other means in the end.
fn killed(events: &PathBuf) -> Option<u64> {
    let text = std::fs::read_to_string(events).ok()?;
    let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    Some(count.and_then(|count| count.trim().parse().ok()).unwrap_or(0))
}

impl AsFd for OomWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.source {
            Source::V2 { inotify, .. } => inotify.as_fd(),
            Source::V1 { count, .. } => count.as_fd(),
        }
    }
}
