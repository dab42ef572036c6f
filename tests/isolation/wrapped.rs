//! `saggar wrap` in a place of its own.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use crate::support::caller::Caller;
use crate::support::place::Place;
use crate::support::process::Process;

/// A place whose work folder is the workspace of the sandboxes that are started in it.
#[derive(Debug)]
pub(crate) struct Wrap {
    pub(crate) place: Place,
}

/// How a sandbox ended, and what came out of it.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// The exit status of saggar.
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("saggar died of a signal: {self:?}"))
    }

    /// The output of a program that must have succeeded.
    pub(crate) fn success(self) -> String {
        assert!(self.status.success(), "{}; stdout:\n{}\nstderr:\n{}", self.status, self.stdout, self.stderr);
        self.stdout
    }

    /// Asserts that saggar refused (exit 125) and says all of `words`.
    pub(crate) fn refused(&self, words: &[&str]) {
        assert_eq!(self.code(), 125, "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "no {word:?} in: {}", self.stderr);
        }
        assert_eq!(self.stdout, "", "nothing ran");
    }
}

impl Wrap {
    pub(crate) fn new(caller: Caller) -> Self {
        Wrap { place: Place::new(caller) }
    }

    /// The workspace; it has the same path inside.
    pub(crate) fn work(&self) -> PathBuf {
        self.place.work()
    }

    /// `saggar wrap OPTIONS -- PROGRAM`, not started.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, options: &[&str], program: &[S]) -> Command {
        let mut command = self.place.saggar();
        command.arg("wrap").args(options).arg("--").args(program);
        command
    }

    /// Runs a command to its end, its standard input empty.
    pub(crate) fn finish(&self, command: Command) -> Ended {
        let mut process = Process::start(&self.place, command);
        drop(process.take_stdin());
        finish(process)
    }

    /// Runs a program with options of `wrap`.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, options: &[&str], program: &[S]) -> Ended {
        self.finish(self.command(options, program))
    }

    /// Runs a shell script in the default sandbox.
    pub(crate) fn sh(&self, script: &str) -> Ended {
        self.run(&[], &["/bin/sh", "-c", script])
    }

    /// Runs a shell of the caller that starts the program, in a sandbox with these options, where `outside` says `"$@"`.
    pub(crate) fn started_by_shell<S: AsRef<OsStr>>(
        &self,
        outside: &str,
        options: &[&str],
        program: &[S],
    ) -> Ended {
        let saggar = self.command(options, program);
        let mut command = self.place.command("/bin/sh".as_ref());
        command.args(["-c", outside, "sh"]).arg(saggar.get_program()).args(saggar.get_args());
        self.finish(command)
    }

    /// Runs a program of the host as the caller, in the workspace, outside of any sandbox.
    pub(crate) fn outside(&self, script: &str) -> String {
        let mut command = self.place.command(Path::new("/bin/sh"));
        // The caller's own configuration is none of the test's business.
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
        command.args(["-c", script]);
        self.finish(command).success()
    }
}

/// Reads a running process to its end.
pub(crate) fn finish(mut process: Process) -> Ended {
    let mut stdout = Vec::new();
    process.take_stdout().read_to_end(&mut stdout).expect("stdout is readable");
    ended(process, &stdout)
}

/// The same within the usual deadline: for a program that never ends by itself.
pub(crate) fn finish_in_time(mut process: Process) -> Ended {
    let stdout = process.read_stdout();
    ended(process, &stdout)
}

fn ended(mut process: Process, stdout: &[u8]) -> Ended {
    let status = process.wait();
    Ended { status, stdout: String::from_utf8_lossy(stdout).into_owned(), stderr: process.stderr() }
}
