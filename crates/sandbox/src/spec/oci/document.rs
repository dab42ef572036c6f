//! The JSON document as Rust types. Types of the `oci-spec` crate are used wherever they parse without
//! loss.
//!
//! Own types replace those that refuse a whole document where the specification requires a warning (unknown
//! capabilities), that cannot distinguish a missing number from 0 (limits, device numbers, id maps), that
//! spell a value differently from the specification (flags of the scheduler), or that validate more than
//! this program needs (CPU lists). Sections of other platforms are not parsed.

use oci_spec::runtime as oci;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The root object of `config.json`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OciDocument {
    pub(super) oci_version: Option<String>,
    pub(super) root: Option<OciRoot>,
    pub(super) mounts: Option<Vec<OciMount>>,
    pub(super) process: Option<OciProcess>,
    pub(super) hostname: Option<String>,
    pub(super) domainname: Option<String>,
    pub(super) hooks: Option<oci::Hooks>,
    pub(super) annotations: Option<BTreeMap<String, String>>,
    pub(super) linux: Option<OciLinux>,
}

/// The object `root`.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct OciRoot {
    pub(super) path: Option<String>,
    pub(super) readonly: Option<bool>,
}

/// An element of `mounts`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OciMount {
    pub(super) destination: Option<String>,
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) source: Option<String>,
    pub(super) options: Option<Vec<String>>,
    pub(super) uid_mappings: Option<Vec<OciIdMapping>>,
    pub(super) gid_mappings: Option<Vec<OciIdMapping>>,
}

/// An element of an id map.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct OciIdMapping {
    #[serde(rename = "containerID")]
    pub(super) container_id: Option<u32>,
    #[serde(rename = "hostID")]
    pub(super) host_id: Option<u32>,
    pub(super) size: Option<u32>,
}

/// The object `process`, or a whole `process.json`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OciProcess {
    pub(super) terminal: Option<bool>,
    /// Validated only if `terminal` is true, as the specification requires.
    pub(super) console_size: Option<serde_json::Value>,
    pub(super) user: Option<oci::User>,
    pub(super) args: Option<Vec<String>>,
    pub(super) env: Option<Vec<String>>,
    pub(super) cwd: Option<String>,
    pub(super) capabilities: Option<OciCapabilities>,
    pub(super) rlimits: Option<Vec<OciRlimit>>,
    pub(super) no_new_privileges: Option<bool>,
    pub(super) apparmor_profile: Option<String>,
    pub(super) oom_score_adj: Option<i64>,
    pub(super) selinux_label: Option<String>,
    pub(super) io_priority: Option<OciIoPriority>,
    pub(super) scheduler: Option<OciScheduler>,
    #[serde(rename = "execCPUAffinity")]
    pub(super) exec_cpu_affinity: Option<OciCpuAffinity>,
}

/// The object `process.capabilities`.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct OciCapabilities {
    pub(super) bounding: Option<Vec<String>>,
    pub(super) effective: Option<Vec<String>>,
    pub(super) inheritable: Option<Vec<String>>,
    pub(super) permitted: Option<Vec<String>>,
    pub(super) ambient: Option<Vec<String>>,
}

/// An element of `process.rlimits`.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct OciRlimit {
    #[serde(rename = "type")]
    pub(super) kind: oci::PosixRlimitType,
    pub(super) soft: Option<u64>,
    pub(super) hard: Option<u64>,
}

/// The object `process.ioPriority`.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct OciIoPriority {
    pub(super) class: oci::IOPriorityClass,
    pub(super) priority: Option<i64>,
}

/// The object `process.scheduler`.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct OciScheduler {
    pub(super) policy: oci::LinuxSchedulerPolicy,
    pub(super) nice: Option<i32>,
    pub(super) priority: Option<i32>,
    pub(super) flags: Option<Vec<String>>,
    pub(super) runtime: Option<u64>,
    pub(super) deadline: Option<u64>,
    pub(super) period: Option<u64>,
}

/// The object `process.execCPUAffinity`.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct OciCpuAffinity {
    pub(super) initial: Option<String>,
    #[serde(rename = "final")]
    pub(super) last: Option<String>,
}

/// The object `linux`.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OciLinux {
    pub(super) uid_mappings: Option<Vec<OciIdMapping>>,
    pub(super) gid_mappings: Option<Vec<OciIdMapping>>,
    pub(super) time_offsets: Option<BTreeMap<String, oci::LinuxTimeOffset>>,
    pub(super) sysctl: Option<BTreeMap<String, String>>,
    pub(super) resources: Option<oci::LinuxResources>,
    pub(super) cgroups_path: Option<String>,
    pub(super) namespaces: Option<Vec<oci::LinuxNamespace>>,
    pub(super) devices: Option<Vec<OciDevice>>,
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
pub(super) struct OciDevice {
    pub(super) path: Option<String>,
    #[serde(rename = "type")]
    pub(super) kind: oci::LinuxDeviceType,
    pub(super) major: Option<i64>,
    pub(super) minor: Option<i64>,
    pub(super) file_mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
}
