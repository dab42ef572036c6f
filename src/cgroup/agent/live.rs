//! Sandboxes that run, and what they use, as the kernel tells it (row KC-34). What a host does not count is left
//! out.

use super::place::{MAIN, id_of, mount};
use super::usage::{field, field_of};
use crate::cgroup::stats::{Pressure, pressure_of};
use crate::id::SandboxId;
use serde::Serialize;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How deep cgroups are looked for.
const DEPTH: usize = 16;

/// A sandbox that has a cgroup with processes in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Live {
    /// Its name.
    pub id: SandboxId,
    /// Its cgroup.
    pub cgroup: PathBuf,
}

/// The sandboxes of this host whose cgroups belong to `owner`, or all of them.
pub fn find(owner: Option<u32>) -> Vec<Live> {
    let mut found = Vec::new();
    if let Some(mount) = mount() {
        look(Path::new(mount), owner, DEPTH, &mut found);
    }
    found.sort_by(|one, other| (one.id.as_str(), &one.cgroup).cmp(&(other.id.as_str(), &other.cgroup)));
    found
}

fn look(directory: &Path, owner: Option<u32>, depth: usize, found: &mut Vec<Live>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let path = entry.path();
        let id = id_of(&entry.file_name()).filter(|_| path.join(MAIN).is_dir());
        match id {
            Some(id) => {
                let is_theirs =
                    owner.is_none_or(|owner| entry.metadata().is_ok_and(|meta| meta.uid() == owner));
                if is_theirs && field(&path, "cgroup.events", "populated") == Some(1) {
                    found.push(Live { id, cgroup: path });
                }
            }
            None if depth > 0 => look(&path, owner, depth - 1, found),
            None => {}
        }
    }
}

/// Whether all of a sandbox stands still.
pub fn is_frozen(cgroup: &Path) -> bool {
    field(cgroup, "cgroup.events", "frozen") == Some(1)
}

/// What a sandbox uses and has used. Names and units are those of the kernel's files
/// (Documentation/admin-guide/cgroup-v2.rst).
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Stats {
    /// Processor time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Amount>,
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<Amount>,
    /// Block devices, all together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<Io>,
    /// How long programs waited for something.
    pub pressure: Pressures,
    /// How often limits were met.
    pub met: Met,
}

/// Processor time in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Cpu {
    /// All together.
    pub usage_usec: u64,
    /// In programs.
    pub user_usec: u64,
    /// In the kernel.
    pub system_usec: u64,
    /// For which the limit held it up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_usec: Option<u64>,
    /// Of one second, how many microseconds it may have at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_usec: Option<u64>,
}

/// Bytes of memory, or a number of processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Amount {
    /// Now.
    pub current: u64,
    /// The most at one time (memory: Linux 5.19, pids: Linux 6.11).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak: Option<u64>,
    /// The limit, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
}

/// Bytes and operations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Io {
    /// Bytes read.
    pub rbytes: u64,
    /// Bytes written.
    pub wbytes: u64,
    /// Reads.
    pub rios: u64,
    /// Writes.
    pub wios: u64,
}

/// Pressure of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Pressures {
    /// For a processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Pressure>,
    /// For memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Pressure>,
    /// For a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<Pressure>,
}

/// Counts of events at limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Met {
    /// Processes that were killed for want of memory (oom_kill of memory.events).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_kills: Option<u64>,
    /// Times that memory was about to go over its limit (max of memory.events).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Forks that were refused (max of pids.events).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    /// Periods in which the processor limit was used up (nr_throttled of cpu.stat).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u64>,
}

impl Stats {
    /// Reads the files of a sandbox's cgroup.
    pub fn of(cgroup: &Path) -> Self {
        let text = |file: &str| fs::read_to_string(cgroup.join(file)).ok();
        let number = |file: &str| text(file)?.trim().parse().ok();
        let amount = |controller: &str| {
            Some(Amount {
                current: number(&format!("{controller}.current"))?,
                peak: number(&format!("{controller}.peak")),
                max: number(&format!("{controller}.max")),
            })
        };
        let pressure = |kind: &str| Some(pressure_of(&text(&format!("{kind}.pressure"))?));
        Stats {
            cpu: text("cpu.stat").as_deref().and_then(|stat| cpu(stat, text("cpu.max").as_deref())),
            memory: amount("memory"),
            pids: amount("pids"),
            io: text("io.stat").as_deref().map(io),
            pressure: Pressures { cpu: pressure("cpu"), memory: pressure("memory"), io: pressure("io") },
            met: Met {
                oom_kills: field(cgroup, "memory.events", "oom_kill"),
                memory: field(cgroup, "memory.events", "max"),
                pids: field(cgroup, "pids.events", "max"),
                cpu: field(cgroup, "cpu.stat", "nr_throttled"),
            },
        }
    }
}

fn cpu(stat: &str, max: Option<&str>) -> Option<Cpu> {
    let count = |name| field_of(stat, name);
    let quota = |max: &str| {
        let (quota, period) = max.trim().split_once(' ')?;
        let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
        quota.saturating_mul(1_000_000).checked_div(period)
    };
    Some(Cpu {
        usage_usec: count("usage_usec")?,
        user_usec: count("user_usec")?,
        system_usec: count("system_usec")?,
        throttled_usec: count("throttled_usec"),
        max_usec: max.and_then(quota),
    })
}

/// The sum over all devices: `MAJOR:MINOR rbytes=N wbytes=N …`.
fn io(stat: &str) -> Io {
    let mut sum = Io::default();
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
        assert_eq!(Stats::of(scratch.path()), Stats::default());
        let nothing = serde_json::json!({ "pressure": {}, "met": {} });
        assert_eq!(serde_json::to_value(Stats::default()).unwrap(), nothing);
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
        assert_eq!(sum, Io { rbytes: 11, wbytes: 22, rios: 33, wios: 44 });
    }
}
