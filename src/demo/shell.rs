//! One shell command of the demo agent, killed with everything it started when it is dropped early.

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How much output is kept.
const OUTPUT_LIMIT: usize = 256 << 10;
/// How long to wait for the end of the output of a command that has ended. Something that left its process
/// group may hold it open for ever.
const DRAIN: Duration = Duration::from_millis(500);

/// A command that runs, in a process group of its own.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    group: Pid,
    output: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
    ended: bool,
}

impl Running {
    /// Starts `command` with `/bin/sh -c`; its stdout and stderr come together.
    pub(super) fn start(command: &str) -> io::Result<Running> {
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
        let kept = Arc::clone(&output);
        Ok(Running {
            child,
            group,
            output,
            reader: std::thread::spawn(move || keep(reader, &kept)),
            ended: false,
        })
    }

    /// What it wrote and its exit code (128+N after signal N), when it has ended.
    pub(super) fn poll(&mut self) -> Option<(String, i32)> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        if matches!(waitid(Id::Pid(self.group), flags), Ok(WaitStatus::StillAlive)) {
            return None;
        }
        self.kill();
        let status = self.child.wait().ok()?;
        self.ended = true;
        let until = Instant::now() + DRAIN;
        while !self.reader.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let output = self.output.lock().map(|mut kept| std::mem::take(&mut *kept)).unwrap_or_default();
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        Some((String::from_utf8_lossy(&output).into_owned(), code))
    }

    /// Kills the group. Its leader is not reaped before, so that the number still means this group.
    fn kill(&self) {
        let _ = killpg(self.group, Signal::SIGKILL);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            self.kill();
            let _ = self.child.wait();
        }
    }
}

/// Reads all of it, and keeps the beginning. An output that breaks off has ended.
fn keep(mut reader: impl Read, kept: &Mutex<Vec<u8>>) {
    let mut chunk = [0; 8192];
    while let Ok(count @ 1..) = reader.read(&mut chunk) {
        let Ok(mut kept) = kept.lock() else { return };
        let room = OUTPUT_LIMIT.saturating_sub(kept.len());
        kept.extend_from_slice(&chunk[..count.min(room)]);
    }
}
