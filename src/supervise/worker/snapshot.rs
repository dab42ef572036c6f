//! A snapshot while the session runs: a program of its own takes it (`session::snapshot::aside`), and a worker ends it,
//! with what it has left, as soon as nobody waits for it.

use super::SNAPSHOT;
use super::session::OfSession;
use crate::error::{Error, Result};
use crate::session::snapshot::{self, aside};
use crate::stage::launcher::Launcher;
use crate::sys::pidfd;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// What has been begun: where the answer comes, and what is open as long as a process is at work on it.
#[derive(Debug)]
pub(in crate::supervise) struct Begun {
    /// One JSON object, [`aside::Answer`].
    pub(in crate::supervise) output: File,
    alive: File,
}

impl Begun {
    /// Ends it, and waits until nothing of it is left but a snapshot that is whole.
    pub(in crate::supervise) fn end(self) {
        let Begun { output, mut alive } = self;
        drop(output);
        let _ = alive.read(&mut [0]);
    }
}

/// Begins a snapshot; with `all` nothing is left out.
///
/// # Errors
/// [`crate::error::Code::System`].
pub(in crate::supervise) fn begin(launcher: &Launcher, all: bool) -> Result<Begun> {
    let fails = |e: nix::Error| Error::system("start the writer of the snapshot", e);
    let (output, theirs) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(fails)?;
    let (alive, held) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(fails)?;
    launcher.work(SNAPSHOT, all.into(), &[theirs.as_raw_fd(), held.as_raw_fd()]).map_err(fails)?;
    Ok(Begun { output: output.into(), alive: alive.into() })
}

impl OfSession<'_> {
    pub(super) fn snapshot(&self, all: u64, output: OwnedFd, alive: OwnedFd) {
        let session = self.session.directory();
        let Ok(copy) = output.try_clone() else { return };
        let child = Command::new("/proc/self/exe")
            .arg0("saggar")
            .arg(aside::ENTRY)
            .args(aside::words(session, all != 0))
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::from(copy))
            .stderr(Stdio::null())
            .spawn();
        // It reaps itself; what it was is known by what it has said.
        if let Ok(child) = child
            && let Ok(writer) = pidfd::open(child.id().cast_signed())
        {
            let mut fds = [
                PollFd::new(writer.as_fd(), PollFlags::POLLIN),
                // An error is the end of whoever reads.
                PollFd::new(output.as_fd(), PollFlags::empty()),
            ];
            while poll(&mut fds, PollTimeout::NONE) == Err(nix::Error::EINTR) {}
            let _ = pidfd::signal(writer.as_fd(), libc::SIGKILL);
            pidfd::wait_end(writer.as_fd(), u16::MAX);
        }
        // Of one that was killed half a file may be there.
        snapshot::sweep(session);
        drop(alive);
    }
}
