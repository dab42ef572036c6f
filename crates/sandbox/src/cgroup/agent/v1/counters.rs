//! What the kernel counts in cgroups of version 1 (Documentation/admin-guide/cgroup-v1: memory.rst, cpuacct.rst, pids.rst;
//! Documentation/scheduler/sched-bwc.rst).

use super::V1Cgroup;
use crate::cgroup::agent::sandbox_stats::{
    CpuTime, ExceededCounts, ResourceUsage, SandboxStats, usec_per_second,
};
use crate::cgroup::agent::usage::{SandboxUsage, read_field};
use crate::cgroup::limits::V1_NO_LIMIT;
use std::fs;

/// The files of a sandbox's cgroups.
struct Files<'a>(&'a [V1Cgroup]);

impl Files<'_> {
    fn cgroup(&self, controller: &str) -> Option<&V1Cgroup> {
        self.0.iter().find(|one| one.has(controller))
    }

    /// A number; `None` if there is no such file, or no number in it, such as `max` and -1.
    fn number(&self, controller: &str, file: &str) -> Option<u64> {
        fs::read_to_string(self.cgroup(controller)?.path.join(file)).ok()?.trim().parse().ok()
    }

    fn field(&self, controller: &str, file: &str, name: &str) -> Option<u64> {
        read_field(&self.cgroup(controller)?.path, file, name)
    }

    /// A time in microseconds, from a file with nanoseconds.
    fn usec(&self, file: &str) -> Option<u64> {
        self.number("cpuacct", file).map(|nanoseconds| nanoseconds / 1000)
    }

    fn memory_limit(&self) -> Option<u64> {
        self.number("memory", "memory.limit_in_bytes").filter(|limit| *limit < V1_NO_LIMIT)
    }

    fn throttled_usec(&self) -> Option<u64> {
        self.field("cpu", "cpu.stat", "throttled_time").map(|nanoseconds| nanoseconds / 1000)
    }

    fn refused_forks(&self) -> Option<u64> {
        self.field("pids", "pids.events", "max")
    }

    fn cpu(&self) -> Option<CpuTime> {
        Some(CpuTime {
            usage_usec: self.usec("cpuacct.usage")?,
            user_usec: self.usec("cpuacct.usage_user")?,
            system_usec: self.usec("cpuacct.usage_sys")?,
            ..CpuTime::default()
        })
    }

    /// The limit of CPU time in microseconds for each second.
    fn cpu_limit(&self) -> Option<u64> {
        usec_per_second(self.number("cpu", "cpu.cfs_quota_us")?, self.number("cpu", "cpu.cfs_period_us")?)
    }
}

/// The usage of a sandbox since its start.
pub(in crate::cgroup::agent) fn usage(cgroups: &[V1Cgroup]) -> SandboxUsage {
    let files = Files(cgroups);
    SandboxUsage {
        memory_peak: files.number("memory", "memory.max_usage_in_bytes"),
        memory_max: files.memory_limit(),
        oom_kills: oom_kills(cgroups),
        cpu_usec: files.usec("cpuacct.usage"),
        cpu_throttled_usec: files.throttled_usec(),
        pids_peak: files.number("pids", "pids.peak"),
        pids_refused: files.refused_forks(),
    }
}

/// Current and accumulated usage, with what version 2 counts of the sandbox. The kernel has
/// each controller in one of the two versions.
pub(in crate::cgroup::agent) fn stats(cgroups: &[V1Cgroup], unified: SandboxStats) -> SandboxStats {
    let files = Files(cgroups);
    let amount = |controller: &str, current: &str, peak: &str, max: Option<u64>| {
        let current = files.number(controller, current)?;
        Some(ResourceUsage { current, peak: files.number(controller, peak), max })
    };
    let memory =
        || amount("memory", "memory.usage_in_bytes", "memory.max_usage_in_bytes", files.memory_limit());
    let pids = || amount("pids", "pids.current", "pids.peak", files.number("pids", "pids.max"));
    let met = unified.exceeded;
    SandboxStats {
        cpu: unified.cpu.or_else(|| files.cpu()).map(|cpu| CpuTime {
            throttled_usec: cpu.throttled_usec.or_else(|| files.throttled_usec()),
            max_usec: cpu.max_usec.or_else(|| files.cpu_limit()),
            ..cpu
        }),
        memory: unified.memory.or_else(memory),
        pids: unified.pids.or_else(pids),
        exceeded: ExceededCounts {
            oom_kills: met.oom_kills.or_else(|| oom_kills(cgroups)),
            memory: met.memory.or_else(|| files.number("memory", "memory.failcnt")),
            pids: met.pids.or_else(|| files.refused_forks()),
            cpu: met.cpu.or_else(|| files.field("cpu", "cpu.stat", "nr_throttled")),
        },
        ..unified
    }
}

/// Number of processes that the kernel killed because memory ran out (Linux 4.13).
pub(in crate::cgroup::agent) fn oom_kills(cgroups: &[V1Cgroup]) -> Option<u64> {
    Files(cgroups).field("memory", "memory.oom_control", "oom_kill")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_as_the_kernel_writes_them() {
        let scratch = tempfile::tempdir().unwrap();
        let controllers = ["cpu", "cpuacct", "memory", "pids"].map(str::to_owned).into();
        let cgroups =
            [V1Cgroup { path: scratch.path().into(), controllers, mount: "/".into(), own: "/".into() }];
        let none = SandboxStats::default();
        assert_eq!((usage(&cgroups), stats(&cgroups, none.clone())), (SandboxUsage::default(), none.clone()));
        for (file, text) in [
            ("memory.usage_in_bytes", "4096\n"),
            ("memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
            ("cpuacct.usage", "30999\n"),
            ("cpuacct.usage_user", "10000\n"),
            ("cpuacct.usage_sys", "20999\n"),
            ("cpu.stat", "nr_periods 5\nnr_throttled 2\nthrottled_time 9000\n"),
            ("cpu.cfs_quota_us", "50000\n"),
            ("cpu.cfs_period_us", "100000\n"),
            ("pids.current", "3\n"),
            ("pids.max", "max\n"),
        ] {
            fs::write(scratch.path().join(file), text).unwrap();
        }
        let counted = stats(&cgroups, none.clone());
        let unlimited = |current| Some(ResourceUsage { current, peak: None, max: None });
        assert_eq!((counted.memory, counted.pids), (unlimited(4096), unlimited(3)));
        assert_eq!((counted.exceeded.oom_kills, counted.exceeded.cpu), (Some(2), Some(2)));
        let cpu = CpuTime {
            usage_usec: 30,
            user_usec: 10,
            system_usec: 20,
            throttled_usec: Some(9),
            max_usec: Some(500_000),
        };
        assert_eq!(counted.cpu, Some(cpu));
        // Version 2 counts the time of a cgroup without a controller.
        let time = CpuTime { usage_usec: 7, throttled_usec: None, max_usec: None, ..cpu };
        let both = stats(&cgroups, SandboxStats { cpu: Some(time), ..none });
        assert_eq!(both.cpu, Some(CpuTime { usage_usec: 7, ..cpu }));
        assert_eq!((usage(&cgroups).cpu_usec, usage(&cgroups).memory_max), (Some(30), None));
        fs::write(scratch.path().join("cpu.cfs_quota_us"), "-1\n").unwrap();
        assert_eq!(Files(&cgroups).cpu_limit(), None);
    }
}
