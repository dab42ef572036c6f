//! A daemon of this run: started with its socket in our directory, ended with what it has started.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::deadline::Deadline;
use crate::output::patience;

/// Ended when dropped.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts `command`, which logs to `log`, and waits until somebody listens on `socket`.
    pub(crate) fn start(command: &Command, log: PathBuf, socket: &Path) -> Self {
        // It must not outlive this run, whatever ends the run.
        let mut bound = Command::new("setpriv");
        bound.args(["--pdeathsig", "TERM"]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            bound.env(name, value.unwrap());
        }
        let file = File::create(&log).unwrap();
        bound.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        let child = bound.spawn().unwrap();
        let mut daemon = Daemon { child, log };
        let deadline = Deadline::after(patience());
        // A daemon has no other way to tell us that it listens.
        while UnixStream::connect(socket).is_err() {
            let ended = daemon.child.try_wait().unwrap();
            assert!(ended.is_none(), "{command:?} has ended with {ended:?}:\n{}", daemon.tail());
            assert!(
                !deadline.remaining().is_zero(),
                "nobody listens on {}:\n{}",
                socket.display(),
                daemon.tail()
            );
            thread::sleep(Duration::from_millis(20));
        }
        daemon
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
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM);
        let deadline = Deadline::after(Duration::from_secs(30));
        while let Ok(None) = self.child.try_wait() {
            if deadline.remaining().is_zero() {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}
