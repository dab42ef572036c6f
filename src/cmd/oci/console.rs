//! Our standard streams and the terminal of a program in the foreground: bytes both ways.
//!
//! The streams stay blocking, since they are shared with whoever called us: each is touched only when poll(2)
//! says that it is ready, and for no more bytes than then cannot block.

use crate::error::{Error, Result};
use crate::launch::set_nonblocking;
use crate::sys::pty;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use nix::unistd::{getpgrp, tcgetpgrp};
use std::io::IsTerminal;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What may be written when poll(2) says that a pipe has room (PIPE_BUF, pipe(7)).
const CHUNK: usize = 4096;
/// End of file, as a terminal reads it (VEOF of a new terminal).
const END_OF_FILE: u8 = 4;

/// The relay; dropping it gives our terminal its modes back.
#[derive(Debug)]
pub(super) struct Relay {
    master: OwnedFd,
    stdin: std::io::Stdin,
    stdout: std::io::Stdout,
    inward: Vec<u8>,
    outward: Vec<u8>,
    stdin_open: bool,
    master_open: bool,
    modes: Option<Termios>,
}

impl Relay {
    /// Takes our terminal, if standard input is one and we are in its foreground, and gives the program's the
    /// same size.
    pub(super) fn new(master: &OwnedFd) -> Result<Self> {
        let master = master.try_clone().map_err(|e| Error::system("duplicate the program's terminal", e))?;
        set_nonblocking(master.as_fd())?;
        let (stdin, stdout) = (std::io::stdin(), std::io::stdout());
        let modes = take(&stdin);
        let relay = Relay {
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

    /// Gives the program's terminal the size of ours.
    pub(super) fn resize(&self) {
        let size =
            [self.stdin.as_fd(), self.stdout.as_fd()].into_iter().find_map(|fd| pty::window_size(fd).ok());
        if let Some(size) = size {
            let _ = pty::set_window_size(self.master.as_fd(), &size);
        }
    }

    /// What to wait for.
    pub(super) fn wants(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let mut wants = Vec::new();
        if self.master_open {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::POLLIN, self.outward.is_empty());
            flags.set(PollFlags::POLLOUT, !self.inward.is_empty());
            if !flags.is_empty() {
                wants.push((self.master.as_fd(), flags));
            }
            if self.stdin_open && self.inward.is_empty() {
                wants.push((self.stdin.as_fd(), PollFlags::POLLIN));
            }
        }
        if !self.outward.is_empty() {
            wants.push((self.stdout.as_fd(), PollFlags::POLLOUT));
        }
        wants
    }

    /// Moves what can be moved without waiting.
    pub(super) fn step(&mut self) {
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

    /// The program has ended: hands over what it wrote before.
    pub(super) fn drain(&mut self) {
        while self.master_open || !self.outward.is_empty() {
            let before = self.outward.len();
            self.step();
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

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(modes) = &self.modes {
            let _ = tcsetattr(&self.stdin, SetArg::TCSADRAIN, modes);
        }
    }
}

/// Makes our terminal raw; its modes before.
fn take(stdin: &std::io::Stdin) -> Option<Termios> {
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

/// Writes what goes; with `lossy` a reader that is gone swallows the rest.
fn write(fd: BorrowedFd<'_>, bytes: &mut Vec<u8>, lossy: bool) {
    match nix::unistd::write(fd, bytes) {
        Ok(count) => drop(bytes.drain(..count)),
        Err(nix::errno::Errno::EINTR | nix::errno::Errno::EAGAIN) => {}
        Err(_) if lossy => bytes.clear(),
        Err(_) => bytes.clear(),
    }
}
