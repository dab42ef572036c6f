//! A snapshot while the session runs: a separate process takes it (`session::snapshot::subprocess`). A worker ends that
//! process, with its unfinished files, as soon as the loop no longer waits for it.

use super::SNAPSHOT;
use super::session::SessionContext;
use crate::error::{Error, Result};
use crate::session::snapshot::{self, subprocess};
use crate::stage::agent::launcher::Launcher;
use crate::sys::{pidfd, process};
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::wait;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// A snapshot in progress: the pipe for its result, and a pipe that is open while a process works on it.
#[derive(Debug)]
pub(in crate::supervise) struct SnapshotProcess {
    /// One JSON object, [`subprocess::SnapshotReport`].
    pub(in crate::supervise) output: File,
    liveness: File,
}

impl SnapshotProcess {
    /// Ends it, and waits until none of its processes or files is left, except for a complete snapshot.
    pub(in crate::supervise) fn stop(self) {
        let SnapshotProcess { output, liveness: mut alive } = self;
        drop(output);
        let _ = alive.read(&mut [0]);
    }
}

/// Starts a snapshot; with `all` no directory is skipped.
///
/// # Errors
/// [`crate::error::Code::System`].
pub(in crate::supervise) fn start_snapshot(launcher: &Launcher, all: bool) -> Result<SnapshotProcess> {
    let fails = |e: nix::Error| Error::system("start the writer of the snapshot", e);
    let (output, theirs) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(fails)?;
    let (alive, held) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(fails)?;
    launcher.start_worker(SNAPSHOT, all.into(), &[theirs.as_raw_fd(), held.as_raw_fd()]).map_err(fails)?;
    Ok(SnapshotProcess { output: output.into(), liveness: alive.into() })
}

impl SessionContext<'_> {
    pub(super) fn serve_snapshot(&self, all: u64, output: OwnedFd, alive: OwnedFd) {
        let session = self.session.directory();
        let Ok(copy) = output.try_clone() else { return };
        // The file worker that the writer has forked is reparented to this process when the writer is killed: it has
        // exited when there is no child left to wait for.
        let _ = process::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0);
        let child = Command::new("/proc/self/exe")
            .arg0("saggar")
            .arg(subprocess::SNAPSHOT_SUBCOMMAND)
            .args(subprocess::snapshot_arguments(session, all != 0))
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::from(copy))
            .stderr(Stdio::null())
            .spawn();
        // The result is read from the output.
        if let Ok(child) = child
            && let Ok(writer) = pidfd::open(child.id().cast_signed())
        {
            let mut fds = [
                PollFd::new(writer.as_fd(), PollFlags::POLLIN),
                // POLLERR means that the reader has closed its end.
                PollFd::new(output.as_fd(), PollFlags::empty()),
            ];
            while poll(&mut fds, PollTimeout::NONE) == Err(nix::Error::EINTR) {}
            let _ = pidfd::signal(writer.as_fd(), libc::SIGKILL);
            // Until there is no child any more (ECHILD).
            while matches!(wait(), Ok(_) | Err(nix::Error::EINTR)) {}
        }
        // A killed writer may have left a partial file.
        snapshot::remove_partial(session);
        drop(alive);
    }
}
