//! The limits of a sandbox: value, source, and whether each is enforced.

use crate::app::prepare::PreparedSandbox;
use crate::plan::agent::DegradedProtection;
use crate::plan::agent::disk::DiskLimit;
use crate::spec::agent::layer_origin;
use crate::spec::policy::{ByteSize, Setting, TimeoutAction};
use crate::spec::{LimitSpec, LimitsSpec, Origin, RlimitSpec};
use nix::sys::resource::{Resource, getrlimit};
use serde::Serialize;
use std::fmt::Display;

/// One limit.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct LimitRow {
    /// The name of the protection or of the setrlimit(2) resource.
    pub(super) name: &'static str,
    /// The value in the syntax of a policy.
    pub(super) value: String,
    pub(super) layer: String,
    /// Whether a layer sets it explicitly.
    pub(super) named: bool,
    /// Whether it is enforced in this sandbox.
    pub(super) holds: bool,
    /// How it is enforced, or why it is not.
    pub(super) why: String,
}

/// Lists every limit; `missing` are the protections that a start would lack.
pub(super) fn rows(prepared: &PreparedSandbox, missing: &[DegradedProtection]) -> Vec<LimitRow> {
    let limits = &prepared.policy.effective.limits;
    let spec = &prepared.spec.limits;
    let mut rows = Vec::new();
    let mut cgroup = |name, value: &dyn Display, limit: Option<(bool, &Origin)>| {
        rows.extend(cgroup_row(name, value, limit, missing));
    };
    cgroup("memory", &limits.memory.value, of(&spec.memory));
    cgroup("memory_high", &shown(&limits.memory_high), of(&spec.memory_high));
    cgroup("swap", &shown(&limits.swap), of(&spec.swap));
    for (page, limit) in &spec.hugetlb {
        let size = limits.hugetlb.get(page).map(|size| size.value.to_string()).unwrap_or_default();
        cgroup("hugetlb", &format!("{size} of {page}"), Some((limit.required, &limit.origin)));
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
        for (rate, value, layer) in rates.named_rates() {
            cgroup("io", &format!("{disk} {rate} {value}"), Some((true, &layer_origin(layer))));
        }
    }
    cgroup("io_weight", &shown(&limits.io_weight), of(&spec.io_weight));
    cgroup("cpu_time", &shown(&limits.cpu_time), of(&spec.cpu_time));
    rows.extend(disk_rows(&prepared.disk, spec));
    let timeout = match limits.at_timeout.value {
        TimeoutAction::Pause => "saggar kills everything then; a session is paused, where it can be",
        TimeoutAction::Kill => "saggar kills everything then, of a session too",
    };
    let times = [
        ("timeout", &limits.timeout, timeout),
        ("idle", &limits.idle, "without a command so long, saggar kills everything"),
        (
            "agent_idle",
            &limits.agent_idle,
            "without a turn so long, saggar ends the agent until the next turn",
        ),
    ];
    rows.extend(times.into_iter().filter_map(|(name, time, why)| {
        let time = time.as_ref()?;
        Some(LimitRow {
            name,
            value: time.value.to_string(),
            layer: time.layer.to_string(),
            named: time.is_named(),
            holds: true,
            why: why.to_owned(),
        })
    }));
    if limits.at_timeout.is_named() {
        rows.push(LimitRow {
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
        rows.push(LimitRow {
            name: "script",
            value: script.value.to_string(),
            layer: script.layer.to_string(),
            named: true,
            holds: true,
            why: "of each script of an agent's folder, saggar kills it and gives up the start".to_owned(),
        });
    }
    rows.extend(
        prepared.spec.rlimits.iter().map(|limit| rlimit_row(limit, current_hard_limit(limit.resource))),
    );
    rows
}

/// Returns whether a limit is required, and its origin.
fn of<T>(limit: &Option<LimitSpec<T>>) -> Option<(bool, &Origin)> {
    limit.as_ref().map(|limit| (limit.required, &limit.origin))
}

/// Formats a value in the syntax of a policy.
fn shown<T: Display>(setting: &Option<Setting<T>>) -> String {
    setting.as_ref().map(|setting| setting.value.to_string()).unwrap_or_default()
}

/// Describes a limit that setrlimit(2) cannot enforce.
fn cgroup_row(
    name: &'static str,
    value: &dyn Display,
    limit: Option<(bool, &Origin)>,
    missing: &[DegradedProtection],
) -> Option<LimitRow> {
    let (required, origin) = limit?;
    let degraded = missing.iter().find(|lack| lack.name == name);
    let why = match degraded {
        None => "the cgroup of the sandbox".to_owned(),
        Some(lack) if required => format!("{}; it is required, so the start is refused", lack.reason),
        Some(lack) => lack.reason.clone(),
    };
    Some(LimitRow {
        name,
        value: value.to_string(),
        layer: origin.to_string(),
        named: *origin != Origin::BUILT_IN,
        holds: degraded.is_none(),
        why,
    })
}

/// Describes the limits of disk usage.
fn disk_rows(disk: &DiskLimit, limits: &LimitsSpec) -> impl Iterator<Item = LimitRow> {
    let rows = [
        ("disk", limits.disk.as_ref(), ByteSize::from_bytes(disk.bytes).to_string()),
        ("inodes", limits.inodes.as_ref(), disk.inodes.to_string()),
    ];
    rows.into_iter().filter_map(|(name, limit, value)| {
        let limit = limit?;
        let holds = disk.missing.is_none();
        let why = match disk.mechanism.clone() {
            why if !holds && disk.is_required() => format!("{why}; it must hold, so the start is refused"),
            why => why,
        };
        Some(LimitRow { name, value, layer: limit.origin.to_string(), named: limit.required, holds, why })
    })
}

/// Describes a limit of setrlimit(2), which the caller's hard limit bounds.
fn rlimit_row(limit: &RlimitSpec, hard_now: u64) -> LimitRow {
    let hard = limit.hard.min(hard_now);
    let soft = limit.soft.min(hard);
    let why = if hard < limit.hard { "the caller's own hard limit" } else { "setrlimit" };
    LimitRow {
        name: limit.name,
        value: if soft == hard { soft.to_string() } else { format!("{soft}:{hard}") },
        layer: limit.origin.to_string(),
        named: limit.origin != Origin::BUILT_IN,
        holds: true,
        why: why.to_owned(),
    }
}

/// Returns the caller's hard limit; unlimited for a resource that the kernel does not report.
fn current_hard_limit(number: i32) -> u64 {
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
        let limit =
            RlimitSpec { resource: 7, name: "nofile", soft: 1024, hard: 65536, origin: Origin::BUILT_IN };
        assert_eq!(rlimit_row(&limit, u64::MAX).value, "1024:65536");
        let lowered = rlimit_row(&limit, 512);
        assert_eq!((lowered.value.as_str(), lowered.why.as_str()), ("512", "the caller's own hard limit"));
    }
}
