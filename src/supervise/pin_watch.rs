//! Watches that the protected paths stay pinned and the hidden paths stay masked (DECISIONS 34). A rename on the host
//! moves the sandbox's mount away with it, and the path could then be written or read. The kernel reports every change
//! of a mount table by POLLPRI on mountinfo (proc_pid_mountinfo(5)).

use super::status::{ExitReason, SupervisionResult, runtime_error};
use crate::error::{Code, Error};
use crate::host::mounts::parse_mounts;
use crate::spec::PinnedPath;
use crate::stage::agent::launcher::Launcher;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// The mount table of pid 1, and the pins that it must contain.
#[derive(Debug)]
pub(super) struct PinWatch {
    mount_table: File,
    pins: Vec<PathBuf>,
}

impl PinWatch {
    /// Watches the pins in the mount table of this first process of a sandbox, which has mounted them; `None` when
    /// there are none.
    ///
    /// # Errors
    /// As [`PinWatch::check`]: the kernel does not report a pin that was lost before the first read.
    pub(super) fn new(
        table: impl FnOnce() -> io::Result<File>,
        pins: &[PinnedPath],
        registry: &Registry,
        token: Token,
    ) -> SupervisionResult<Option<Self>> {
        if pins.is_empty() {
            return Ok(None);
        }
        let table = match table() {
            Ok(table) => table,
            // A process that is exiting has first no root (ENOENT), then no mounts (EINVAL): a short program has ended,
            // and its sandbox with it.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::ENOENT | libc::ESRCH)) => {
                return Ok(None);
            }
            Err(e) => return Err(runtime_error(watch_error(e))),
        };
        let watched = registry.register(&mut SourceFd(&table.as_raw_fd()), token, Interest::PRIORITY);
        watched.map_err(|e| runtime_error(watch_error(e)))?;
        let mut watch =
            PinWatch { mount_table: table, pins: pins.iter().map(|pin| pin.path.clone()).collect() };
        watch.check().map(|()| Some(watch))
    }

    /// Checks that every pin is still mounted.
    ///
    /// # Errors
    /// [`ExitReason::Policy`], naming the first pin that is not.
    pub(super) fn check(&mut self) -> SupervisionResult<()> {
        let Some(lost) = self.find_lost_pin() else { return Ok(()) };
        let message =
            format!("{} was replaced on the host while the sandbox protected or hid it", lost.display());
        let error = Error::new(Code::Refused, message)
            .hint("a rename takes the mount over the old file away with it; start again");
        Err((ExitReason::Policy, error))
    }

    /// Finds a pin that is no longer mounted.
    fn find_lost_pin(&mut self) -> Option<&PathBuf> {
        let mut text = Vec::new();
        let read = self.mount_table.rewind().and_then(|()| self.mount_table.read_to_end(&mut text));
        // A process without mounts has exited, which is reported elsewhere.
        if read.is_err() || text.is_empty() {
            return None;
        }
        let points: HashSet<PathBuf> = parse_mounts(&text).map(|mount| mount.mount_point).collect();
        self.pins.iter().find(|pin| !points.contains(*pin))
    }
}

/// Opens the mount table of this first process of a sandbox, through the launcher if there is one, as that can see
/// every process.
pub(super) fn open_mount_table(launcher: Option<&Launcher>, pid: i32) -> io::Result<File> {
    match launcher {
        Some(launcher) => launcher.open_mount_table().map(File::from).map_err(io::Error::from),
        None => File::open(format!("/proc/{pid}/mountinfo")),
    }
}

fn watch_error(error: io::Error) -> Error {
    Error::system("watch the mounts of the sandbox", error)
}
