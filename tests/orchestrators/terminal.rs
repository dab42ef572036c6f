//! A terminal for a caller: what `-t` wants.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::pty::{Winsize, openpty};

use crate::deadline::Deadline;
use crate::output;

/// The size of the terminal, to be found again inside.
pub(crate) const ROWS: u16 = 43;
/// As [`ROWS`].
pub(crate) const COLUMNS: u16 = 121;

/// A command whose standard streams are a terminal, in a session of its own.
#[derive(Debug)]
pub(crate) struct Screen {
    master: File,
    child: Child,
    said: String,
    line: String,
}

impl Screen {
    /// Starts `command`.
    pub(crate) fn start(command: &Command) -> Self {
        let size = Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).unwrap();
        let line = output::line(command);
        // setsid(1) makes the terminal the controlling one.
        let mut session = Command::new("setsid");
        session.args(["--ctty", "--wait"]).arg(command.get_program()).args(command.get_args());
        session.env_clear();
        for (name, value) in command.get_envs() {
            session.env(name, value.unwrap());
        }
        let slave = || Stdio::from(pty.slave.try_clone().unwrap());
        session.stdin(slave()).stdout(slave()).stderr(slave());
        let child = session.spawn().unwrap();
        Screen { master: pty.master.into(), child, said: String::new(), line }
    }

    /// Types.
    pub(crate) fn type_in(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    /// Reads until this has been said since the last call, and returns what came before it and it.
    #[track_caller]
    pub(crate) fn expect(&mut self, text: &str) -> String {
        let deadline = Deadline::after(output::patience());
        loop {
            if let Some(at) = self.said.find(text) {
                let rest = self.said.split_off(at + text.len());
                return std::mem::replace(&mut self.said, rest);
            }
            let mut bytes = [0; 4096];
            let read = deadline.readable(&self.master).and_then(|()| self.master.read(&mut bytes));
            match read {
                Ok(count) if count > 0 => self.said.push_str(&String::from_utf8_lossy(&bytes[..count])),
                // EIO: nobody has the other end any more.
                other => panic!("{}: no {text:?} ({other:?}) in {:?}", self.line, self.said),
            }
        }
    }

    /// The end of the command.
    pub(crate) fn wait(mut self) -> ExitStatus {
        // Everything is read, or it would wait for us.
        let deadline = Deadline::after(output::patience());
        let mut bytes = [0; 4096];
        while deadline.readable(&self.master).is_ok()
            && self.master.read(&mut bytes).is_ok_and(|count| count > 0)
        {}
        self.child.wait().unwrap()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
