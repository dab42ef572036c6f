//! The limits of a sandbox: each with its value, who set it, and whether it holds.

use crate::cmd::prepare::Prepared;
use crate::plan::Degraded;
use crate::plan::disk::Disk;
use crate::spec::agent::origin;
use crate::spec::policy::{AtTimeout, Setting, Size};
use crate::spec::{Limit, Limits, Origin, Rlimit};
use nix::sys::resource::{Resource, getrlimit};
use serde::Serialize;
use std::fmt::Display;

/// One limit.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Row {
    /// As the protection is called, or as setrlimit(2) calls it.
    pub(super) name: &'static str,
    /// The value as it stands in a policy.
    pub(super) value: String,
    pub(super) layer: String,
    /// Whether somebody named it.
    pub(super) named: bool,
    /// Whether it holds in this sandbox.
    pub(super) holds: bool,
    /// What holds it, or why it does not hold.
    pub(super) why: String,
}

/// Every limit; `missing` is what a start would not have.
pub(super) fn rows(prepared: &Prepared, missing: &[Degraded]) -> Vec<Row> {
    let limits = &prepared.policy.effective.limits;
    let spec = &prepared.spec.limits;
    let mut rows = Vec::new();
    let mut cgroup = |name, value: &dyn Display, limit: Option<(bool, &Origin)>| {
        rows.extend(of_cgroup(name, value, limit, missing));
    };
    cgroup("memory", &limits.memory.value, of(&spec.memory));
    cgroup("memory_high", &shown(&limits.memory_high), of(&spec.memory_high));
    cgroup("swap", &shown(&limits.swap), of(&spec.swap));
    for (page, limit) in &spec.hugetlb {
        let size = limits.hugetlb.get(page).map(|size| size.value.to_string()).unwrap_or_default();
        cgroup("hugetlb", &format!("{size} of {page}"), Some((limit.named, &limit.origin)));
    }
    cgroup("cpu", &limits.cpus.value, of(&spec.cpu_milli));
    cgroup("cpu_burst", &shown(&limits.cpu_burst), of(&spec.cpu_burst));
    let idle = spec.cpu_idle.as_ref().is_some_and(|idle| idle.value);
    let weight = if idle { "nothing, beside cpu_idle".to_owned() } else { shown(&limits.cpu_weight) };
    cgroup("cpu_weight", &weight, of(&spec.cpu_weight));
    cgroup("cpu_idle", &shown(&limits.cpu_idle), of(&spec.cpu_idle));
    cgroup("pids", &limits.pids.value, of(&spec.pids));
    cgroup("cpuset_cpus", &shown(&limits.cpuset_cpus), of(&spec.cpuset_cpus));
    cgroup("cpuset_mems", &shown(&limits.cpuset_mems), of(&spec.cpuset_mems));
    for (disk, rates) in &limits.io {
        for (rate, value, layer) in rates.rows() {
            cgroup("io", &format!("{disk} {rate} {value}"), Some((true, &origin(layer))));
        }
    }
    cgroup("io_weight", &shown(&limits.io_weight), of(&spec.io_weight));
    cgroup("cpu_time", &shown(&limits.cpu_time), of(&spec.cpu_time));
    rows.extend(of_disk(&prepared.disk, spec));
    let timeout = match limits.at_timeout.value {
        AtTimeout::Pause => "saggar kills everything then; a session is paused, where it can be",
        AtTimeout::Kill => "saggar kills everything then, of a session too",
    };
    let times = [
        ("timeout", &limits.timeout, timeout),
        ("idle", &limits.idle, "without a command so long, saggar kills everything"),
    ];
    rows.extend(times.into_iter().filter_map(|(name, time, why)| {
        let time = time.as_ref()?;
        Some(Row {
            name,
            value: time.value.to_string(),
            layer: time.layer.to_string(),
            named: time.is_named(),
            holds: true,
            why: why.to_owned(),
        })
    }));
    if limits.at_timeout.is_named() {
        rows.push(Row {
            name: "at_timeout",
            value: limits.at_timeout.value.to_string(),
            layer: limits.at_timeout.layer.to_string(),
            named: true,
            holds: true,
            why: "what becomes of a session after timeout".to_owned(),
        });
    }
    if prepared.policy.effective.limits.script.is_named() {
        let script = &prepared.policy.effective.limits.script;
        rows.push(Row {
            name: "script",
            value: script.value.to_string(),
            layer: script.layer.to_string(),
            named: true,
            holds: true,
            why: "of each script of an agent's folder, saggar kills it and gives up the start".to_owned(),
        });
    }
    rows.extend(prepared.spec.rlimits.iter().map(|limit| rlimit(limit, hard_now(limit.resource))));
    rows
}

/// Whether a limit must hold, and who set it.
fn of<T>(limit: &Option<Limit<T>>) -> Option<(bool, &Origin)> {
    limit.as_ref().map(|limit| (limit.named, &limit.origin))
}

/// A value as it stands in a policy.
fn shown<T: Display>(setting: &Option<Setting<T>>) -> String {
    setting.as_ref().map(|setting| setting.value.to_string()).unwrap_or_default()
}

/// A limit that needs more than setrlimit(2).
fn of_cgroup(
    name: &'static str,
    value: &dyn Display,
    limit: Option<(bool, &Origin)>,
    missing: &[Degraded],
) -> Option<Row> {
    let (required, origin) = limit?;
    let lack = missing.iter().find(|lack| lack.what == name);
    let why = match lack {
        None => "the cgroup of the sandbox".to_owned(),
        Some(lack) if required => format!("{}; it is required, so the start is refused", lack.why),
        Some(lack) => lack.why.clone(),
    };
    Some(Row {
        name,
        value: value.to_string(),
        layer: origin.to_string(),
        named: *origin != Origin::BUILT_IN,
        holds: lack.is_none(),
        why,
    })
}

/// What bounds what is written on disk.
fn of_disk(disk: &Disk, limits: &Limits) -> impl Iterator<Item = Row> {
    let rows = [
        ("disk", limits.disk.as_ref(), Size::from_bytes(disk.bytes).to_string()),
        ("inodes", limits.inodes.as_ref(), disk.inodes.to_string()),
    ];
    rows.into_iter().filter_map(|(name, limit, value)| {
        let limit = limit?;
        let holds = disk.lack.is_none();
        let why = match disk.means.clone() {
            why if !holds && disk.is_required() => format!("{why}; it must hold, so the start is refused"),
            why => why,
        };
        Some(Row { name, value, layer: limit.origin.to_string(), named: limit.named, holds, why })
    })
}

/// A limit of setrlimit(2): the caller's own hard limit bounds it.
fn rlimit(limit: &Rlimit, hard_now: u64) -> Row {
    let hard = limit.hard.min(hard_now);
    let soft = limit.soft.min(hard);
    let why = if hard < limit.hard { "the caller's own hard limit" } else { "setrlimit" };
    Row {
        name: limit.name,
        value: if soft == hard { soft.to_string() } else { format!("{soft}:{hard}") },
        layer: limit.origin.to_string(),
        named: limit.origin != Origin::BUILT_IN,
        holds: true,
        why: why.to_owned(),
    }
}

/// The caller's own hard limit; none for a resource that the kernel does not tell.
fn hard_now(number: i32) -> u64 {
    const KNOWN: [Resource; 6] = [
        Resource::RLIMIT_CORE,
        Resource::RLIMIT_MEMLOCK,
        Resource::RLIMIT_RTPRIO,
        Resource::RLIMIT_NICE,
        Resource::RLIMIT_FSIZE,
        Resource::RLIMIT_NOFILE,
    ];
    let resource = KNOWN.into_iter().find(|resource| (*resource as u32).cast_signed() == number);
    resource.and_then(|resource| getrlimit(resource).ok()).map_or(u64::MAX, |(_, hard)| hard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_the_caller_is_never_raised() {
        let limit = Rlimit { resource: 7, name: "nofile", soft: 1024, hard: 65536, origin: Origin::BUILT_IN };
        assert_eq!(rlimit(&limit, u64::MAX).value, "1024:65536");
        let lowered = rlimit(&limit, 512);
        assert_eq!((lowered.value.as_str(), lowered.why.as_str()), ("512", "the caller's own hard limit"));
    }
}
