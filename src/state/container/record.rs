//! The record of a container, as it lies on disk.

use crate::cgroup::Place;
use crate::error::{Code, Error, Result};
use crate::state::process::ProcessId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The version of the record that this saggar writes and reads.
pub const RECORD_VERSION: u32 = 1;

/// What is known of a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// [`RECORD_VERSION`]
    pub version: u32,
    /// Its id.
    pub id: String,
    /// The absolute path of its bundle.
    pub bundle: PathBuf,
    /// The absolute path of its root on the host.
    pub rootfs: PathBuf,
    /// When it was created, RFC 3339.
    pub created: String,
    /// Who created it: a user id.
    pub owner: u32,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// The verb that is creating it: while that runs, and there is no process yet, it is being created.
    pub creator: ProcessId,
    /// Where its cgroups are, from before they were made.
    pub cgroup: Option<Place>,
    /// Its own groups of resctrl, from before they were made.
    #[serde(default)]
    pub resctrl: Vec<PathBuf>,
    /// Its first process.
    pub process: Option<ProcessId>,
    /// Everything is applied: it is created.
    pub complete: bool,
    /// The bridge beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<Beside>,
}

/// What stands beside a container that has a bridge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Beside {
    /// What the container's program speaks: the name of an adapter.
    pub adapter: String,
    /// Where the bridge listens.
    pub socket: PathBuf,
    /// Device and inode of the socket, once it is there.
    pub socket_file: Option<(u64, u64)>,
    /// Where the cgroups of the supervisor are, from before they were made.
    pub cgroup: Place,
    /// The supervisor.
    pub supervisor: Option<ProcessId>,
    /// The guard, which ends the container when the supervisor dies.
    pub guard: Option<ProcessId>,
}

impl Record {
    /// Reads a record.
    ///
    /// # Errors
    /// What is wrong with it, in words.
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
