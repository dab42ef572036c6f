//! The document as it stands in JSON. Whatever the `oci-spec` crate reads without loss is read with its types.
//!
//! Own types are here where the crate's refuse a whole document for what the specification wants to be a warning
//! (unknown capabilities), where they cannot tell a missing number from 0 (limits, device numbers, id maps), where
//! they spell a value in another way than the specification (flags of the scheduler), or check it with more than
//! this program needs (CPU lists). Sections of other platforms are not read at all.

use oci_spec::runtime as oci;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `config.json`
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document {
    pub(super) oci_version: Option<String>,
    pub(super) root: Option<Root>,
    pub(super) mounts: Option<Vec<Mount>>,
    pub(super) process: Option<Process>,
    pub(super) hostname: Option<String>,
    pub(super) domainname: Option<String>,
    pub(super) hooks: Option<oci::Hooks>,
    pub(super) annotations: Option<BTreeMap<String, String>>,
    pub(super) linux: Option<Linux>,
}

/// `root`
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Root {
    pub(super) path: Option<String>,
    pub(super) readonly: Option<bool>,
}

/// An element of `mounts`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Mount {
    pub(super) destination: Option<String>,
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) source: Option<String>,
    pub(super) options: Option<Vec<String>>,
    pub(super) uid_mappings: Option<Vec<IdMapping>>,
    pub(super) gid_mappings: Option<Vec<IdMapping>>,
}

/// An element of an id map.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct IdMapping {
    #[serde(rename = "containerID")]
    pub(super) container_id: Option<u32>,
    #[serde(rename = "hostID")]
    pub(super) host_id: Option<u32>,
    pub(super) size: Option<u32>,
}

/// `process`, and the whole of a `process.json`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Process {
    pub(super) terminal: Option<bool>,
    /// Looked at only where there is a terminal, as the specification has it.
    pub(super) console_size: Option<serde_json::Value>,
    pub(super) user: Option<oci::User>,
    pub(super) args: Option<Vec<String>>,
    pub(super) env: Option<Vec<String>>,
    pub(super) cwd: Option<String>,
    pub(super) capabilities: Option<Capabilities>,
    pub(super) rlimits: Option<Vec<Rlimit>>,
    pub(super) no_new_privileges: Option<bool>,
    pub(super) apparmor_profile: Option<String>,
    pub(super) oom_score_adj: Option<i64>,
    pub(super) selinux_label: Option<String>,
    pub(super) io_priority: Option<IoPriority>,
    pub(super) scheduler: Option<Scheduler>,
    #[serde(rename = "execCPUAffinity")]
    pub(super) exec_cpu_affinity: Option<CpuAffinity>,
}

/// `process.capabilities`
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct Capabilities {
    pub(super) bounding: Option<Vec<String>>,
    pub(super) effective: Option<Vec<String>>,
    pub(super) inheritable: Option<Vec<String>>,
    pub(super) permitted: Option<Vec<String>>,
    pub(super) ambient: Option<Vec<String>>,
}

/// An element of `process.rlimits`.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Rlimit {
    #[serde(rename = "type")]
    pub(super) kind: oci::PosixRlimitType,
    pub(super) soft: Option<u64>,
    pub(super) hard: Option<u64>,
}

/// `process.ioPriority`
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct IoPriority {
    pub(super) class: oci::IOPriorityClass,
    pub(super) priority: Option<i64>,
}

/// `process.scheduler`
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Scheduler {
    pub(super) policy: oci::LinuxSchedulerPolicy,
    pub(super) nice: Option<i32>,
    pub(super) priority: Option<i32>,
    pub(super) flags: Option<Vec<String>>,
    pub(super) runtime: Option<u64>,
    pub(super) deadline: Option<u64>,
    pub(super) period: Option<u64>,
}

/// `process.execCPUAffinity`
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct CpuAffinity {
    pub(super) initial: Option<String>,
    #[serde(rename = "final")]
    pub(super) last: Option<String>,
}

/// `linux`
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Linux {
    pub(super) uid_mappings: Option<Vec<IdMapping>>,
    pub(super) gid_mappings: Option<Vec<IdMapping>>,
    pub(super) time_offsets: Option<BTreeMap<String, oci::LinuxTimeOffset>>,
    pub(super) sysctl: Option<BTreeMap<String, String>>,
    pub(super) resources: Option<oci::LinuxResources>,
    pub(super) cgroups_path: Option<String>,
    pub(super) namespaces: Option<Vec<oci::LinuxNamespace>>,
    pub(super) devices: Option<Vec<Device>>,
    pub(super) net_devices: Option<BTreeMap<String, Option<oci::LinuxNetDevice>>>,
    pub(super) seccomp: Option<oci::LinuxSeccomp>,
    pub(super) rootfs_propagation: Option<String>,
    pub(super) masked_paths: Option<Vec<String>>,
    pub(super) readonly_paths: Option<Vec<String>>,
    pub(super) mount_label: Option<String>,
    pub(super) intel_rdt: Option<oci::LinuxIntelRdt>,
    pub(super) memory_policy: Option<oci::LinuxMemoryPolicy>,
    pub(super) personality: Option<oci::LinuxPersonality>,
}

/// An element of `linux.devices`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Device {
    pub(super) path: Option<String>,
    #[serde(rename = "type")]
    pub(super) kind: oci::LinuxDeviceType,
    pub(super) major: Option<i64>,
    pub(super) minor: Option<i64>,
    pub(super) file_mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
}
