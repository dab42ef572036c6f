//! One command: run to its end within a deadline, and what it said.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open};

use crate::deadline::Deadline;

/// The usual patience, and more in a guest: one without KVM is twenty times slower. It is only ever reached by a failure.
pub(crate) fn patience() -> Duration {
    match std::env::var_os("SAGGAR_GUEST") {
        Some(_) => Duration::from_secs(240),
        None => Deadline::usual().remaining(),
    }
}

/// What a command that ended has said.
#[derive(Debug)]
pub(crate) struct Output {
    /// The command itself, for messages.
    line: String,
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Output {
    /// The exit status as a shell gives it: 128+N for signal N.
    pub(crate) fn code(&self) -> i32 {
        self.status.code().or(self.status.signal().map(|signal| 128 + signal)).unwrap()
    }

    /// Panics, with all that is known, unless the exit status is this one.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert!(self.code() == code, "exit status {} instead of {code} of {self}", self.code());
        self
    }

    /// Success, and its stdout without white space around it.
    #[track_caller]
    pub(crate) fn says(self) -> String {
        self.exits(0).stdout.trim().to_owned()
    }

    /// Panics unless either stream contains `text`.
    #[track_caller]
    pub(crate) fn mentions(self, text: &str) -> Self {
        assert!(self.stdout.contains(text) || self.stderr.contains(text), "no \"{text}\" in {self}");
        self
    }
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}\n{}\nstdout: {}\nstderr: {}",
            self.line,
            self.status,
            self.stdout.trim(),
            self.stderr.trim()
        )
    }
}

/// A command that still runs, its output in files: what it leaves behind may hold them open.
#[derive(Debug)]
pub(crate) struct Running {
    line: String,
    child: Child,
    stdout: File,
    stderr: File,
    input: Option<File>,
}

impl Running {
    /// Starts `command` with this as its stdin.
    pub(crate) fn start(mut command: Command, stdin: &[u8]) -> Self {
        let (stdout, stderr) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let mut input = tempfile::tempfile().unwrap();
        input.write_all(stdin).unwrap();
        input.seek(SeekFrom::Start(0)).unwrap();
        command.stdin(if stdin.is_empty() { Stdio::null() } else { Stdio::from(input.try_clone().unwrap()) });
        command.stdout(stdout.try_clone().unwrap()).stderr(stderr.try_clone().unwrap()).process_group(0);
        let line = line(&command);
        let child = command.spawn().unwrap_or_else(|error| panic!("cannot start {line}: {error}"));
        Running { line, child, stdout, stderr, input: Some(input) }
    }

    /// Waits for the end; kills it, and panics, when it does not come.
    pub(crate) fn wait(mut self) -> Output {
        let pidfd = end_of(&self.child);
        let late = Deadline::after(patience()).readable(&pidfd).is_err();
        if late {
            let _ = killpg(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGKILL);
        }
        let status = self.child.wait().unwrap();
        drop(self.input.take());
        let output = Output {
            line: self.line,
            status,
            stdout: content(&mut self.stdout),
            stderr: content(&mut self.stderr),
        };
        assert!(!late, "does not end within {:?}: {output}", patience());
        output
    }
}

/// What is readable when this child, which has not been reaped, has ended.
pub(crate) fn end_of(child: &Child) -> OwnedFd {
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    pidfd_open(pid, PidfdFlags::empty()).unwrap()
}

fn content(file: &mut File) -> String {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The words of a command.
pub(crate) fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}
