//! Relays bytes between our standard streams and the terminal of a program in the foreground.
//!
//! The streams stay in blocking mode, because the caller shares them. Each is used only when poll(2) reports it
//! ready, and for no more bytes than cannot block.

use crate::error::{Error, Result};
use crate::launch::container::ConsoleTarget;
use crate::spec::container::ProcessSpec;
use crate::sys::file::set_nonblocking;
use crate::sys::pty;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use nix::unistd::{getpgrp, tcgetpgrp};
use std::io::IsTerminal;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Maximum number of bytes to write when poll(2) reports room in a pipe (PIPE_BUF, pipe(7)).
const CHUNK: usize = 4096;
/// End of file for a terminal (VEOF of a new terminal).
const END_OF_FILE: u8 = 4;

/// The relay. Dropping it restores the modes of our terminal.
#[derive(Debug)]
pub(super) struct TerminalRelay {
    master: OwnedFd,
    stdin: std::io::Stdin,
    stdout: std::io::Stdout,
    inward: Vec<u8>,
    outward: Vec<u8>,
    stdin_open: bool,
    master_open: bool,
    modes: Option<Termios>,
}

impl TerminalRelay {
    /// Makes our terminal raw, if standard input is one and we are in its foreground process group, and sets the size
    /// of the program's terminal to that of ours.
    pub(super) fn new(master: &OwnedFd) -> Result<Self> {
        let master = master.try_clone().map_err(|e| Error::system("duplicate the program's terminal", e))?;
        set_nonblocking(master.as_fd())?;
        let (stdin, stdout) = (std::io::stdin(), std::io::stdout());
        let modes = make_raw(&stdin);
        let relay = TerminalRelay {
            master,
            stdin,
            stdout,
            inward: Vec::new(),
            outward: Vec::new(),
            stdin_open: true,
            master_open: true,
            modes,
        };
        relay.resize();
        Ok(relay)
    }

    /// Sets the size of the program's terminal to that of ours.
    pub(super) fn resize(&self) {
        if let Some(size) = host_size() {
            let _ = pty::set_window_size(self.master.as_fd(), &size);
        }
    }

    /// Returns the descriptors and events to poll.
    pub(super) fn poll_interests(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let mut interests = Vec::new();
        if self.master_open {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::POLLIN, self.outward.is_empty());
            flags.set(PollFlags::POLLOUT, !self.inward.is_empty());
            if !flags.is_empty() {
                interests.push((self.master.as_fd(), flags));
            }
            if self.stdin_open && self.inward.is_empty() {
                interests.push((self.stdin.as_fd(), PollFlags::POLLIN));
            }
        }
        if !self.outward.is_empty() {
            interests.push((self.stdout.as_fd(), PollFlags::POLLOUT));
        }
        interests
    }

    /// Relays as many bytes as possible without blocking.
    pub(super) fn transfer(&mut self) {
        let mut buffer = [0; CHUNK];
        if self.master_open && self.outward.is_empty() {
            match nix::unistd::read(&self.master, &mut buffer) {
                Ok(0) | Err(nix::errno::Errno::EIO) => self.master_open = false,
                Ok(count) => self.outward.extend(&buffer[..count]),
                Err(_) => {}
            }
        }
        if !self.outward.is_empty() && is_ready(self.stdout.as_fd(), PollFlags::POLLOUT) {
            write(self.stdout.as_fd(), &mut self.outward, true);
        }
        if self.master_open
            && self.stdin_open
            && self.inward.is_empty()
            && is_ready(self.stdin.as_fd(), PollFlags::POLLIN)
        {
            match nix::unistd::read(self.stdin.as_fd(), &mut buffer) {
                Ok(count @ 1..) => self.inward.extend(&buffer[..count]),
                Err(nix::errno::Errno::EINTR | nix::errno::Errno::EAGAIN) => {}
                Ok(_) | Err(_) => {
                    self.stdin_open = false;
                    self.inward.push(END_OF_FILE);
                }
            }
        }
        if self.master_open && !self.inward.is_empty() {
            write(self.master.as_fd(), &mut self.inward, false);
        }
    }

    /// Relays the remaining output of a program that has exited.
    pub(super) fn drain(&mut self) {
        while self.master_open || !self.outward.is_empty() {
            let before = self.outward.len();
            self.transfer();
            if self.outward.is_empty() && before == 0 {
                return;
            }
            if !self.outward.is_empty() {
                let mut stdout = [PollFd::new(self.stdout.as_fd(), PollFlags::POLLOUT)];
                let _ = poll(&mut stdout, PollTimeout::NONE);
            }
        }
    }
}

impl Drop for TerminalRelay {
    fn drop(&mut self) {
        if let Some(modes) = &self.modes {
            let _ = tcsetattr(&self.stdin, SetArg::TCSADRAIN, modes);
        }
    }
}

/// The size of the terminal that is our standard input or output.
fn host_size() -> Option<libc::winsize> {
    let (stdin, stdout) = (std::io::stdin(), std::io::stdout());
    [stdin.as_fd(), stdout.as_fd()].into_iter().find_map(|fd| pty::window_size(fd).ok())
}

/// Lets a terminal that this process relays have the size of ours from the beginning: its program may look before the relay
/// has set it.
pub(super) fn adopt_host_size(process: &mut ProcessSpec, target: &ConsoleTarget<'_>) {
    if let (ConsoleTarget::Keep, Some(size)) = (target, host_size())
        && size.ws_col != 0
        && size.ws_row != 0
    {
        process.console_size = Some((size.ws_col, size.ws_row));
    }
}

/// Makes our terminal raw and returns its previous modes.
fn make_raw(stdin: &std::io::Stdin) -> Option<Termios> {
    if !stdin.is_terminal() || tcgetpgrp(stdin) != Ok(getpgrp()) {
        return None;
    }
    let modes = tcgetattr(stdin).ok()?;
    let mut raw = modes.clone();
    cfmakeraw(&mut raw);
    tcsetattr(stdin, SetArg::TCSANOW, &raw).ok()?;
    Some(modes)
}

fn is_ready(fd: BorrowedFd<'_>, flags: PollFlags) -> bool {
    let mut fds = [PollFd::new(fd, flags)];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// Writes once and removes the written bytes. An error other than EINTR and EAGAIN discards all of them.
fn write(fd: BorrowedFd<'_>, bytes: &mut Vec<u8>, lossy: bool) {
    match nix::unistd::write(fd, bytes) {
        Ok(count) => drop(bytes.drain(..count)),
        Err(nix::errno::Errno::EINTR | nix::errno::Errno::EAGAIN) => {}
        Err(_) if lossy => bytes.clear(),
        Err(_) => bytes.clear(),
    }
}
