//! A daemon of this run: started with its socket in our directory, ended with what it has started.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::deadline::Deadline;
use crate::output::{end_of, patience};

/// Between two tries to connect.
const PAUSE: Duration = Duration::from_millis(20);

/// Ended when dropped.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts `command`, which logs to `log`, and waits until it listens on `socket`.
    pub(crate) fn start(command: &Command, log: PathBuf, socket: &Path) -> Self {
        Daemon::start_until(command, log, || UnixStream::connect(socket).ok().map(drop)).0
    }

    /// Starts `command`, which logs to `log`, and waits until it is ready.
    pub(crate) fn start_until<T>(
        command: &Command,
        log: PathBuf,
        mut ready: impl FnMut() -> Option<T>,
    ) -> (Self, T) {
        // It must not outlive this run, whatever ends the run.
        let mut bound = Command::new("setpriv");
        bound.args(["--pdeathsig", "TERM"]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            bound.env(name, value.unwrap());
        }
        let file = File::create(&log).unwrap();
        bound.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        let child = bound.spawn().unwrap();
        let end = end_of(&child);
        let mut daemon = Daemon { child, log };
        let deadline = Deadline::after(patience());
        // No event tells of it: a try now and then, unless the daemon ends before.
        loop {
            if let Some(value) = ready() {
                return (daemon, value);
            }
            if Deadline::after(PAUSE).readable(&end).is_ok() {
                let ended = daemon.child.wait().unwrap();
                panic!("{command:?} has ended with {ended:?}:\n{}", daemon.tail());
            }
            assert!(!deadline.remaining().is_zero(), "{command:?} is not ready:\n{}", daemon.tail());
        }
    }

    /// The end of its log.
    pub(crate) fn tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // One that has ended before may have been reaped: then its pid is nobody's.
        if let Ok(None) = self.child.try_wait() {
            let _ = kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM);
            if Deadline::after(patience()).readable(end_of(&self.child)).is_err() {
                let _ = self.child.kill();
            }
            let _ = self.child.wait();
        }
    }
}
