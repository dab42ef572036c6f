//! A container that was found: its record, and what the kernel says of it.

use super::SPEC_VERSION;
use super::group;
use crate::cgroup::Group;
use crate::error::{Code, Error, Result};
use crate::launch::container as launch;
use crate::spec::container::Container;
use crate::spec::oci;
use crate::state::container::{Directory, Record};
use crate::sys::Errno;
use serde_json::{Value, json};
use std::fmt;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// What a container is doing (runtime.md, State), with runc's word for a frozen one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Creating,
    Created,
    Running,
    Paused,
    Stopped,
}

impl Status {
    /// All of them.
    pub(super) const ALL: [Status; 5] =
        [Status::Creating, Status::Created, Status::Running, Status::Paused, Status::Stopped];

    /// Its word.
    pub(super) fn name(self) -> &'static str {
        match self {
            Status::Creating => "creating",
            Status::Created => "created",
            Status::Running => "running",
            Status::Paused => "paused",
            Status::Stopped => "stopped",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A container whose record could be read.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) directory: Directory,
    pub(super) record: Record,
}

impl Found {
    pub(super) fn new(directory: Directory) -> Result<Self> {
        match directory.read() {
            Ok(record) => Ok(Found { directory, record }),
            // Its maker has not come so far: nothing is to be seen of it.
            Err(_) if directory.is_bare() => {
                let id = directory.id().as_str();
                Err(Error::new(
                    Code::NotFound,
                    format!("container {id:?} does not exist: it is only being made"),
                )
                .hint("if its create was killed, saggar delete --force removes what is there"))
            }
            Err(error) => Err(error),
        }
    }

    /// What it is doing now.
    pub(super) fn status(&self) -> Status {
        let Some(process) = &self.record.process else {
            return if self.record.creator.is_alive() { Status::Creating } else { Status::Stopped };
        };
        if !process.is_alive() {
            return Status::Stopped;
        }
        if !self.record.complete {
            return Status::Creating;
        }
        if self.is_frozen() {
            return Status::Paused;
        }
        if waits(self.directory.path()) { Status::Created } else { Status::Running }
    }

    pub(super) fn is_frozen(&self) -> bool {
        let group = self.record.cgroup.as_ref().and_then(|place| Group::open(place).ok());
        group.is_some_and(|group| group.is_frozen().unwrap_or(false))
    }

    /// A pidfd of its first process, and its pid.
    ///
    /// # Errors
    /// [`Code::Refused`] when it is gone.
    pub(super) fn init(&self) -> Result<(OwnedFd, i32)> {
        let gone = || {
            let id = self.directory.id().as_str();
            Error::new(Code::Refused, format!("container {id:?}: container not running"))
        };
        let process = self.record.process.as_ref().ok_or_else(gone)?;
        let pidfd = process.open().map_err(|errno| match errno {
            Errno::ESRCH => gone(),
            errno => Error::system(format_args!("open a pidfd of process {}", process.pid), errno),
        })?;
        Ok((pidfd, process.pid))
    }

    /// Its configuration as it was at create.
    pub(super) fn config(&self) -> Result<oci::Config> {
        let bytes = oci::load::document(&self.directory.path().join("config.json"))?;
        let mut config = oci::parse(bytes, &self.record.bundle)?;
        fill_ids(&mut config.container);
        Ok(config)
    }

    /// Its cgroups, where it has any.
    pub(super) fn group(&self) -> Result<Group> {
        group::open(&self.record)
    }

    /// The state that callers and hooks get, with this status.
    pub(super) fn state(&self, status: Status) -> Value {
        state(&self.record, status)
    }
}

/// The maps of a user namespace that was asked for without any.
pub(super) fn fill_ids(container: &mut Container) {
    if let Some(ids) = container.ids.as_mut().filter(|ids| ids.uid.is_empty() && ids.gid.is_empty()) {
        *ids = launch::maps_of_ours();
    }
}

/// The OCI state of a container with this record (runtime.md, State).
pub(super) fn state(record: &Record, status: Status) -> Value {
    let pid = record.process.as_ref().filter(|_| status != Status::Stopped).map_or(0, |process| process.pid);
    let mut state = json!({
        "ociVersion": SPEC_VERSION, "id": record.id, "status": status.to_string(), "pid": pid,
        "bundle": record.bundle, "rootfs": record.rootfs, "created": record.created,
    });
    if !record.annotations.is_empty() {
        state["annotations"] = json!(record.annotations);
    }
    state
}

/// Whether the program still waits for start: then its socket is open. A datagram socket can be connected to
/// none that listens, so the kernel's answer (EPROTOTYPE, or ECONNREFUSED without a socket behind the name)
/// tells it, and nobody is woken.
fn waits(directory: &Path) -> bool {
    let Ok(opened) = File::open(directory) else { return false };
    // The path of a socket has 107 bytes; that of the directory may have more.
    let path = format!("/proc/self/fd/{}/start.sock", opened.as_raw_fd());
    let probe = UnixDatagram::unbound().and_then(|probe| probe.connect(path));
    !probe.is_err_and(|error| {
        matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::NotADirectory)
    })
}
