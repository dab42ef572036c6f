//! The keys of the terminal while a question stands: one by one, unseen, and none of those that were typed before.
//! The modes go back as they were found when it is dropped, and what nobody has read by then, late replies of the
//! terminal among it, is thrown away.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::termios::{
    FlushArg, LocalFlags, SetArg, SpecialCharacterIndices, Termios, tcflush, tcgetattr, tcsetattr,
};
use std::io::stdin;
use std::os::fd::AsFd;

/// One key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// A printable character of ASCII.
    Char(char),
    /// The end of a line.
    Enter,
    /// Takes the last character back.
    Back,
    /// Nothing comes any more: `^C`, `^D`, a signal that ends programs, the end of the terminal.
    End,
    /// Anything else: function keys, replies of the terminal, other scripts.
    Other,
}

/// The keyboard.
#[derive(Debug)]
pub(super) struct Keys {
    found: Termios,
    /// Those that end a program are blocked, and wait here for the loop.
    signals: Option<SignalFd>,
    /// In an escape sequence.
    escape: Escape,
}

/// Where a sequence of ECMA-48 has got to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Escape {
    None,
    /// After ESC.
    Begun,
    /// In the parameters of a control sequence.
    Control,
    /// In a string, up to its terminator (BEL, or ESC and a backslash).
    Text,
}

impl Keys {
    /// Takes the keyboard, and throws away what was typed; nothing when standard input is no terminal of ours.
    pub(super) fn take() -> Option<Self> {
        let found = tcgetattr(stdin()).ok()?;
        let mut modes = found.clone();
        modes.local_flags &= !(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG | LocalFlags::IEXTEN);
        modes.control_chars[SpecialCharacterIndices::VMIN as usize] = 1;
        modes.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
        tcsetattr(stdin(), SetArg::TCSAFLUSH, &modes).ok()?;
        let ending = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];
        let ending: SigSet = ending.into_iter().collect();
        let signals = SignalFd::with_flags(&ending, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).ok();
        Some(Keys { found, signals, escape: Escape::None })
    }

    /// Throws away what was typed and not read.
    pub(super) fn forget(&mut self) {
        let _ = tcflush(stdin(), FlushArg::TCIFLUSH);
        self.escape = Escape::None;
    }

    /// Waits for the next one.
    pub(super) fn next(&mut self) -> Key {
        match self.byte() {
            Some(byte) => self.key(byte),
            None => Key::End,
        }
    }

    fn byte(&self) -> Option<u8> {
        let stdin = stdin();
        loop {
            let mut fds = vec![PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
            fds.extend(self.signals.as_ref().map(|signals| PollFd::new(signals.as_fd(), PollFlags::POLLIN)));
            match poll(&mut fds, PollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                Err(_) => return None,
                Ok(_) => {}
            }
            if fds.get(1).and_then(PollFd::any) == Some(true) {
                return None;
            }
            let mut byte = [0];
            match nix::unistd::read(&stdin, &mut byte) {
                Ok(1) => return Some(byte[0]),
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                _ => return None,
            }
        }
    }

    fn key(&mut self, byte: u8) -> Key {
        let (escape, key) = match (self.escape, byte) {
            (_, 0x03 | 0x04) => {
                if byte == 0x03 {
                    // What it would have been: the loop interrupts the turn.
                    let _ = nix::sys::signal::raise(Signal::SIGINT);
                }
                (Escape::None, Key::End)
            }
            (_, 0x1b) => (Escape::Begun, Key::Other),
            (Escape::Begun, b'[' | b'O') => (Escape::Control, Key::Other),
            (Escape::Begun, b']' | b'P' | b'X' | b'^' | b'_') => (Escape::Text, Key::Other),
            (Escape::Begun, _) => (Escape::None, Key::Other),
            (Escape::Control, 0x40..=0x7e) => (Escape::None, Key::Other),
            (Escape::Control, _) => (Escape::Control, Key::Other),
            (Escape::Text, 0x07) => (Escape::None, Key::Other),
            (Escape::Text, _) => (Escape::Text, Key::Other),
            (Escape::None, b'\r' | b'\n') => (Escape::None, Key::Enter),
            (Escape::None, 0x08 | 0x7f) => (Escape::None, Key::Back),
            (Escape::None, b' '..=b'~') => (Escape::None, Key::Char(char::from(byte))),
            (Escape::None, _) => (Escape::None, Key::Other),
        };
        self.escape = escape;
        key
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), SetArg::TCSAFLUSH, &self.found);
    }
}
