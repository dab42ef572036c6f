//! `linux.resources.cpu`.

use super::{CgroupSettings, ExpectedValue, convert, invalid_value_error, v1_only_error, version};
use crate::cgroup::control_files::ControlFiles;
use crate::host::cgroups::CgroupVersion;
use oci_spec::runtime::LinuxCpu;
use saggar_sys::error::Result;

const CPU: &str = "cpu";
const CPUSET: &str = "cpuset";

/// Default period in microseconds, as in the kernel.
const DEFAULT_PERIOD: u64 = 100_000;

pub(super) fn lower(cpu: &LinuxCpu, tree: &dyn ControlFiles, settings: &mut CgroupSettings) -> Result<()> {
    if cpu.idle().is_some_and(|idle| !(0..=1).contains(&idle)) {
        return Err(invalid_value_error("cpu.idle", "is neither 0 nor 1"));
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
            CgroupVersion::V2 if has_realtime => {
                let instead = ", or give the program a policy by process.scheduler";
                return Err(v1_only_error("cpu.realtimeRuntime", instead));
            }
            CgroupVersion::V2 => v2(cpu, tree, settings),
            CgroupVersion::V1 => v1(cpu, tree, settings),
        }
    }
    for (field, file, value) in
        [("cpu.cpus", "cpuset.cpus", cpu.cpus()), ("cpu.mems", "cpuset.mems", cpu.mems())]
    {
        let Some(value) = value.as_deref().filter(|value| !value.is_empty()) else { continue };
        if parse_number_list(value).is_none() {
            return Err(invalid_value_error(field, format!("{value:?} is no list such as 0-3,7")));
        }
        version(tree, CPUSET, field)?;
        settings.push(field, (CPUSET, file), value, ExpectedValue::NumberSet);
    }
    Ok(())
}

fn v2(cpu: &LinuxCpu, tree: &dyn ControlFiles, settings: &mut CgroupSettings) {
    if let Some(idle) = cpu.idle() {
        settings.push("cpu.idle", (CPU, "cpu.idle"), idle, ExpectedValue::Words);
    }
    if let Some(shares) = cpu.shares().filter(|shares| *shares != 0) {
        if cpu.idle() == Some(1) {
            settings.warn("cpu.shares", "mean nothing beside cpu.idle, and are not set");
        } else {
            let weight = convert::cpu_weight(shares);
            settings.push("cpu.shares", (CPU, "cpu.weight"), weight, ExpectedValue::Words);
        }
    }
    let (quota, period) =
        (cpu.quota().filter(|quota| *quota != 0), cpu.period().filter(|period| *period != 0));
    let burst = |settings: &mut CgroupSettings| {
        if let Some(burst) = cpu.burst() {
            settings.push("cpu.burst", (CPU, "cpu.max.burst"), burst, ExpectedValue::Words);
        }
    };
    if quota.is_some() || period.is_some() {
        // A value that is not given stays unchanged.
        let is_complete = quota.is_some() && period.is_some();
        let now = if is_complete { String::new() } else { tree.read(CPU, "cpu.max").unwrap_or_default() };
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
            .unwrap_or_else(|| DEFAULT_PERIOD.to_string());
        // A burst may not exceed the quota, so the order of the two writes depends on the current values.
        if cpu.burst().is_some() {
            burst(settings);
            settings.mark_tentative();
        }
        let field = if quota.is_some() { "cpu.quota" } else { "cpu.period" };
        settings.push(field, (CPU, "cpu.max"), format!("{quota_text} {period_text}"), ExpectedValue::Words);
    }
    burst(settings);
}

fn v1(cpu: &LinuxCpu, tree: &dyn ControlFiles, settings: &mut CgroupSettings) {
    let mut put = |field: &str, file: &str, value: Option<String>, tentative: bool| {
        if let Some(value) = value {
            settings.push(field, (CPU, file), value, ExpectedValue::Words);
            if tentative {
                settings.mark_tentative();
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
    // Quota, period and burst limit one another, and the parent's share limits them. The order of the writes depends on
    // the current values, so the first round may fail.
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

/// The numbers of a list such as `0-3,7` (cpuset(7), List format), in ascending order; `None` for an invalid list.
pub(in crate::cgroup) fn parse_number_list(list: &str) -> Option<Vec<u16>> {
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
