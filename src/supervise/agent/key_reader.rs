//! Reads keys from the terminal for a permission prompt: one by one, without echo, and none that was typed before the
//! prompt. Dropping it restores the terminal modes and discards unread input, such as late replies of the terminal.

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
pub(super) enum TerminalKey {
    /// A printable ASCII character.
    Char(char),
    /// Enter.
    Enter,
    /// Deletes the last character.
    Backspace,
    /// No further input: `^C`, `^D`, a signal that ends programs, or the end of the terminal.
    End,
    /// Any other key: function keys, replies of the terminal, non-ASCII characters.
    Other,
}

/// The keyboard.
#[derive(Debug)]
pub(super) struct KeyReader {
    saved_modes: Termios,
    /// Signals that end a program: they are blocked, and stay pending for the loop.
    signals: Option<SignalFd>,
    /// Position in an escape sequence.
    escape: EscapeState,
}

/// Position in an escape sequence of ECMA-48.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EscapeState {
    None,
    /// After ESC.
    AfterEscape,
    /// In the parameters of a control sequence.
    ControlSequence,
    /// In a string, up to its terminator (BEL, or ESC and a backslash).
    StringSequence,
}

impl KeyReader {
    /// Takes the keyboard and discards pending input; `None` when standard input is not a terminal in which saggar is
    /// in the foreground.
    pub(super) fn open() -> Option<Self> {
        let found = tcgetattr(stdin()).ok()?;
        let mut modes = found.clone();
        modes.local_flags &= !(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG | LocalFlags::IEXTEN);
        modes.control_chars[SpecialCharacterIndices::VMIN as usize] = 1;
        modes.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
        tcsetattr(stdin(), SetArg::TCSAFLUSH, &modes).ok()?;
        let ending = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];
        let ending: SigSet = ending.into_iter().collect();
        let signals = SignalFd::with_flags(&ending, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).ok();
        Some(KeyReader { saved_modes: found, signals, escape: EscapeState::None })
    }

    /// Discards pending input.
    pub(super) fn discard_input(&mut self) {
        let _ = tcflush(stdin(), FlushArg::TCIFLUSH);
        self.escape = EscapeState::None;
    }

    /// Waits for the next key.
    pub(super) fn next_key(&mut self) -> TerminalKey {
        match self.read_byte() {
            Some(byte) => self.decode(byte),
            None => TerminalKey::End,
        }
    }

    fn read_byte(&self) -> Option<u8> {
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

    fn decode(&mut self, byte: u8) -> TerminalKey {
        let (escape, key) = match (self.escape, byte) {
            (_, 0x03 | 0x04) => {
                if byte == 0x03 {
                    // ^C sends no signal in this mode. Whoever handles SIGINT, in any thread, interrupts the turn.
                    let _ = nix::sys::signal::kill(nix::unistd::getpid(), Signal::SIGINT);
                }
                (EscapeState::None, TerminalKey::End)
            }
            (_, 0x1b) => (EscapeState::AfterEscape, TerminalKey::Other),
            (EscapeState::AfterEscape, b'[' | b'O') => (EscapeState::ControlSequence, TerminalKey::Other),
            (EscapeState::AfterEscape, b']' | b'P' | b'X' | b'^' | b'_') => {
                (EscapeState::StringSequence, TerminalKey::Other)
            }
            (EscapeState::AfterEscape, _) => (EscapeState::None, TerminalKey::Other),
            (EscapeState::ControlSequence, 0x40..=0x7e) => (EscapeState::None, TerminalKey::Other),
            (EscapeState::ControlSequence, _) => (EscapeState::ControlSequence, TerminalKey::Other),
            (EscapeState::StringSequence, 0x07) => (EscapeState::None, TerminalKey::Other),
            (EscapeState::StringSequence, _) => (EscapeState::StringSequence, TerminalKey::Other),
            (EscapeState::None, b'\r' | b'\n') => (EscapeState::None, TerminalKey::Enter),
            (EscapeState::None, 0x08 | 0x7f) => (EscapeState::None, TerminalKey::Backspace),
            (EscapeState::None, b' '..=b'~') => (EscapeState::None, TerminalKey::Char(char::from(byte))),
            (EscapeState::None, _) => (EscapeState::None, TerminalKey::Other),
        };
        self.escape = escape;
        key
    }
}

impl Drop for KeyReader {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), SetArg::TCSAFLUSH, &self.saved_modes);
    }
}
