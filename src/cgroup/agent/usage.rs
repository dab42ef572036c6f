//! What a sandbox has used, as its cgroup tells (rows KC-08 and KC-34).

use serde::Serialize;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// What the kernel counted since the sandbox began; what it does not count here is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// The most memory at one time, in bytes (memory.peak, Linux 5.19).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_peak: Option<u64>,
    /// The limit of memory in bytes, where there is one (memory.max).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_max: Option<u64>,
    /// Processes that were killed for want of memory (oom_kill of memory.events).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_kills: Option<u64>,
    /// Processor time in microseconds (usage_usec of cpu.stat).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_usec: Option<u64>,
    /// The most processes and threads at one time (pids.peak, Linux 6.11).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids_peak: Option<u64>,
    /// Forks that were refused at the limit (max of pids.events).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids_refused: Option<u64>,
}

impl Usage {
    /// Reads the files of the sandbox's cgroup; `None` of one that is gone, or never was, or tells nothing.
    pub fn of(cgroup: &Path) -> Option<Self> {
        let number = |file: &str| fs::read_to_string(cgroup.join(file)).ok()?.trim().parse().ok();
        let usage = Usage {
            memory_peak: number("memory.peak"),
            memory_max: number("memory.max"),
            oom_kills: field(cgroup, "memory.events", "oom_kill"),
            cpu_usec: field(cgroup, "cpu.stat", "usage_usec"),
            pids_peak: number("pids.peak"),
            pids_refused: field(cgroup, "pids.events", "max"),
        };
        (usage != Usage::default()).then_some(usage)
    }
}

impl Usage {
    /// That a program was killed at the limit of memory, in words.
    pub fn out_of_memory(&self, program: &str) -> String {
        let limit = self.memory_max.map_or_else(String::new, |limit| format!(" of {}M", limit >> 20));
        let peak = self.memory_peak.map_or_else(String::new, |peak| format!(", it had {}M", peak >> 20));
        format!("{program} was killed at the limit of memory{limit}{peak}")
    }
}

/// How many processes the kernel has killed in this cgroup, and below, for want of memory.
pub fn oom_kills(cgroup: &Path) -> u64 {
    field(cgroup, "memory.events", "oom_kill").unwrap_or(0)
}

/// Processor time that all processes of the sandbox have used; `None` when the kernel does not say.
pub fn cpu_time(cgroup: &Path) -> Option<Duration> {
    field(cgroup, "cpu.stat", "usage_usec").map(Duration::from_micros)
}

/// The number after `name` in a file of such lines.
pub(super) fn field(cgroup: &Path, file: &str, name: &str) -> Option<u64> {
    field_of(&fs::read_to_string(cgroup.join(file)).ok()?, name)
}

/// The same of a text.
pub(super) fn field_of(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}
