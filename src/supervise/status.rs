//! The status descriptor (`--status-fd`): what happened, as NDJSON, since a program's exit status can be
//! any number (saggar(1), STATUS EVENTS).

use crate::cgroup::agent::usage::Usage;
use crate::egress::io::Refusal;
use crate::egress::io::publish::{Published, Unanswered};
use crate::error::{Code, Error, Result};
use crate::plan::Degraded;
use crate::sys::file;
use serde::Serialize;
use serde_json::Value;
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
    /// What it left for the host to run, when it is over and there was something.
    Left {
        /// The sandbox.
        id: &'a str,
        /// How many were moved to quarantine, named in an event or not.
        quarantined: usize,
        /// How many are where they were.
        reported: usize,
    },
    /// Everything in it stands still.
    Paused {
        /// The sandbox.
        id: &'a str,
    },
    /// It goes on.
    Resumed {
        /// The sandbox.
        id: &'a str,
    },
    /// Its limits have changed.
    Updated {
        /// The sandbox.
        id: &'a str,
        /// As `state` of the control socket has it.
        generation: u64,
    },
    /// A program wanted something of the network that the policy does not give.
    Refused {
        /// The sandbox.
        id: &'a str,
        /// What, and why not.
        #[serde(flatten)]
        refusal: Refusal,
    },
    /// A program called a host that it may call, and that is not to be had.
    Unreachable {
        /// The sandbox.
        id: &'a str,
        /// What, and why not.
        #[serde(flatten)]
        refusal: Refusal,
    },
    /// A port of the host leads inside.
    Published {
        /// The sandbox.
        id: &'a str,
        /// From where to where.
        #[serde(flatten)]
        published: Published,
    },
    /// Somebody called such a port, and nobody inside answered.
    Unanswered {
        /// The sandbox.
        id: &'a str,
        /// Which, and why not.
        #[serde(flatten)]
        unanswered: Unanswered,
    },
    /// The model API could not be reached, or is served no more.
    Api {
        /// The sandbox.
        id: &'a str,
        /// What is wrong.
        why: &'a str,
    },
    /// The relay has ended: nothing of the network is reached any more.
    Relay {
        /// The sandbox.
        id: &'a str,
        /// What is wrong.
        why: &'a str,
    },
    /// The kernel killed a program for want of memory, and the sandbox goes on.
    Oom {
        /// The sandbox.
        id: &'a str,
        /// The name of the program, where the kernel says it.
        #[serde(skip_serializing_if = "Option::is_none")]
        program: Option<&'a str>,
        /// Its pid on the host, likewise.
        #[serde(skip_serializing_if = "Option::is_none")]
        pid: Option<i32>,
        /// What the sandbox has used.
        usage: Usage,
    },
    /// A command that a server ran beside the agent is over.
    Exec {
        /// The sandbox.
        id: &'a str,
        /// The command's pid on the host.
        pid: i32,
        /// How it ended.
        #[serde(flatten)]
        end: ExecEnd,
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
        /// The limit that ended it, or that it met.
        #[serde(skip_serializing_if = "Option::is_none")]
        limit: Option<Met>,
        /// What saggar has to say about it.
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        /// What it has used, where a cgroup could tell.
        #[serde(skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
}

/// How a command ended, and what it used where it had a cgroup of its own.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ExecEnd {
    /// Why.
    pub reason: Reason,
    /// Its own exit status, when it exited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    /// The signal that ended it, when one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The limit that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Met>,
    /// The most memory that it and all it started had at one time, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_peak: Option<u64>,
    /// Their processor time in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_usec: Option<u64>,
}

/// A limit that ended something, or that was met.
#[derive(Debug, Clone, Copy, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Met {
    /// Memory: the kernel killed it.
    Memory,
    /// Wall-clock time: saggar killed it, as with the two that follow.
    Timeout,
    /// Processor time.
    CpuTime,
    /// Time without a command.
    Idle,
    /// The size of one file: the kernel ended what wrote beyond it, by SIGXFSZ.
    Fsize,
    /// Processes: forks were refused, and the program went its way.
    Pids,
    /// Bytes or inodes of workspace and home: there was no room for more in the end.
    Disk,
}

/// What is known of an end beside its reason.
#[derive(Debug, Clone, Copy, Default)]
pub struct Marks<'a> {
    /// What was used.
    pub usage: Option<&'a Usage>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether there was room on disk for nothing more.
    pub disk: bool,
}

impl Met {
    /// The limit behind an end, or one that was met before it.
    pub fn of(reason: Reason, marks: Marks<'_>) -> Option<Self> {
        let refused = marks.usage.and_then(|usage| usage.pids_refused).is_some_and(|forks| forks > 0);
        match reason {
            Reason::Oom => Some(Met::Memory),
            Reason::Timeout => Some(Met::Timeout),
            Reason::Signal if marks.signal == Some(libc::SIGXFSZ) => Some(Met::Fsize),
            Reason::Exit | Reason::Signal if refused => Some(Met::Pids),
            Reason::Exit | Reason::Signal if marks.disk => Some(Met::Disk),
            _ => None,
        }
    }
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
pub struct Status {
    file: Option<File>,
    /// Events for whoever else hears of them, since they were taken last.
    heard: Option<Vec<Value>>,
    /// Takes all events of a worker, whose status is its supervisor's.
    taker: Option<Taker>,
}

/// Takes events.
struct Taker(Box<dyn FnMut(String)>);

impl std::fmt::Debug for Taker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Taker")
    }
}

impl Status {
    /// Takes the open descriptor `fd` over, close-on-exec.
    ///
    /// # Errors
    /// [`Code::Usage`] when it is not open or is a standard stream of the program.
    pub fn open(fd: Option<RawFd>) -> Result<Self> {
        let file = fd.map(|fd| take_descriptor(fd, "--status-fd")).transpose()?;
        Ok(Status { file, heard: None, taker: None })
    }

    /// That of a worker.
    pub(super) fn of_worker(taker: impl FnMut(String) + 'static) -> Self {
        Status { file: None, heard: None, taker: Some(Taker(Box::new(taker))) }
    }

    /// Says what a worker has said.
    pub(super) fn pass_on(&mut self, event: &str) {
        let Ok(parsed) = serde_json::from_str(event) else { return };
        if let Some(file) = &mut self.file {
            let _ = file.write_all(format!("{event}\n").as_bytes());
        }
        if let Some(heard) = &mut self.heard {
            heard.push(parsed);
        }
    }

    /// Says that nothing was started, and why. There was no sandbox, so it has no name.
    pub fn refused(&mut self, error: &Error) {
        let (reason, message) = (Reason::Runtime, Some(error.to_string()));
        self.say(&Event::Exited {
            id: "",
            reason,
            exit_code: None,
            signal: None,
            limit: None,
            message,
            usage: None,
        });
    }

    /// Whether anybody reads it.
    pub fn is_read(&self) -> bool {
        self.file.is_some() || self.heard.is_some()
    }

    /// Whether events are kept for [`Status::heard`].
    pub fn listen(&mut self, listen: bool) {
        if listen != self.heard.is_some() {
            self.heard = listen.then(Vec::new);
        }
    }

    /// The events since the last call.
    pub fn heard(&mut self) -> Vec<Value> {
        self.heard.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Writes one event. A reader that is gone is not worth an error.
    pub fn say(&mut self, event: &Event<'_>) {
        if let Some(Taker(take)) = &mut self.taker
            && let Ok(event) = serde_json::to_string(event)
        {
            take(event);
        }
        if let Some(heard) = &mut self.heard {
            heard.extend(serde_json::to_value(event));
        }
        if let Some(file) = &mut self.file
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
