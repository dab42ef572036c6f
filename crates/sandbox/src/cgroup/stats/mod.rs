//! Usage of a container, in the format of runc's `events --stats`. Names, units and the omission of zero values are
//! those of runc, because shims parse them.

mod text;
mod v1;
mod v2;

pub(super) use v2::parse_pressure;

use super::control_files::{ControlFiles, OpenCgroups};
use crate::host::cgroups::CgroupVersion;
use saggar_sys::error::Result;
use serde::Serialize;
use std::collections::BTreeMap;

/// The `data` of an event of type `stats`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ContainerStats {
    /// CPU time.
    pub cpu: CpuStats,
    /// CPUs and memory nodes that may be used.
    pub cpuset: CpusetStats,
    /// Memory.
    pub memory: MemoryStats,
    /// Processes and threads.
    pub pids: PidsStats,
    /// Block devices.
    pub blkio: BlkioStats,
    /// Huge pages, by size.
    pub hugetlb: BTreeMap<String, HugetlbStats>,
    /// Always empty: resctrl groups are reported elsewhere.
    pub intel_rdt: EmptyObject,
    /// Always null, as in runc for containers without network interfaces of their own.
    pub network_interfaces: Option<Vec<EmptyObject>>,
}

/// Reads all statistics, each controller from its hierarchy.
pub(super) fn read(dirs: &OpenCgroups) -> Result<ContainerStats> {
    let mut stats = ContainerStats::default();
    type StatsReader = fn(&OpenCgroups, &mut ContainerStats) -> Result<()>;
    let readers: [(&str, StatsReader, StatsReader); 7] = [
        ("memory", v1::memory, v2::memory),
        ("cpuacct", v1::cpuacct, v2::cpu),
        ("cpu", v1::cpu, v2::cpu),
        ("cpuset", v1::cpuset, v2::cpuset),
        ("blkio", v1::blkio, v2::io),
        ("io", v1::blkio, v2::io),
        ("hugetlb", text::hugetlb, text::hugetlb),
    ];
    for (controller, of_v1, of_v2) in readers {
        match dirs.version(controller) {
            None => {}
            Some(CgroupVersion::V1) => of_v1(dirs, &mut stats)?,
            Some(CgroupVersion::V2) => of_v2(dirs, &mut stats)?,
        }
    }
    text::pids(dirs, &mut stats)?;
    v2::pressure(dirs, &mut stats)?;
    Ok(stats)
}

/// An empty JSON object, `{}`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct EmptyObject {}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// CPU time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CpuStats {
    /// CPU time used.
    pub usage: CpuUsage,
    /// Throttling by the quota.
    pub throttling: ThrottlingStats,
    /// Pressure (v2 only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub psi: Option<Pressure>,
}

/// CPU time in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CpuUsage {
    /// Total time.
    #[serde(skip_serializing_if = "is_zero")]
    pub total: u64,
    /// Time on each CPU (v1).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub percpu: Vec<u64>,
    /// Kernel time on each CPU (v1).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub percpu_kernel: Vec<u64>,
    /// User time on each CPU (v1).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub percpu_user: Vec<u64>,
    /// Kernel time.
    pub kernel: u64,
    /// User time.
    pub user: u64,
}

/// Throttling by the CPU quota.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ThrottlingStats {
    /// Number of periods with runnable tasks.
    #[serde(skip_serializing_if = "is_zero")]
    pub periods: u64,
    /// Number of periods in which the quota was used up.
    #[serde(skip_serializing_if = "is_zero")]
    pub throttled_periods: u64,
    /// Total throttled time in nanoseconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub throttled_time: u64,
}

/// Pressure stall information (Documentation/accounting/psi.rst).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Pressure {
    /// Time in which at least one task waited.
    pub some: PressureAverages,
    /// Time in which all tasks waited.
    pub full: PressureAverages,
}

/// Percentages of time, and the total in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct PressureAverages {
    /// Average over 10 seconds, in percent.
    pub avg10: f64,
    /// Average over 60 seconds, in percent.
    pub avg60: f64,
    /// Average over 300 seconds, in percent.
    pub avg300: f64,
    /// Total in microseconds.
    pub total: u64,
}

/// Processors and memory nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CpusetStats {
    /// Numbers of the CPUs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<u16>,
    /// `cpuset.cpu_exclusive` (v1), like all following fields but `mems`.
    pub cpu_exclusive: u64,
    /// Numbers of the memory nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mems: Vec<u16>,
    /// `cpuset.mem_hardwall`
    pub mem_hardwall: u64,
    /// `cpuset.mem_exclusive`
    pub mem_exclusive: u64,
    /// `cpuset.memory_migrate`
    pub memory_migrate: u64,
    /// `cpuset.memory_spread_page`
    pub memory_spread_page: u64,
    /// `cpuset.memory_spread_slab`
    pub memory_spread_slab: u64,
    /// `cpuset.memory_pressure`
    pub memory_pressure: u64,
    /// `cpuset.sched_load_balance`
    pub sched_load_balance: u64,
    /// `cpuset.sched_relax_domain_level`
    pub sched_relax_domain_level: i64,
}

/// Memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct MemoryStats {
    /// Bytes of page cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache: u64,
    /// Memory usage in bytes.
    pub usage: MemoryUsage,
    /// Memory plus swap, in bytes.
    pub swap: MemoryUsage,
    /// Kernel memory in bytes (v1).
    pub kernel: MemoryUsage,
    /// TCP buffers in bytes (v1).
    #[serde(rename = "kernelTCP")]
    pub kernel_tcp: MemoryUsage,
    /// All fields of `memory.stat`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub raw: BTreeMap<String, u64>,
    /// Pressure (v2 only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub psi: Option<Pressure>,
}

/// Usage and limit of one kind of memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MemoryUsage {
    /// Limit in bytes; 18446744073709551615 without a limit.
    pub limit: u64,
    /// Current usage in bytes.
    #[serde(skip_serializing_if = "is_zero")]
    pub usage: u64,
    /// Maximum usage so far, in bytes.
    #[serde(skip_serializing_if = "is_zero")]
    pub max: u64,
    /// Number of times the limit was reached.
    pub failcnt: u64,
}

/// Processes and threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PidsStats {
    /// Current number.
    #[serde(skip_serializing_if = "is_zero")]
    pub current: u64,
    /// Limit; 0 without a limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub limit: u64,
}

/// Block devices.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlkioStats {
    /// Bytes transferred.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub io_service_bytes_recursive: Vec<BlkioEntry>,
    /// Number of requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub io_serviced_recursive: Vec<BlkioEntry>,
    /// Number of queued requests (v1, BFQ).
    #[serde(rename = "ioQueueRecursive", skip_serializing_if = "Vec::is_empty")]
    pub io_queued_recursive: Vec<BlkioEntry>,
    /// Service time in nanoseconds (v1, BFQ).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub io_service_time_recursive: Vec<BlkioEntry>,
    /// Waiting time in nanoseconds (v1, BFQ).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub io_wait_time_recursive: Vec<BlkioEntry>,
    /// Number of merged requests (v1, BFQ).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub io_merged_recursive: Vec<BlkioEntry>,
    /// Device time in milliseconds (v1, BFQ).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub io_time_recursive: Vec<BlkioEntry>,
    /// Number of sectors (v1, BFQ).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sectors_recursive: Vec<BlkioEntry>,
    /// Pressure (v2 only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub psi: Option<Pressure>,
}

/// One value of one device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BlkioEntry {
    /// Major number.
    #[serde(skip_serializing_if = "is_zero")]
    pub major: u64,
    /// Minor number.
    #[serde(skip_serializing_if = "is_zero")]
    pub minor: u64,
    /// `Read`, `Write`, `Sync`, …
    #[serde(skip_serializing_if = "String::is_empty")]
    pub op: String,
    /// The value of the counter.
    #[serde(skip_serializing_if = "is_zero")]
    pub value: u64,
}

/// Huge pages of one size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct HugetlbStats {
    /// Current usage in bytes.
    #[serde(skip_serializing_if = "is_zero")]
    pub usage: u64,
    /// Maximum usage so far, in bytes (v1).
    #[serde(skip_serializing_if = "is_zero")]
    pub max: u64,
    /// Number of times the limit was reached.
    pub failcnt: u64,
}
