//! Faults of the kernel, played by strace on the calls of the real program on one file.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};

use super::limits::Given;

/// What may happen to a write: the kernel refuses it, or says that it took it and keeps what it had.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fault {
    Refused,
    Kept,
}

pub(crate) const FAULTS: [Fault; 2] = [Fault::Refused, Fault::Kept];

impl Fault {
    /// For strace, where so many bytes are written.
    pub(crate) fn inject(self, value: &str) -> String {
        match self {
            Fault::Refused => "inject=write:error=EINVAL".to_owned(),
            Fault::Kept => format!("inject=write:retval={}", value.len()),
        }
    }

    /// The error names the file, the value and what happened.
    #[track_caller]
    pub(crate) fn is_told(self, said: &str, file: &str, value: &str) {
        let what = match (self, file) {
            (Fault::Refused, _) => format!("write {value:?} to "),
            // What came of a set of an agent's is told by another file.
            (Fault::Kept, "cpuset.cpus") => "/cpuset.cpus".to_owned(),
            (Fault::Kept, _) => format!("/{file} reads "),
        };
        let why = if self == Fault::Refused {
            format!("/{file}: Invalid argument")
        } else {
            format!("after {value:?} was written")
        };
        for word in ["cannot hold", &what, &why] {
            assert!(said.contains(word), "no {word:?} in: {said}");
        }
    }
}

/// A strace that plays a fault in a process that runs, until it is dropped.
pub(crate) struct Tracer {
    child: Child,
    trace: PathBuf,
}

impl Tracer {
    pub(crate) fn attach(given: &Given, pid: u32, file: &Path, inject: &str) -> Self {
        let trace = given.place.join("trace");
        let mut command = Command::new("/usr/bin/strace");
        command.arg("-o").arg(&trace).arg("-p").arg(pid.to_string()).arg("-P").arg(file);
        command.args(["-e", inject]).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
        assert!(said.contains("attached"), "{said}");
        Tracer { child, trace }
    }

    /// Lets the process go; it has met the fault.
    pub(crate) fn end(mut self) {
        kill(nix::unistd::Pid::from_raw(self.child.id().cast_signed()), Signal::SIGINT).unwrap();
        self.child.wait().unwrap();
        was_injected(&self.trace);
    }
}

/// A test of a fault that did not happen proves nothing.
#[track_caller]
pub(crate) fn was_injected(trace: &Path) {
    let trace = fs::read_to_string(trace).unwrap();
    assert!(trace.contains("(INJECTED"), "{trace}");
}
