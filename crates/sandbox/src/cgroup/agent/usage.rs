//! Usage of a sandbox, from its cgroup (rows KC-08 and KC-34).

use saggar_sys::read::kernel_text;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// Values counted by the kernel since the start of the sandbox; `None` for a value that it does not count here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SandboxUsage {
    /// Peak memory usage in bytes (memory.peak, Linux 5.19).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_peak: Option<u64>,
    /// The memory limit in bytes; `None` without one (memory.max).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_max: Option<u64>,
    /// Processes killed because memory ran out (oom_kill of memory.events).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_kills: Option<u64>,
    /// CPU time in microseconds (usage_usec of cpu.stat).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_usec: Option<u64>,
    /// Time in microseconds for which processors did not run its programs because of the CPU limit (throttled_usec of
    /// cpu.stat).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_throttled_usec: Option<u64>,
    /// Peak number of processes and threads (pids.peak, Linux 6.11).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids_peak: Option<u64>,
    /// Forks that failed at the limit (max of pids.events).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids_refused: Option<u64>,
}

impl SandboxUsage {
    /// Reads the files of the sandbox's cgroup; `None` if it does not exist or has no values.
    pub fn read(cgroup: &Path) -> Option<Self> {
        let number = |file: &str| kernel_text(&cgroup.join(file)).ok()?.trim().parse().ok();
        let cpu = kernel_text(&cgroup.join("cpu.stat")).unwrap_or_default();
        let usage = SandboxUsage {
            memory_peak: number("memory.peak"),
            memory_max: number("memory.max"),
            oom_kills: read_field(cgroup, "memory.events", "oom_kill"),
            cpu_usec: parse_field(&cpu, "usage_usec"),
            cpu_throttled_usec: parse_field(&cpu, "throttled_usec"),
            pids_peak: number("pids.peak"),
            pids_refused: read_field(cgroup, "pids.events", "max"),
        };
        (usage != SandboxUsage::default()).then_some(usage)
    }
}

impl SandboxUsage {
    /// The values of this one, and those of `other` where this one has none.
    pub(super) fn or(self, other: Self) -> Self {
        SandboxUsage {
            memory_peak: self.memory_peak.or(other.memory_peak),
            memory_max: self.memory_max.or(other.memory_max),
            oom_kills: self.oom_kills.or(other.oom_kills),
            cpu_usec: self.cpu_usec.or(other.cpu_usec),
            cpu_throttled_usec: self.cpu_throttled_usec.or(other.cpu_throttled_usec),
            pids_peak: self.pids_peak.or(other.pids_peak),
            pids_refused: self.pids_refused.or(other.pids_refused),
        }
    }

    /// Whether forks failed at the limit of processes.
    pub fn has_refused_forks(&self) -> bool {
        self.pids_refused.is_some_and(|forks| forks > 0)
    }

    /// A message that `program` was killed at the memory limit.
    pub fn describe_oom_kill(&self, program: &str) -> String {
        format!("{program} was killed at the {}", self.describe_memory_limit())
    }

    /// A message that as many programs were killed at the memory limit.
    pub fn describe_oom_kills(&self, kills: u64) -> String {
        match kills {
            1 => self.describe_oom_kill("a program"),
            _ => format!("{kills} programs were killed at the {}", self.describe_memory_limit()),
        }
    }

    fn describe_memory_limit(&self) -> String {
        let limit = self.memory_max.map_or_else(String::new, |limit| format!(" of {}M", limit >> 20));
        let peak =
            self.memory_peak.map_or_else(String::new, |peak| format!(", at most {}M in use", peak >> 20));
        format!("limit of memory{limit}{peak}")
    }
}

/// Number of processes that the kernel killed in this cgroup and below because memory ran out.
pub fn oom_kills(cgroup: &Path) -> u64 {
    read_field(cgroup, "memory.events", "oom_kill").unwrap_or(0)
}

/// CPU time of all processes of the sandbox; `None` if the kernel does not report it.
pub fn cpu_time(cgroup: &Path) -> Option<Duration> {
    read_field(cgroup, "cpu.stat", "usage_usec").map(Duration::from_micros)
}

/// The number after `name` in a flat keyed file.
pub(super) fn read_field(cgroup: &Path, file: &str, name: &str) -> Option<u64> {
    parse_field(&kernel_text(&cgroup.join(file)).ok()?, name)
}

/// The number after `name` in the text of a flat keyed file.
pub(in crate::cgroup) fn parse_field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}
