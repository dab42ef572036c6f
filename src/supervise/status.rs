//! The status descriptor (`--status-fd`): events as NDJSON, since the exit status alone cannot be told apart from the
//! program's own (saggar(1), STATUS EVENTS).

use crate::cgroup::agent::usage::SandboxUsage;
use crate::egress::io::NetworkDenial;
use crate::egress::io::publish::{PortForward, UnreachablePort};
use crate::error::{Code, Error, Result};
use crate::plan::agent::DegradedProtection;
use crate::sys::file;
use serde::Serialize;
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::os::fd::RawFd;
use std::path::Path;

/// An event: one line on the status descriptor.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum StatusEvent<'a> {
    /// The program runs.
    Started {
        /// Id of the sandbox.
        id: &'a str,
        /// The program's pid on the host.
        pid: i32,
        /// Protections that are missing on this host.
        degraded: Vec<MissingProtection<'a>>,
    },
    /// A file appeared under a protected name, and was moved to quarantine.
    Quarantined {
        /// Id of the sandbox.
        id: &'a str,
        /// Its former path.
        #[serde(serialize_with = "serialize_lossy")]
        path: &'a Path,
        /// Its path in the quarantine.
        #[serde(serialize_with = "serialize_lossy")]
        to: &'a Path,
        /// The kind of finding.
        why: &'a str,
    },
    /// A file appeared in the workspace that the host should not trust; it was not moved.
    Reported {
        /// Id of the sandbox.
        id: &'a str,
        /// Path of the file.
        #[serde(serialize_with = "serialize_lossy")]
        path: &'a Path,
        /// The kind of finding.
        why: &'a str,
    },
    /// The number of findings in the workspace, sent at the end if there are any.
    Findings {
        /// Id of the sandbox.
        id: &'a str,
        /// Number of files moved to quarantine, with or without an event of their own.
        quarantined: usize,
        /// Number of files that were not moved.
        reported: usize,
    },
    /// The sandbox is frozen.
    Paused {
        /// Id of the sandbox.
        id: &'a str,
    },
    /// The sandbox runs again.
    Resumed {
        /// Id of the sandbox.
        id: &'a str,
    },
    /// The policy of the sandbox has changed.
    Updated {
        /// Id of the sandbox.
        id: &'a str,
        /// The new generation, as in `state` of the control socket.
        generation: u64,
    },
    /// The policy denied a program access to the network.
    #[serde(rename = "refused")]
    Denied {
        /// Id of the sandbox.
        id: &'a str,
        /// The access and the reason.
        #[serde(flatten)]
        refusal: NetworkDenial,
    },
    /// A program connected to an allowed host that could not be reached.
    #[serde(rename = "unreachable")]
    HostUnreachable {
        /// Id of the sandbox.
        id: &'a str,
        /// The access and the reason.
        #[serde(flatten)]
        refusal: NetworkDenial,
    },
    /// A port of the host is forwarded to a port of the sandbox.
    Published {
        /// Id of the sandbox.
        id: &'a str,
        /// Both ports.
        #[serde(flatten)]
        published: PortForward,
    },
    /// A client connected to a published port, and no server inside accepted.
    PortUnreachable {
        /// Id of the sandbox.
        id: &'a str,
        /// The port and the reason.
        #[serde(flatten)]
        unreachable_port: UnreachablePort,
    },
    /// The model API could not be reached, or is no longer served.
    Api {
        /// Id of the sandbox.
        id: &'a str,
        /// The error.
        why: &'a str,
    },
    /// The mailbox is no longer served, or is served again.
    Mailbox {
        /// Id of the sandbox.
        id: &'a str,
        /// The error.
        why: &'a str,
    },
    /// The relay has exited: the sandbox has no network any more.
    Relay {
        /// Id of the sandbox.
        id: &'a str,
        /// The error.
        why: &'a str,
    },
    /// The OOM killer killed a program, and the sandbox still runs.
    Oom {
        /// Id of the sandbox.
        id: &'a str,
        /// Name of the program, if the kernel's log names it.
        #[serde(skip_serializing_if = "Option::is_none")]
        program: Option<&'a str>,
        /// Its pid on the host, if the kernel's log names it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pid: Option<i32>,
        /// Resource usage of the sandbox.
        usage: SandboxUsage,
    },
    /// Programs met a limit, and the sandbox still runs, or has ended by itself.
    Limit {
        /// Id of the sandbox.
        id: &'a str,
        /// The limit.
        limit: ExceededLimit,
        /// What happened at it, with its value.
        why: &'a str,
    },
    /// A command that a server ran next to the agent has ended.
    Exec {
        /// Id of the sandbox.
        id: &'a str,
        /// The command's pid on the host.
        pid: i32,
        /// Its result.
        #[serde(flatten)]
        end: ExecResult,
    },
    /// The sandbox has ended.
    Exited {
        /// Id of the sandbox.
        id: &'a str,
        /// The reason.
        reason: ExitReason,
        /// The program's exit status, if it exited.
        #[serde(skip_serializing_if = "Option::is_none")]
        exit_code: Option<u8>,
        /// The signal that killed the program, if one did.
        #[serde(skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// The limit that ended the program, or that it exceeded.
        #[serde(skip_serializing_if = "Option::is_none")]
        limit: Option<ExceededLimit>,
        /// The error message of saggar, if there is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        /// Resource usage, if the sandbox had a cgroup.
        #[serde(skip_serializing_if = "Option::is_none")]
        usage: Option<SandboxUsage>,
    },
}

/// The result of a command, with its resource usage if it had a cgroup of its own.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ExecResult {
    /// Why it ended.
    pub reason: ExitReason,
    /// Its exit status, if it exited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    /// The signal that killed it, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The limit that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<ExceededLimit>,
    /// Peak memory of the command and its descendants, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_peak: Option<u64>,
    /// Processor time of the command and its descendants, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_usec: Option<u64>,
}

/// A limit that ended a program, or that was exceeded.
#[derive(Debug, Clone, Copy, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ExceededLimit {
    /// Memory: the OOM killer killed it.
    Memory,
    /// Wall-clock time: saggar killed it.
    Timeout,
    /// Processor time: saggar killed it.
    CpuTime,
    /// Time without a command: saggar killed it.
    Idle,
    /// File size: the kernel killed the process that wrote beyond it, by SIGXFSZ.
    Fsize,
    /// Number of processes: forks failed, and the program continued.
    Pids,
    /// Processor time in a period: programs waited for the next one.
    Cpu,
    /// Bytes or inodes of workspace and home: the disk was full at the end.
    Disk,
}

/// Evidence about an end, besides its reason.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExitEvidence<'a> {
    /// Resource usage.
    pub usage: Option<&'a SandboxUsage>,
    /// The signal that killed the program.
    pub signal: Option<i32>,
    /// Whether the disk was full.
    pub disk_is_full: bool,
}

impl ExceededLimit {
    /// The limit that caused an end, or that was exceeded before it.
    pub fn from_evidence(reason: ExitReason, evidence: ExitEvidence<'_>) -> Option<Self> {
        let refused = evidence.usage.is_some_and(SandboxUsage::has_refused_forks);
        match reason {
            ExitReason::Oom => Some(ExceededLimit::Memory),
            ExitReason::Timeout => Some(ExceededLimit::Timeout),
            ExitReason::Signal if evidence.signal == Some(libc::SIGXFSZ) => Some(ExceededLimit::Fsize),
            ExitReason::Exit | ExitReason::Signal if refused => Some(ExceededLimit::Pids),
            ExitReason::Exit | ExitReason::Signal if evidence.disk_is_full => Some(ExceededLimit::Disk),
            _ => None,
        }
    }
}

/// Serializes a path lossily: a path need not be UTF-8, and JSON must be.
fn serialize_lossy<S: serde::Serializer>(path: &Path, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.collect_str(&path.display())
}

/// A missing protection.
#[derive(Debug, Serialize)]
pub struct MissingProtection<'a> {
    what: &'a str,
    why: &'a str,
}

/// The missing protections of a plan in the format of events.
pub fn missing_protections(degraded: &[DegradedProtection]) -> Vec<MissingProtection<'_>> {
    degraded.iter().map(|d| MissingProtection { what: &d.name, why: &d.reason }).collect()
}

/// Why a sandbox ended.
#[derive(Debug, Clone, Copy, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum ExitReason {
    /// The program exited.
    Exit,
    /// A signal killed the program.
    Signal,
    /// The kernel's OOM killer killed the program.
    Oom,
    /// The wall-clock limit.
    Timeout,
    /// The policy: a protection was undone.
    Policy,
    /// An error of saggar itself.
    Runtime,
}

/// A result, or the reason of the end and the error to report.
pub type SupervisionResult<T> = std::result::Result<T, (ExitReason, Error)>;

/// The result for an error of saggar itself.
pub(super) fn runtime_error(error: Error) -> (ExitReason, Error) {
    (ExitReason::Runtime, error)
}

/// Writes status events; does nothing without a descriptor.
#[derive(Debug, Default)]
pub struct StatusWriter {
    file: Option<File>,
    /// Events for the control socket since the last [`StatusWriter::take_events`]; `None` while queueing is off.
    queued: Option<Vec<Value>>,
    /// Gets all events of a worker, which reports through its supervisor.
    sink: Option<EventSink>,
}

/// Receives events as JSON.
struct EventSink(Box<dyn FnMut(String)>);

impl std::fmt::Debug for EventSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Taker")
    }
}

impl StatusWriter {
    /// Duplicates the open descriptor `fd`, close-on-exec.
    ///
    /// # Errors
    /// [`Code::Usage`] when it is not open or is a standard stream of the program.
    pub fn open(fd: Option<RawFd>) -> Result<Self> {
        let file = fd.map(|fd| duplicate_fd(fd, "--status-fd")).transpose()?;
        Ok(StatusWriter { file, queued: None, sink: None })
    }

    /// The writer of a worker: passes all events to `taker`.
    pub(super) fn for_worker(taker: impl FnMut(String) + 'static) -> Self {
        StatusWriter { file: None, queued: None, sink: Some(EventSink(Box::new(taker))) }
    }

    /// Writes an event that a worker has sent.
    pub(super) fn forward(&mut self, event: &str) {
        let Ok(parsed) = serde_json::from_str(event) else { return };
        if let Some(file) = &mut self.file {
            let _ = file.write_all(format!("{event}\n").as_bytes());
        }
        if let Some(heard) = &mut self.queued {
            heard.push(parsed);
        }
    }

    /// Reports that a start failed, and why. No sandbox exists, so the event has no id.
    pub fn report_start_failure(&mut self, error: &Error) {
        let (reason, message) = (ExitReason::Runtime, Some(error.to_string()));
        self.write(&StatusEvent::Exited {
            id: "",
            reason,
            exit_code: None,
            signal: None,
            limit: None,
            message,
            usage: None,
        });
    }

    /// Whether events are written anywhere.
    pub fn has_reader(&self) -> bool {
        self.file.is_some() || self.queued.is_some()
    }

    /// Sets whether events are kept for [`StatusWriter::take_events`].
    pub fn set_queueing(&mut self, listen: bool) {
        if listen != self.queued.is_some() {
            self.queued = listen.then(Vec::new);
        }
    }

    /// The events since the last call.
    pub fn take_events(&mut self) -> Vec<Value> {
        self.queued.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Writes one event. A failed write is ignored.
    pub fn write(&mut self, event: &StatusEvent<'_>) {
        if let Some(EventSink(take)) = &mut self.sink
            && let Ok(event) = serde_json::to_string(event)
        {
            take(event);
        }
        if let Some(heard) = &mut self.queued {
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

/// Duplicates a descriptor that an option names, close-on-exec; the descriptor itself is not changed.
///
/// # Errors
/// [`Code::Usage`] when it is not open.
pub fn duplicate_fd(fd: RawFd, option: &str) -> Result<File> {
    let closed = || {
        Error::new(Code::Usage, format!("{option} {fd}: descriptor {fd} is not open"))
            .hint(format!("open it in the caller, as in {option} 3 3>file"))
    };
    file::duplicate(fd).map(File::from).map_err(|_| closed())
}
