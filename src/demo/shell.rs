//! One shell command of the demo agent, killed with everything it started when it is dropped early.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

/// How much output is kept.
const OUTPUT_LIMIT: u64 = 256 << 10;

/// A command that runs, in a process group of its own.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    output: Option<JoinHandle<Vec<u8>>>,
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
        Ok(Running { child, output: Some(std::thread::spawn(move || keep(reader))) })
    }

    /// What it wrote and its exit code (128+N after signal N), when it has ended.
    pub(super) fn poll(&mut self) -> Option<(String, i32)> {
        let status = self.child.try_wait().ok()??;
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        // What it left in the background must not hold its output open.
        self.kill();
        let output = self.output.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        Some((String::from_utf8_lossy(&output).into_owned(), code))
    }

    fn kill(&self) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            // The group may be empty already.
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.output.is_some() {
            self.kill();
            let _ = self.child.wait();
        }
    }
}

/// Reads all of it, and keeps the beginning.
fn keep(mut reader: impl Read) -> Vec<u8> {
    let mut kept = Vec::new();
    // An output that breaks off has ended.
    let _ = reader.by_ref().take(OUTPUT_LIMIT).read_to_end(&mut kept);
    let _ = io::copy(&mut reader, &mut io::sink());
    kept
}
