//! `linux.resources.cpu`.

use super::{Expect, Settings, convert, invalid, only_v1, version};
use crate::cgroup::tree::Tree;
use crate::error::Result;
use crate::host::cgroups::Version;
use oci_spec::runtime::LinuxCpu;

const CPU: &str = "cpu";
const CPUSET: &str = "cpuset";

/// Microseconds: the kernel's own default.
const PERIOD: u64 = 100_000;

pub(super) fn lower(cpu: &LinuxCpu, tree: &dyn Tree, settings: &mut Settings) -> Result<()> {
    if cpu.idle().is_some_and(|idle| !(0..=1).contains(&idle)) {
        return Err(invalid("cpu.idle", "is neither 0 nor 1"));
    }
    let realtime =
        [cpu.realtime_runtime().map(|time| time != 0), cpu.realtime_period().map(|time| time != 0)];
    let has_realtime = realtime.contains(&Some(true));
    let has_time = [cpu.shares(), cpu.period()].iter().any(|value| value.is_some_and(|value| value != 0))
        || cpu.quota().is_some_and(|quota| quota != 0)
        || cpu.burst().is_some()
        || cpu.idle().is_some();
    if has_time || has_realtime {
        match version(tree, CPU, "cpu")? {
            Version::V2 if has_realtime => {
                let instead = ", or give the program a policy by process.scheduler";
                return Err(only_v1("cpu.realtimeRuntime", instead));
            }
            Version::V2 => v2(cpu, tree, settings),
            Version::V1 => v1(cpu, tree, settings),
        }
    }
    for (field, file, value) in
        [("cpu.cpus", "cpuset.cpus", cpu.cpus()), ("cpu.mems", "cpuset.mems", cpu.mems())]
    {
        let Some(value) = value.as_deref().filter(|value| !value.is_empty()) else { continue };
        if numbers(value).is_none() {
            return Err(invalid(field, format!("{value:?} is no list such as 0-3,7")));
        }
        version(tree, CPUSET, field)?;
        settings.push(field, (CPUSET, file), value, Expect::Set);
    }
    Ok(())
}

fn v2(cpu: &LinuxCpu, tree: &dyn Tree, settings: &mut Settings) {
    if let Some(idle) = cpu.idle() {
        settings.push("cpu.idle", (CPU, "cpu.idle"), idle, Expect::Words);
    }
    if let Some(shares) = cpu.shares().filter(|shares| *shares != 0) {
        if cpu.idle() == Some(1) {
            settings.warn("cpu.shares", "mean nothing beside cpu.idle, and are not set");
        } else {
            let weight = convert::cpu_weight(shares);
            settings.push("cpu.shares", (CPU, "cpu.weight"), weight, Expect::Words);
        }
    }
    let (quota, period) =
        (cpu.quota().filter(|quota| *quota != 0), cpu.period().filter(|period| *period != 0));
    let burst = |settings: &mut Settings| {
        if let Some(burst) = cpu.burst() {
            settings.push("cpu.burst", (CPU, "cpu.max.burst"), burst, Expect::Words);
        }
    };
    if quota.is_some() || period.is_some() {
        // What is not given stays as it is.
        let now = tree.read(CPU, "cpu.max").unwrap_or_default();
        let mut now = now.split_whitespace();
        let (quota_now, period_now) = (now.next().unwrap_or("max"), now.next());
        let quota_text = match quota {
            Some(quota) if quota < 0 => "max".to_owned(),
            Some(quota) => quota.to_string(),
            None => quota_now.to_owned(),
        };
        let period_text = period
            .map(|period| period.to_string())
            .or_else(|| period_now.map(str::to_owned))
            .unwrap_or_else(|| PERIOD.to_string());
        // A burst is at most the quota: which of the two must go first depends on what there is now.
        if cpu.burst().is_some() {
            burst(settings);
            settings.tentative();
        }
        let field = if quota.is_some() { "cpu.quota" } else { "cpu.period" };
        settings.push(field, (CPU, "cpu.max"), format!("{quota_text} {period_text}"), Expect::Words);
    }
    burst(settings);
}

fn v1(cpu: &LinuxCpu, tree: &dyn Tree, settings: &mut Settings) {
    let mut put = |field: &str, file: &str, value: Option<String>, tentative: bool| {
        if let Some(value) = value {
            settings.push(field, (CPU, file), value, Expect::Words);
            if tentative {
                settings.tentative();
            }
        }
    };
    let not_zero = |value: Option<u64>| value.filter(|value| *value != 0).map(|value| value.to_string());
    put("cpu.realtimePeriod", "cpu.rt_period_us", not_zero(cpu.realtime_period()), false);
    let runtime = cpu.realtime_runtime().filter(|time| *time != 0).map(|time| time.to_string());
    put("cpu.realtimeRuntime", "cpu.rt_runtime_us", runtime, false);
    put("cpu.idle", "cpu.idle", cpu.idle().map(|idle| idle.to_string()), false);
    let is_idle = cpu.idle() == Some(1) && tree.has(CPU, "cpu.idle");
    if !is_idle {
        put("cpu.shares", "cpu.shares", not_zero(cpu.shares()), false);
    }
    // Quota, period and burst bound one another, and the parent's share bounds them: which goes first depends on
    // what there is now, so the first round may fail.
    let quota = cpu.quota().filter(|quota| *quota != 0).map(|quota| quota.max(-1).to_string());
    let burst = cpu.burst().map(|burst| burst.to_string());
    let files = [
        ("cpu.period", "cpu.cfs_period_us", not_zero(cpu.period())),
        ("cpu.burst", "cpu.cfs_burst_us", burst),
        ("cpu.quota", "cpu.cfs_quota_us", quota),
    ];
    if files.iter().filter(|(_, _, value)| value.is_some()).count() > 1 {
        for (field, file, value) in &files {
            put(field, file, value.clone(), true);
        }
    }
    for (field, file, value) in files {
        put(field, file, value, false);
    }
    if is_idle && cpu.shares().is_some_and(|shares| shares != 0) {
        settings.warn("cpu.shares", "mean nothing beside cpu.idle, and are not set");
    }
}

/// The numbers of a list such as `0-3,7` (cpuset(7), List format), in ascending order; `None` for anything else.
pub(in crate::cgroup) fn numbers(list: &str) -> Option<Vec<u16>> {
    let mut all = Vec::new();
    for part in list.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last {
            return None;
        }
        all.extend(first..=last);
    }
    all.sort_unstable();
    all.dedup();
    Some(all)
}
