//! What a container used, in the shape of runc's `events --stats`: names, units and what is left out when it
//! is zero are runc's, for shims read them.

mod text;
mod v1;
mod v2;

pub(super) use v2::pressure_of;

use super::tree::{Dirs, Tree};
use crate::error::Result;
use crate::host::cgroups::Version;
use serde::Serialize;
use std::collections::BTreeMap;

/// The `data` of an event of type `stats`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Stats {
    /// Processor time.
    pub cpu: Cpu,
    /// Which processors and memory nodes.
    pub cpuset: CpuSet,
    /// Memory.
    pub memory: Memory,
    /// Processes and threads.
    pub pids: Pids,
    /// Block devices.
    pub blkio: BlockIo,
    /// Huge pages, by size.
    pub hugetlb: BTreeMap<String, Hugetlb>,
    /// Always empty: resource control groups are reported elsewhere.
    pub intel_rdt: Empty,
    /// Always null, as runc gives it for containers without interfaces of its own.
    pub network_interfaces: Option<Vec<Empty>>,
}

/// Reads everything, controller by controller, from where each is.
pub(super) fn read(dirs: &Dirs) -> Result<Stats> {
    let mut stats = Stats::default();
    type Reader = fn(&Dirs, &mut Stats) -> Result<()>;
    let readers: [(&str, Reader, Reader); 7] = [
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
            Some(Version::V1) => of_v1(dirs, &mut stats)?,
            Some(Version::V2) => of_v2(dirs, &mut stats)?,
        }
    }
    text::pids(dirs, &mut stats)?;
    v2::pressure(dirs, &mut stats)?;
    Ok(stats)
}

/// `{}`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Empty {}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// Processor time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Cpu {
    /// How much was used.
    pub usage: CpuUsage,
    /// How often the quota stopped it.
    pub throttling: Throttling,
    /// Pressure (v2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub psi: Option<Pressure>,
}

/// Nanoseconds of processor time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CpuUsage {
    /// All together.
    #[serde(skip_serializing_if = "is_zero")]
    pub total: u64,
    /// By processor (v1).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub percpu: Vec<u64>,
    /// By processor, in the kernel (v1).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub percpu_kernel: Vec<u64>,
    /// By processor, in programs (v1).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub percpu_user: Vec<u64>,
    /// In the kernel.
    pub kernel: u64,
    /// In programs.
    pub user: u64,
}

/// What the quota did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Throttling {
    /// Periods with something to run.
    #[serde(skip_serializing_if = "is_zero")]
    pub periods: u64,
    /// Periods in which the quota was used up.
    #[serde(skip_serializing_if = "is_zero")]
    pub throttled_periods: u64,
    /// Nanoseconds for which it was stopped.
    #[serde(skip_serializing_if = "is_zero")]
    pub throttled_time: u64,
}

/// Pressure stall information (Documentation/accounting/psi.rst).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Pressure {
    /// Some task waited.
    pub some: PressureLine,
    /// All tasks waited.
    pub full: PressureLine,
}

/// Shares of time in percent, and the total in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct PressureLine {
    /// Over ten seconds.
    pub avg10: f64,
    /// Over a minute.
    pub avg60: f64,
    /// Over five minutes.
    pub avg300: f64,
    /// Microseconds.
    pub total: u64,
}

/// Processors and memory nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CpuSet {
    /// Numbers of processors.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<u16>,
    /// `cpuset.cpu_exclusive` (v1), as all that follow but `mems`.
    pub cpu_exclusive: u64,
    /// Numbers of memory nodes.
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
pub struct Memory {
    /// Bytes of page cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache: u64,
    /// Memory in bytes.
    pub usage: MemoryEntry,
    /// Memory and swap together, in bytes.
    pub swap: MemoryEntry,
    /// Kernel memory in bytes (v1).
    pub kernel: MemoryEntry,
    /// Buffers of TCP in bytes (v1).
    #[serde(rename = "kernelTCP")]
    pub kernel_tcp: MemoryEntry,
    /// All of `memory.stat`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub raw: BTreeMap<String, u64>,
    /// Pressure (v2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub psi: Option<Pressure>,
}

/// One counter of memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MemoryEntry {
    /// Bytes at most; 18446744073709551615 without a limit.
    pub limit: u64,
    /// Bytes now.
    #[serde(skip_serializing_if = "is_zero")]
    pub usage: u64,
    /// The most that it was, in bytes.
    #[serde(skip_serializing_if = "is_zero")]
    pub max: u64,
    /// How often the limit was met.
    pub failcnt: u64,
}

/// Processes and threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Pids {
    /// Now.
    #[serde(skip_serializing_if = "is_zero")]
    pub current: u64,
    /// At most; 0 without a limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub limit: u64,
}

/// Block devices.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockIo {
    /// Bytes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub io_service_bytes_recursive: Vec<BlockIoEntry>,
    /// Requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub io_serviced_recursive: Vec<BlockIoEntry>,
    /// Requests that wait (v1, BFQ).
    #[serde(rename = "ioQueueRecursive", skip_serializing_if = "Vec::is_empty")]
    pub io_queued_recursive: Vec<BlockIoEntry>,
    /// Nanoseconds of service (v1, BFQ).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub io_service_time_recursive: Vec<BlockIoEntry>,
    /// Nanoseconds of waiting (v1, BFQ).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub io_wait_time_recursive: Vec<BlockIoEntry>,
    /// Merged requests (v1, BFQ).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub io_merged_recursive: Vec<BlockIoEntry>,
    /// Milliseconds of device time (v1, BFQ).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub io_time_recursive: Vec<BlockIoEntry>,
    /// Sectors (v1, BFQ).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sectors_recursive: Vec<BlockIoEntry>,
    /// Pressure (v2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub psi: Option<Pressure>,
}

/// One number of one device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BlockIoEntry {
    /// Major number.
    #[serde(skip_serializing_if = "is_zero")]
    pub major: u64,
    /// Minor number.
    #[serde(skip_serializing_if = "is_zero")]
    pub minor: u64,
    /// `Read`, `Write`, `Sync`, …
    #[serde(skip_serializing_if = "String::is_empty")]
    pub op: String,
    /// The number.
    #[serde(skip_serializing_if = "is_zero")]
    pub value: u64,
}

/// Huge pages of one size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Hugetlb {
    /// Bytes now.
    #[serde(skip_serializing_if = "is_zero")]
    pub usage: u64,
    /// The most that it was (v1).
    #[serde(skip_serializing_if = "is_zero")]
    pub max: u64,
    /// How often the limit was met.
    pub failcnt: u64,
}
