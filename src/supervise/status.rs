//! The status descriptor (`--status-fd`): what happened, as NDJSON, since a program's exit status can be
//! any number (saggar(1), STATUS EVENTS).

use crate::error::{Code, Error, Result};
use crate::plan::Degraded;
use crate::sys::file;
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::os::fd::RawFd;
use std::path::Path;

/// One line on the status descriptor.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event<'a> {
    /// The program runs.
    Started {
        /// The sandbox.
        id: &'a str,
        /// The program's pid on the host.
        pid: i32,
        /// Protections that are missing.
        degraded: Vec<Missing<'a>>,
    },
    /// Something appeared under a protected name, and was moved away.
    Quarantined {
        /// The sandbox.
        id: &'a str,
        /// Where it was.
        #[serde(serialize_with = "lossy")]
        path: &'a Path,
        /// Where it is.
        #[serde(serialize_with = "lossy")]
        to: &'a Path,
        /// What it is.
        why: &'a str,
    },
    /// Something appeared in the workspace that the host should not trust, and is where it was.
    Reported {
        /// The sandbox.
        id: &'a str,
        /// Where it is.
        #[serde(serialize_with = "lossy")]
        path: &'a Path,
        /// What it is.
        why: &'a str,
    },
    /// It is over.
    Exited {
        /// The sandbox.
        id: &'a str,
        /// Why.
        reason: Reason,
        /// The program's own exit status, when it exited.
        #[serde(skip_serializing_if = "Option::is_none")]
        exit_code: Option<u8>,
        /// The signal that ended it, when one did.
        #[serde(skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// What saggar has to say about it.
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
}

/// A path need not be UTF-8, and JSON must be.
fn lossy<S: serde::Serializer>(path: &Path, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.collect_str(&path.display())
}

/// A missing protection.
#[derive(Debug, Serialize)]
pub struct Missing<'a> {
    what: &'a str,
    why: &'a str,
}

/// The missing protections of a plan as they stand in an event.
pub fn missing(degraded: &[Degraded]) -> Vec<Missing<'_>> {
    degraded.iter().map(|d| Missing { what: &d.what, why: &d.why }).collect()
}

/// Why a sandbox ended.
#[derive(Debug, Clone, Copy, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Reason {
    /// The program exited.
    Exit,
    /// A signal ended it.
    Signal,
    /// The kernel's out-of-memory killer.
    Oom,
    /// The wall-clock limit.
    Timeout,
    /// The policy: a protection was undone.
    Policy,
    /// saggar itself.
    Runtime,
}

/// A result, or why the sandbox ended and the error to tell.
pub type Outcome<T> = std::result::Result<T, (Reason, Error)>;

/// An error of saggar itself.
pub(super) fn runtime(error: Error) -> (Reason, Error) {
    (Reason::Runtime, error)
}

/// Where status events go, if anywhere.
#[derive(Debug, Default)]
pub struct Status(Option<File>);

impl Status {
    /// Takes the open descriptor `fd` over, close-on-exec.
    ///
    /// # Errors
    /// [`Code::Usage`] when it is not open or is a standard stream of the program.
    pub fn open(fd: Option<RawFd>) -> Result<Self> {
        let Some(fd) = fd else { return Ok(Status(None)) };
        Ok(Status(Some(take_descriptor(fd, "--status-fd")?)))
    }

    /// Says that nothing was started, and why. There was no sandbox, so it has no name.
    pub fn refused(&mut self, error: &Error) {
        let (reason, message) = (Reason::Runtime, Some(error.to_string()));
        self.say(&Event::Exited { id: "", reason, exit_code: None, signal: None, message });
    }

    /// Writes one event. A reader that is gone is not worth an error.
    pub fn say(&mut self, event: &Event<'_>) {
        if let Some(file) = &mut self.0
            && let Ok(mut line) = serde_json::to_vec(event)
        {
            line.push(b'\n');
            let _ = file.write_all(&line);
        }
    }
}

/// Duplicates a descriptor that an option names, close-on-exec; the number itself stays as it was.
///
/// # Errors
/// [`Code::Usage`] when it is not open.
pub fn take_descriptor(fd: RawFd, option: &str) -> Result<File> {
    let closed = || {
        Error::new(Code::Usage, format!("{option} {fd}: descriptor {fd} is not open"))
            .hint(format!("open it in the caller, as in {option} 3 3>file"))
    };
    file::duplicate_number(fd).map(File::from).map_err(|_| closed())
}
