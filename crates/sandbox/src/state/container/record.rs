//! The record of a container, in its format on disk.

use crate::cgroup::CgroupLocation;
use crate::state::process::ProcessId;
use saggar_sys::error::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Version of the record format that this saggar reads and writes.
pub const RECORD_VERSION: u32 = 1;

/// The stored state of a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRecord {
    /// Always [`RECORD_VERSION`].
    pub version: u32,
    /// Id of the container.
    pub id: String,
    /// Absolute path of its bundle.
    #[serde(with = "saggar_sys::exact_name")]
    pub bundle: PathBuf,
    /// Absolute path of its root file system on the host.
    #[serde(with = "saggar_sys::exact_name")]
    pub rootfs: PathBuf,
    /// Time of creation, RFC 3339.
    pub created: String,
    /// User id of the creator.
    pub owner: u32,
    /// Annotations of the bundle.
    pub annotations: BTreeMap<String, String>,
    /// The process of the command that creates it. While that runs and [`Self::process`] is `None`, the status is
    /// "creating".
    pub creator: ProcessId,
    /// Path of its cgroups, recorded before they are created.
    pub cgroup: Option<CgroupLocation>,
    /// Its resctrl groups, recorded before they are created.
    #[serde(default)]
    pub resctrl: Vec<PathBuf>,
    /// Its first process.
    pub process: Option<ProcessId>,
    /// All settings are applied: the container is created.
    pub complete: bool,
    /// The bridge, for a container that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<SidecarRecord>,
}

/// The supervisor and the bridge of a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SidecarRecord {
    /// Name of the adapter for the protocol of the container's program.
    pub adapter: String,
    /// Path of the socket on which the bridge listens.
    #[serde(with = "saggar_sys::exact_name")]
    pub socket: PathBuf,
    /// Device and inode of the socket, once it exists.
    pub socket_file: Option<(u64, u64)>,
    /// The control socket beside a bridge's socket that has a name in the operator's directory. Any other control socket
    /// is in the container's own directory, and is removed with that.
    pub control: Option<SidecarSocket>,
    /// Where the events of the bridge are stored, if they are.
    pub spool: Option<SidecarSpool>,
    /// Path of the supervisor's cgroups, recorded before they are created.
    pub cgroup: CgroupLocation,
    /// The supervisor.
    pub supervisor: Option<ProcessId>,
    /// The guard process, which ends the container when the supervisor dies.
    pub guard: Option<ProcessId>,
}

/// A socket of a supervisor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SidecarSocket {
    /// Its path.
    #[serde(with = "saggar_sys::exact_name")]
    pub path: PathBuf,
    /// Device and inode of its file, once it exists.
    pub file: Option<(u64, u64)>,
}

/// The stored events of a bridge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SidecarSpool {
    /// Their directory, which outlives the container.
    #[serde(with = "saggar_sys::exact_name")]
    pub directory: PathBuf,
    /// Maximum size of all events, in bytes.
    pub max_bytes: u64,
    /// Number of uuids of each kind that the bridge remembers.
    pub remembered: u32,
}

impl ContainerRecord {
    /// Parses a record.
    ///
    /// # Errors
    /// A message that says why the record is not valid.
    pub(super) fn parse(bytes: &[u8]) -> std::result::Result<Self, String> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let version: Version = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        if version.version != RECORD_VERSION {
            return Err(format!("its version is {}, this saggar knows {RECORD_VERSION}", version.version));
        }
        serde_json::from_slice(bytes).map_err(|e| e.to_string())
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|e| {
            Error::new(Code::System, format!("write down the state of container {:?}: {e}", self.id))
        })
    }
}
