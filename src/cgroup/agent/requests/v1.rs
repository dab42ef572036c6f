//! The limits of memory and CPU time in cgroup v1 (Documentation/admin-guide/cgroup-v1/memory.rst,
//! Documentation/scheduler/sched-bwc.rst).

use super::{LimitRequest, multiple_writes, setting, single_write};
use crate::cgroup::control_files::ControlFiles;
use crate::cgroup::limits::{CgroupSetting, ExpectedValue, page_size};
use crate::spec::{CPU_PERIOD_US, LimitsSpec};

const MEMORY_AND_SWAP: &str = "memory.memsw.limit_in_bytes";

/// The limit of memory plus swap may never be less than that of memory alone. So it is written before, where it grows,
/// and after.
pub(super) fn memory<'a>(limits: &'a LimitsSpec, tree: &dyn ControlFiles, all: &mut Vec<LimitRequest<'a>>) {
    let bytes = |file, value| setting(file, value, ExpectedValue::Number(page_size()));
    let counts_swap = tree.has("memory", MEMORY_AND_SWAP);
    let with_swap = |swap: u64| {
        let memory = limits.memory.as_ref().map_or(u64::MAX, |limit| limit.value);
        bytes(MEMORY_AND_SWAP, memory.saturating_add(swap))
    };
    if let Some(limit) = &limits.memory {
        let memory = bytes("memory.limit_in_bytes", limit.value);
        let settings = match (&limits.swap, counts_swap) {
            (None, true) => vec![tentative(with_swap(0)), memory, with_swap(0)],
            // Without a count of swap, none is used.
            (None, false) => vec![memory, setting("memory.swappiness", 0, ExpectedValue::Words)],
            (Some(swap), true) => vec![tentative(with_swap(swap.value)), memory],
            (Some(_), false) => vec![memory],
        };
        all.push(multiple_writes("memory", limit, settings));
    }
    if let Some(swap) = &limits.swap {
        let mut request = single_write("swap", swap, with_swap(swap.value));
        if !counts_swap {
            request.settings = Err(format!("this kernel has no {MEMORY_AND_SWAP}"));
        }
        all.push(request);
    }
    if let Some(high) = &limits.memory_high {
        let mut request = multiple_writes("memory_high", high, Vec::new());
        request.settings = Err("version 1 of cgroups has no memory.high".to_owned());
        all.push(request);
    }
}

fn tentative(setting: CgroupSetting) -> CgroupSetting {
    CgroupSetting { tentative: true, ..setting }
}

pub(super) fn cpu<'a>(limits: &'a LimitsSpec, all: &mut Vec<LimitRequest<'a>>) {
    let words = |file, value: u64| setting(file, value, ExpectedValue::Words);
    if let Some(limit) = &limits.cpu_milli {
        let quota = limit.value.saturating_mul(CPU_PERIOD_US) / 1000;
        let settings = vec![words("cpu.cfs_period_us", CPU_PERIOD_US), words("cpu.cfs_quota_us", quota)];
        let mut request = multiple_writes("cpu", limit, settings);
        request.value = format!("{}.{:03}", limit.value / 1000, limit.value % 1000);
        all.push(request);
    }
    all.extend(limits.cpu_burst.iter().map(|limit| {
        let mut request = single_write("cpu_burst", limit, words("cpu.cfs_burst_us", limit.value));
        request.value.push_str("us");
        request
    }));
    all.extend(
        limits
            .cpu_idle
            .iter()
            .map(|limit| single_write("cpu_idle", limit, words("cpu.idle", u64::from(limit.value)))),
    );
    if !limits.cpu_idle.as_ref().is_some_and(|idle| idle.value) {
        // 1024 shares are the default, as a weight of 100 is; the least are 2.
        let shares = |weight: u64| (weight * 1024 / 100).max(2);
        let weight = limits.cpu_weight.iter();
        all.extend(
            weight.map(|limit| single_write("cpu_weight", limit, words("cpu.shares", shares(limit.value)))),
        );
    }
}
