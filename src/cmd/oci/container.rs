//! A container loaded from its record, and its status from the kernel.

use super::SPEC_VERSION;
use super::cgroups;
use crate::cgroup::CgroupHandle;
use crate::error::{Code, Error, Result};
use crate::launch::container as launch;
use crate::spec::container::ContainerSpec;
use crate::spec::oci;
use crate::state::container::{ContainerDirectory, ContainerRecord};
use crate::sys::Errno;
use serde_json::{Value, json};
use std::fmt;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// The status of a container (runtime.md, State); a frozen one is `paused`, as in runc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContainerStatus {
    Creating,
    Created,
    Running,
    Paused,
    Stopped,
}

impl ContainerStatus {
    /// All statuses.
    pub(super) const ALL: [ContainerStatus; 5] = [
        ContainerStatus::Creating,
        ContainerStatus::Created,
        ContainerStatus::Running,
        ContainerStatus::Paused,
        ContainerStatus::Stopped,
    ];

    /// The name of the status.
    pub(super) fn name(self) -> &'static str {
        match self {
            ContainerStatus::Creating => "creating",
            ContainerStatus::Created => "created",
            ContainerStatus::Running => "running",
            ContainerStatus::Paused => "paused",
            ContainerStatus::Stopped => "stopped",
        }
    }
}

impl fmt::Display for ContainerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A container whose record was read.
#[derive(Debug)]
pub(super) struct LoadedContainer {
    pub(super) directory: ContainerDirectory,
    pub(super) record: ContainerRecord,
}

impl LoadedContainer {
    pub(super) fn load(directory: ContainerDirectory) -> Result<Self> {
        match directory.read_record() {
            Ok(record) => Ok(LoadedContainer { directory, record }),
            // Its create has not written a record yet.
            Err(_) if directory.has_no_record() => {
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

    /// Determines the current status.
    pub(super) fn status(&self) -> ContainerStatus {
        let Some(process) = &self.record.process else {
            return if self.record.creator.is_alive() {
                ContainerStatus::Creating
            } else {
                ContainerStatus::Stopped
            };
        };
        if !process.is_alive() {
            return ContainerStatus::Stopped;
        }
        if !self.record.complete {
            return ContainerStatus::Creating;
        }
        if self.is_frozen() {
            return ContainerStatus::Paused;
        }
        if awaits_start(self.directory.path()) { ContainerStatus::Created } else { ContainerStatus::Running }
    }

    pub(super) fn is_frozen(&self) -> bool {
        let group = self.record.cgroup.as_ref().and_then(|location| CgroupHandle::open(location).ok());
        group.is_some_and(|group| group.is_frozen().unwrap_or(false))
    }

    /// Opens a pidfd of the first process, and returns its pid too.
    ///
    /// # Errors
    /// [`Code::Refused`] if it has exited.
    pub(super) fn init(&self) -> Result<(OwnedFd, i32)> {
        let not_running = || {
            let id = self.directory.id().as_str();
            Error::new(Code::Refused, format!("container {id:?}: container not running"))
        };
        let process = self.record.process.as_ref().ok_or_else(not_running)?;
        let pidfd = process.open_pidfd().map_err(|errno| match errno {
            Errno::ESRCH => not_running(),
            errno => Error::system(format_args!("open a pidfd of process {}", process.pid), errno),
        })?;
        Ok((pidfd, process.pid))
    }

    /// Reads the configuration as it was at create.
    pub(super) fn config(&self) -> Result<oci::BundleConfig> {
        let bytes = oci::load::read_document(&self.directory.path().join("config.json"))?;
        let mut config = oci::parse_config(bytes, &self.record.bundle)?;
        default_id_maps(&mut config.container);
        Ok(config)
    }

    /// Opens the cgroups, if there are any.
    pub(super) fn group(&self) -> Result<CgroupHandle> {
        cgroups::open(&self.record)
    }

    /// Returns the OCI state with this status, for callers and hooks.
    pub(super) fn oci_state(&self, status: ContainerStatus) -> Value {
        state(&self.record, status)
    }
}

/// Sets the maps of a user namespace that the configuration requests without maps.
pub(super) fn default_id_maps(container: &mut ContainerSpec) {
    if let Some(ids) = container.id_maps.as_mut().filter(|ids| ids.uid.is_empty() && ids.gid.is_empty()) {
        *ids = launch::maps_of_ours();
    }
}

/// Returns the OCI state of a container with this record (runtime.md, State).
pub(super) fn state(record: &ContainerRecord, status: ContainerStatus) -> Value {
    let pid = record
        .process
        .as_ref()
        .filter(|_| status != ContainerStatus::Stopped)
        .map_or(0, |process| process.pid);
    let mut state = json!({
        "ociVersion": SPEC_VERSION, "id": record.id, "status": status.to_string(), "pid": pid,
        "bundle": record.bundle.to_string_lossy(), "rootfs": record.rootfs.to_string_lossy(), "created": record.created,
    });
    if !record.annotations.is_empty() {
        state["annotations"] = json!(record.annotations);
    }
    state
}

/// Returns whether the program still waits for start: then its socket is open. A datagram socket cannot connect to
/// a listening one, so that the error (EPROTOTYPE, or ECONNREFUSED if no socket is bound to the name) gives the
/// answer without waking the program.
fn awaits_start(directory: &Path) -> bool {
    let Ok(opened) = File::open(directory) else { return false };
    // A socket path has at most 107 bytes, and the path of the directory may be longer.
    let path = format!("/proc/self/fd/{}/start.sock", opened.as_raw_fd());
    let probe = UnixDatagram::unbound().and_then(|probe| probe.connect(path));
    !probe.is_err_and(|error| {
        matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::NotADirectory)
    })
}
