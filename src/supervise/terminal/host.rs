//! The host's terminal, as saggar's standard streams refer to it: keyboard, screen and modes.
//!
//! ```text
//! original modes ── set_raw() ──> raw ── restore_modes() ──> original modes
//! ```
//! In raw mode keys are forwarded as bytes, and the sandbox's own terminal processes them according to its modes.
//! Dropping it restores the original modes.

use super::super::registration::register;
use crate::error::{Error, Result};
use crate::sys::file;
use crate::sys::{SysResult, pty};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::termios::{FlushArg, SetArg, Termios, cfmakeraw, tcflush, tcgetattr, tcsetattr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// One side of the host's terminal, with a file description of our own if possible.
///
/// The standard streams are shared with the shell and the rest of the pipeline. O_NONBLOCK belongs to the file
/// description, and would affect them too, so the terminal is reopened. If that is not permitted (after su(1) it
/// belongs to another user), the shared description is made non-blocking while it is in use.
#[derive(Debug)]
struct TerminalSide {
    fd: OwnedFd,
    /// The flags of a shared description, to be restored.
    original_flags: Option<OFlag>,
}

impl TerminalSide {
    fn open(stream: BorrowedFd<'_>) -> Result<Self> {
        if let Some(fd) = reopen(stream) {
            return Ok(TerminalSide { fd, original_flags: None });
        }
        let fd = stream
            .try_clone_to_owned()
            .map_err(|e| Error::system("duplicate a descriptor of the terminal", e))?;
        let flags = fcntl(&fd, FcntlArg::F_GETFL)
            .map_err(|e| Error::system("read the flags of the terminal's descriptor", e))?;
        Ok(TerminalSide { fd, original_flags: Some(OFlag::from_bits_truncate(flags)) })
    }

    fn set_nonblocking(&self, on: bool) {
        if let Some(flags) = self.original_flags {
            let flags = if on { flags | OFlag::O_NONBLOCK } else { flags };
            let _ = fcntl(&self.fd, FcntlArg::F_SETFL(flags));
        }
    }
}

fn reopen(stream: BorrowedFd<'_>) -> Option<OwnedFd> {
    // A master is a terminal too, and opening /dev/ptmx (5:2) creates a new one.
    let device = nix::sys::stat::fstat(stream).ok()?.st_rdev;
    if (nix::sys::stat::major(device), nix::sys::stat::minor(device)) == (5, 2) {
        return None;
    }
    file::reopen(stream, libc::O_RDWR | libc::O_NOCTTY | libc::O_NONBLOCK).ok()
}

/// The host's terminal.
#[derive(Debug)]
pub(super) struct HostTerminal {
    keyboard: TerminalSide,
    screen: TerminalSide,
    /// Other processes of a pipeline write to the terminal and need its output processing. Output from the sandbox has
    /// been processed already; a second carriage return before a newline has no effect.
    keep_output: bool,
    /// The modes in the foreground before saggar changed them; they are restored.
    saved_modes: Option<Termios>,
    raw: bool,
    screen_writable: bool,
    tokens: (Token, Token),
}

impl HostTerminal {
    /// Opens the terminal of these streams without changing it. Keys are read from input, or from the screen's terminal
    /// if input is not a terminal.
    pub(super) fn open(
        keyboard: BorrowedFd<'_>,
        screen: BorrowedFd<'_>,
        keep_output: bool,
        tokens: (Token, Token),
    ) -> Result<Self> {
        // Both are opened before either is changed: they may share one file description.
        let (keyboard, screen) = (TerminalSide::open(keyboard)?, TerminalSide::open(screen)?);
        let mut host = HostTerminal {
            keyboard,
            screen,
            keep_output,
            saved_modes: None,
            raw: false,
            screen_writable: false,
            tokens,
        };
        if host.in_foreground() {
            host.saved_modes = tcgetattr(&host.keyboard.fd).ok();
        }
        Ok(host)
    }

    /// Its original modes; `None` while another program has the terminal in the foreground, whose modes these are.
    pub(super) fn modes(&self) -> Option<&Termios> {
        self.saved_modes.as_ref()
    }

    /// Its size.
    pub(super) fn size(&self) -> SysResult<libc::winsize> {
        pty::window_size(self.screen.fd.as_fd())
    }

    /// Registers both sides.
    pub(super) fn register(&self, registry: &Registry) -> Result<()> {
        self.set_nonblocking(true);
        register(registry, self.keyboard.fd.as_fd(), self.tokens.0)?;
        register(registry, self.screen.fd.as_fd(), self.tokens.1)
    }

    /// Enables or disables events for a writable screen.
    pub(super) fn watch_writable(&mut self, registry: &Registry, wanted: bool) -> Result<()> {
        if std::mem::replace(&mut self.screen_writable, wanted) == wanted {
            return Ok(());
        }
        reregister(registry, self.screen.fd.as_fd(), self.tokens.1, wanted)
    }

    /// Whether this process is in the foreground, and may read the terminal and set its modes.
    ///
    /// The kernel stops a background job that does either (SIGTTIN, SIGTTOU). Saggar does neither, so that `saggar wrap
    /// -- make &` keeps running as make would, and checks again with every event. Other reasons for a stop (output
    /// under `stty tostop`) stop it like any job, since both signals keep their default action. A terminal that is not
    /// the controlling one (ENOTTY) has no job control over this process.
    fn in_foreground(&self) -> bool {
        nix::unistd::tcgetpgrp(&self.keyboard.fd).map_or(true, |group| group == nix::unistd::getpgrp())
    }

    /// Sets raw mode if `wanted_raw` and this process is in the foreground, else restores the modes; returns whether
    /// raw mode is set.
    pub(super) fn acquire_if(&mut self, wanted_raw: bool) -> bool {
        if !self.in_foreground() {
            // The program in the foreground sets the modes; ours are lost already.
            self.raw = false;
        } else if !wanted_raw {
            self.restore_modes();
        } else if !self.raw {
            self.set_raw();
        }
        self.raw
    }

    fn set_raw(&mut self) {
        let Ok(now) = tcgetattr(&self.keyboard.fd) else { return };
        let found = self.saved_modes.get_or_insert(now);
        let mut raw = found.clone();
        cfmakeraw(&mut raw);
        if self.keep_output {
            raw.output_flags = found.output_flags;
        }
        self.raw = tcsetattr(&self.keyboard.fd, SetArg::TCSANOW, &raw).is_ok();
    }

    /// Restores the original modes. Never waits for the output to drain, which may be stalled.
    fn restore_modes(&mut self) {
        if std::mem::replace(&mut self.raw, false)
            && self.in_foreground()
            && let Some(found) = &self.saved_modes
        {
            let _ = tcsetattr(&self.keyboard.fd, SetArg::TCSANOW, found);
        }
    }

    /// Restores the terminal before a stop. Discards unread input: it may contain replies of the terminal to the
    /// program, which would be commands at the shell's prompt. (TCSAFLUSH does that as well, but waits for the output
    /// first.)
    pub(super) fn suspend(&mut self) {
        if self.raw && self.in_foreground() {
            self.restore_modes();
            let _ = tcflush(&self.keyboard.fd, FlushArg::TCIFLUSH);
        }
        self.restore_modes();
        self.set_nonblocking(false);
    }

    /// Call after a stop: the shell has had the terminal, and may have changed its modes.
    pub(super) fn resume(&mut self) {
        self.raw = false;
        self.set_nonblocking(true);
    }

    fn set_nonblocking(&self, on: bool) {
        self.keyboard.set_nonblocking(on);
        self.screen.set_nonblocking(on);
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

impl Drop for HostTerminal {
    fn drop(&mut self) {
        self.suspend();
    }
}

/// Registers a descriptor anew, which also reports at once what is ready already.
pub(super) fn reregister(
    registry: &Registry,
    fd: BorrowedFd<'_>,
    token: Token,
    writable: bool,
) -> Result<()> {
    let interest = if writable { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
    registry
        .reregister(&mut SourceFd(&fd.as_raw_fd()), token, interest)
        .map_err(|e| Error::system("watch the terminal", e))
}
