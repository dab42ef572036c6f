//! Input that a terminal does not show, such as a key.

use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use std::io::stdin;

/// Standard input without echo, until it is dropped. Keys send no signals meanwhile, which would leave the terminal
/// without echo: `^C` is a character that no key of the API has.
#[derive(Debug)]
pub(super) struct HiddenInput {
    saved_modes: Termios,
}

impl HiddenInput {
    /// Turns the echo off; `None` if standard input is no terminal.
    pub(super) fn begin() -> Option<Self> {
        let saved_modes = tcgetattr(stdin()).ok()?;
        let mut modes = saved_modes.clone();
        modes.local_flags &= !(LocalFlags::ECHO | LocalFlags::ISIG);
        tcsetattr(stdin(), SetArg::TCSAFLUSH, &modes).ok()?;
        Some(HiddenInput { saved_modes })
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), SetArg::TCSAFLUSH, &self.saved_modes);
    }
}
