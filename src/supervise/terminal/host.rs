//! The host's terminal, as saggar's standard streams name it: its keyboard, its screen, its modes.
//!
//! ```text
//! left alone ── take() ──> raw ── leave() ──> left alone
//! ```
//! Raw means that keys travel inside as bytes and the sandbox's own terminal makes of them what its modes
//! say. Dropping it leaves.

use super::super::sandbox::register;
use crate::error::{Error, Result};
use crate::sys::file::{self, Resolve};
use crate::sys::{SysResult, pty};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::termios::{FlushArg, SetArg, Termios, cfmakeraw, tcflush, tcgetattr, tcsetattr};
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// One side of the host's terminal: a description of our own where that is possible.
///
/// The standard streams are shared with the shell and with the rest of the pipeline; O_NONBLOCK belongs to
/// the description, and would be theirs too. So the terminal is opened again. Where it may not be (after
/// su(1) it is another user's), the shared one is made non-blocking for as long as it is in use.
#[derive(Debug)]
struct End {
    fd: OwnedFd,
    /// The flags of a shared description, to be put back.
    shared: Option<OFlag>,
}

impl End {
    fn open(stream: BorrowedFd<'_>) -> Result<Self> {
        if let Some(fd) = open_again(stream) {
            return Ok(End { fd, shared: None });
        }
        let fd = stream
            .try_clone_to_owned()
            .map_err(|e| Error::system("duplicate a descriptor of the terminal", e))?;
        let flags = fcntl(&fd, FcntlArg::F_GETFL)
            .map_err(|e| Error::system("read the flags of the terminal's descriptor", e))?;
        Ok(End { fd, shared: Some(OFlag::from_bits_truncate(flags)) })
    }

    fn use_it(&self, on: bool) {
        if let Some(flags) = self.shared {
            let flags = if on { flags | OFlag::O_NONBLOCK } else { flags };
            let _ = fcntl(&self.fd, FcntlArg::F_SETFL(flags));
        }
    }
}

fn open_again(stream: BorrowedFd<'_>) -> Option<OwnedFd> {
    // A master is a terminal too, and opening /dev/ptmx (5:2) makes a new one.
    let device = nix::sys::stat::fstat(stream).ok()?.st_rdev;
    if (nix::sys::stat::major(device), nix::sys::stat::minor(device)) == (5, 2) {
        return None;
    }
    let path = CString::new(format!("/proc/self/fd/{}", stream.as_raw_fd())).ok()?;
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_NONBLOCK;
    file::open(file::cwd(), &path, flags, 0, Resolve::Ordinary).ok()
}

/// The host's terminal.
#[derive(Debug)]
pub(super) struct Host {
    keyboard: End,
    screen: End,
    /// Others of a pipeline write to the terminal, and need its output processing. What comes from inside has
    /// been processed already; a second carriage return before a newline moves nothing.
    keep_output: bool,
    /// How we found it in the foreground: what it goes back to.
    found: Option<Termios>,
    raw: bool,
    screen_writable: bool,
    tokens: (Token, Token),
}

impl Host {
    /// Opens the terminal of these streams and changes nothing of it. Keys come from input; where input is no
    /// terminal, from the screen's.
    pub(super) fn open(
        keyboard: BorrowedFd<'_>,
        screen: BorrowedFd<'_>,
        keep_output: bool,
        tokens: (Token, Token),
    ) -> Result<Self> {
        // Both before either is changed: they may share one description.
        let (keyboard, screen) = (End::open(keyboard)?, End::open(screen)?);
        let mut host =
            Host { keyboard, screen, keep_output, found: None, raw: false, screen_writable: false, tokens };
        if host.in_foreground() {
            host.found = tcgetattr(&host.keyboard.fd).ok();
        }
        Ok(host)
    }

    /// Its modes when it was ours; none when somebody else's program has it and they say nothing about ours.
    pub(super) fn modes(&self) -> Option<&Termios> {
        self.found.as_ref()
    }

    /// Its size.
    pub(super) fn size(&self) -> SysResult<libc::winsize> {
        pty::window_size(self.screen.fd.as_fd())
    }

    /// Watches both sides.
    pub(super) fn watch(&self, registry: &Registry) -> Result<()> {
        self.use_it(true);
        register(registry, self.keyboard.fd.as_fd(), self.tokens.0)?;
        register(registry, self.screen.fd.as_fd(), self.tokens.1)
    }

    /// Asks to hear when the screen takes bytes again, or no longer.
    pub(super) fn watch_writable(&mut self, registry: &Registry, wanted: bool) -> Result<()> {
        if std::mem::replace(&mut self.screen_writable, wanted) == wanted {
            return Ok(());
        }
        rewatch(registry, self.screen.fd.as_fd(), self.tokens.1, wanted)
    }

    /// Whether we are its foreground job, and may read it and set its modes.
    ///
    /// A background job that does either is stopped by the kernel (SIGTTIN, SIGTTOU). We do neither, so that
    /// `saggar wrap -- make &` runs on as make would, and look again with every event; what the kernel still
    /// stops us for (output under `stty tostop`) stops us as it would stop any job, since both signals keep
    /// their default. A terminal that is not our controlling one (ENOTTY) knows no jobs of ours.
    fn in_foreground(&self) -> bool {
        nix::unistd::tcgetpgrp(&self.keyboard.fd).map_or(true, |group| group == nix::unistd::getpgrp())
    }

    /// Takes the keyboard when it is `wanted` and ours to take, else leaves it; whether it is taken.
    pub(super) fn settle(&mut self, wanted: bool) -> bool {
        if !self.in_foreground() {
            // Whoever has it now sets its modes; ours are gone already.
            self.raw = false;
        } else if !wanted {
            self.leave();
        } else if !self.raw {
            self.take();
        }
        self.raw
    }

    fn take(&mut self) {
        let Ok(now) = tcgetattr(&self.keyboard.fd) else { return };
        let found = self.found.get_or_insert(now);
        let mut raw = found.clone();
        cfmakeraw(&mut raw);
        if self.keep_output {
            raw.output_flags = found.output_flags;
        }
        self.raw = tcsetattr(&self.keyboard.fd, SetArg::TCSANOW, &raw).is_ok();
    }

    /// Puts the modes back as they were found. Never waits for the output to drain: it may be stalled.
    fn leave(&mut self) {
        if std::mem::replace(&mut self.raw, false)
            && self.in_foreground()
            && let Some(found) = &self.found
        {
            let _ = tcsetattr(&self.keyboard.fd, SetArg::TCSANOW, found);
        }
    }

    /// Gives everything back before we stop. What was typed and not read goes: replies of the terminal to what the
    /// program asked it are among it, and would be commands at the shell's prompt. (TCSAFLUSH does that as well, and
    /// waits for the output first.)
    pub(super) fn suspend(&mut self) {
        if self.raw && self.in_foreground() {
            self.leave();
            let _ = tcflush(&self.keyboard.fd, FlushArg::TCIFLUSH);
        }
        self.leave();
        self.use_it(false);
    }

    /// After a stop: the shell has had the terminal, and its modes are what the shell left.
    pub(super) fn resume(&mut self) {
        self.raw = false;
        self.use_it(true);
    }

    fn use_it(&self, on: bool) {
        self.keyboard.use_it(on);
        self.screen.use_it(on);
    }

    /// Reads keys.
    pub(super) fn read(&self, buffer: &mut [u8]) -> SysResult<usize> {
        nix::unistd::read(&self.keyboard.fd, buffer)
    }

    /// Writes to the screen.
    pub(super) fn write(&self, bytes: &[u8]) -> SysResult<usize> {
        nix::unistd::write(&self.screen.fd, bytes)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.suspend();
    }
}

/// Registers a descriptor anew, which also tells at once what is ready already.
pub(super) fn rewatch(registry: &Registry, fd: BorrowedFd<'_>, token: Token, writable: bool) -> Result<()> {
    let interest = if writable { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
    registry
        .reregister(&mut SourceFd(&fd.as_raw_fd()), token, interest)
        .map_err(|e| Error::system("watch the terminal", e))
}
