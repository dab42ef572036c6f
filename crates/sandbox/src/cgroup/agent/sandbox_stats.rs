//! Current usage of a sandbox (row KC-34). Values that a host does not count are omitted.

use super::usage::{parse_field, read_field};
use crate::cgroup::stats::{Pressure, parse_pressure};
use serde::Serialize;
use std::fs;
use std::path::Path;

/// Current and accumulated usage of a sandbox. Names and units are those of the kernel's files
/// (Documentation/admin-guide/cgroup-v2.rst).
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SandboxStats {
    /// CPU time; `None` if the host does not count it, as for all fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuTime>,
    /// Memory in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<ResourceUsage>,
    /// Number of processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<ResourceUsage>,
    /// Block devices, summed over all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<IoCounters>,
    /// Pressure stall information.
    pub pressure: PressureByResource,
    /// Number of times each limit was exceeded.
    pub exceeded: ExceededCounts,
}

/// CPU time in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CpuTime {
    /// Total time.
    pub usage_usec: u64,
    /// User time.
    pub user_usec: u64,
    /// Kernel time.
    pub system_usec: u64,
    /// Time for which the limit throttled the sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_usec: Option<u64>,
    /// The limit in microseconds for each second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_usec: Option<u64>,
}

/// Usage in bytes of memory, or in processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ResourceUsage {
    /// Current usage.
    pub current: u64,
    /// Peak usage (memory: Linux 5.19, pids: Linux 6.11).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak: Option<u64>,
    /// The limit; `None` without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
}

/// Bytes and operations of block devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct IoCounters {
    /// Bytes read.
    pub rbytes: u64,
    /// Bytes written.
    pub wbytes: u64,
    /// Number of reads.
    pub rios: u64,
    /// Number of writes.
    pub wios: u64,
}

/// Pressure for each resource; `None` if the kernel does not report it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct PressureByResource {
    /// Tasks that waited for a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Pressure>,
    /// Tasks that waited for memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Pressure>,
    /// Tasks that waited for a block device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<Pressure>,
}

/// Number of times each limit was exceeded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ExceededCounts {
    /// Processes killed because memory ran out (oom_kill of memory.events).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_kills: Option<u64>,
    /// Times that memory usage was about to exceed its limit (max of memory.events).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Forks that failed at the limit (max of pids.events).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    /// Periods in which the CPU limit was used up (nr_throttled of cpu.stat).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u64>,
}

impl SandboxStats {
    /// Reads the files of a sandbox's cgroup in version 2.
    pub(super) fn read(cgroup: &Path) -> Self {
        let text = |file: &str| fs::read_to_string(cgroup.join(file)).ok();
        let number = |file: &str| text(file)?.trim().parse().ok();
        let amount = |controller: &str| {
            Some(ResourceUsage {
                current: number(&format!("{controller}.current"))?,
                peak: number(&format!("{controller}.peak")),
                max: number(&format!("{controller}.max")),
            })
        };
        let pressure = |kind: &str| Some(parse_pressure(&text(&format!("{kind}.pressure"))?));
        SandboxStats {
            cpu: text("cpu.stat").as_deref().and_then(|stat| cpu(stat, text("cpu.max").as_deref())),
            memory: amount("memory"),
            pids: amount("pids"),
            io: text("io.stat").as_deref().map(io),
            pressure: PressureByResource {
                cpu: pressure("cpu"),
                memory: pressure("memory"),
                io: pressure("io"),
            },
            exceeded: ExceededCounts {
                oom_kills: read_field(cgroup, "memory.events", "oom_kill"),
                memory: read_field(cgroup, "memory.events", "max"),
                pids: read_field(cgroup, "pids.events", "max"),
                cpu: read_field(cgroup, "cpu.stat", "nr_throttled"),
            },
        }
    }
}

/// A quota of CPU time in each period, both in microseconds, as microseconds for each second.
pub(super) fn usec_per_second(quota: u64, period: u64) -> Option<u64> {
    quota.saturating_mul(1_000_000).checked_div(period)
}

fn cpu(stat: &str, max: Option<&str>) -> Option<CpuTime> {
    let count = |name| parse_field(stat, name);
    let quota = |max: &str| {
        let (quota, period) = max.trim().split_once(' ')?;
        usec_per_second(quota.parse().ok()?, period.parse().ok()?)
    };
    Some(CpuTime {
        usage_usec: count("usage_usec")?,
        user_usec: count("user_usec")?,
        system_usec: count("system_usec")?,
        throttled_usec: count("throttled_usec"),
        max_usec: max.and_then(quota),
    })
}

/// Sums all devices of lines `MAJOR:MINOR rbytes=N wbytes=N …`.
fn io(stat: &str) -> IoCounters {
    let mut sum = IoCounters::default();
    for (key, value) in stat.split_whitespace().filter_map(|word| word.split_once('=')) {
        let to = match key {
            "rbytes" => &mut sum.rbytes,
            "wbytes" => &mut sum.wbytes,
            "rios" => &mut sum.rios,
            "wios" => &mut sum.wios,
            _ => continue,
        };
        *to = to.saturating_add(value.parse().unwrap_or(0));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_does_not_count_is_left_out() {
        let scratch = tempfile::tempdir().unwrap();
        assert_eq!(SandboxStats::read(scratch.path()), SandboxStats::default());
        let nothing = serde_json::json!({ "pressure": {}, "exceeded": {} });
        assert_eq!(serde_json::to_value(SandboxStats::default()).unwrap(), nothing);
    }

    #[test]
    fn files_are_read_as_the_kernel_writes_them() {
        let stat =
            "usage_usec 30\nuser_usec 10\nsystem_usec 20\nnr_periods 5\nnr_throttled 2\nthrottled_usec 9\n";
        let read = cpu(stat, Some("50000 100000\n")).unwrap();
        assert_eq!((read.usage_usec, read.throttled_usec, read.max_usec), (30, Some(9), Some(500_000)));
        assert_eq!(cpu(stat, Some("max 100000\n")).unwrap().max_usec, None);
        let sum = io(
            "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n253:0 rbytes=10 wbytes=20 rios=30 wios=40\n",
        );
        assert_eq!(sum, IoCounters { rbytes: 11, wbytes: 22, rios: 33, wios: 44 });
    }
}
