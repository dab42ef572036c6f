//! One shell command of the demo agent. If it is dropped before it has exited, the command and all processes that it
//! started are killed.

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Maximum number of bytes of output that are kept.
const OUTPUT_LIMIT: usize = 256 << 10;
/// How long to wait for the end of the output after the command has exited. A process that left the process group may
/// keep the output open indefinitely.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// A running command, in its own process group.
#[derive(Debug)]
pub(super) struct RunningCommand {
    child: Child,
    group: Pid,
    output: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
    ended: bool,
}

impl RunningCommand {
    /// Starts `command` with `/bin/sh -c`; its stdout and stderr are merged.
    pub(super) fn start(command: &str) -> io::Result<RunningCommand> {
        let (reader, writer) = io::pipe()?;
        let child = Command::new("/bin/sh")
            .args(["-c", command])
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .process_group(0)
            .spawn()?;
        let group = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
        let output = Arc::new(Mutex::new(Vec::new()));
        let captured = Arc::clone(&output);
        Ok(RunningCommand {
            child,
            group,
            output,
            reader: std::thread::spawn(move || capture(reader, &captured)),
            ended: false,
        })
    }

    /// The output and the exit code (128+N after signal N) if the command has exited.
    pub(super) fn poll(&mut self) -> Option<(String, i32)> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        if matches!(waitid(Id::Pid(self.group), flags), Ok(WaitStatus::StillAlive)) {
            return None;
        }
        self.kill();
        let status = self.child.wait().ok()?;
        self.ended = true;
        let until = Instant::now() + DRAIN_TIMEOUT;
        while !self.reader.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let output = self.output.lock().map(|mut kept| std::mem::take(&mut *kept)).unwrap_or_default();
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        Some((String::from_utf8_lossy(&output).into_owned(), code))
    }

    /// Kills the process group. Its leader is reaped afterwards, so the number still refers to this group.
    fn kill(&self) {
        let _ = killpg(self.group, Signal::SIGKILL);
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        if !self.ended {
            self.kill();
            let _ = self.child.wait();
        }
    }
}

/// Reads the output to its end, and keeps the beginning. A read error counts as the end.
fn capture(mut reader: impl Read, captured: &Mutex<Vec<u8>>) {
    let mut chunk = [0; 8192];
    while let Ok(count @ 1..) = reader.read(&mut chunk) {
        let Ok(mut captured) = captured.lock() else { return };
        let remaining = OUTPUT_LIMIT.saturating_sub(captured.len());
        captured.extend_from_slice(&chunk[..count.min(remaining)]);
    }
}
