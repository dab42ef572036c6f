//! The limits of a sandbox: each with its value, who set it, and whether it holds.

use crate::cmd::prepare::Prepared;
use crate::plan::Degraded;
use crate::spec::{Limit, Rlimit};
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
    /// Whether somebody named it: then it is required.
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
    let cgroup = |name, value: &dyn Display, limit| of_cgroup(name, value, limit, missing);
    let mut rows = Vec::new();
    rows.extend(cgroup("memory", &limits.memory.value, spec.memory.as_ref()));
    rows.extend(cgroup("cpu", &limits.cpus.value, spec.cpu_milli.as_ref()));
    rows.extend(cgroup("pids", &limits.pids.value, spec.pids.as_ref()));
    rows.extend(cgroup("disk", &limits.disk.value, spec.disk.as_ref()));
    rows.extend(limits.timeout.as_ref().map(|timeout| Row {
        name: "timeout",
        value: timeout.value.to_string(),
        layer: timeout.layer.to_string(),
        named: timeout.is_named(),
        holds: true,
        why: "saggar kills everything then".to_owned(),
    }));
    rows.extend(prepared.spec.rlimits.iter().map(|limit| rlimit(limit, hard_now(limit.resource))));
    rows
}

/// A limit that needs more than setrlimit(2). One that somebody named is required (DECISIONS 1).
fn of_cgroup(
    name: &'static str,
    value: &dyn Display,
    limit: Option<&Limit<u64>>,
    missing: &[Degraded],
) -> Option<Row> {
    let limit = limit?;
    let lack = missing.iter().find(|lack| lack.what == name);
    let why = match lack {
        None => "the cgroup of the sandbox".to_owned(),
        Some(lack) if limit.named => format!("{}; it was named, so the start is refused", lack.why),
        Some(lack) => lack.why.clone(),
    };
    Some(Row {
        name,
        value: value.to_string(),
        layer: limit.origin.to_string(),
        named: limit.named,
        holds: lack.is_none(),
        why,
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
        named: limit.origin != crate::spec::Origin::BUILT_IN,
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
    use crate::spec::Origin;

    #[test]
    fn a_limit_of_the_caller_is_never_raised() {
        let limit = Rlimit { resource: 7, name: "nofile", soft: 1024, hard: 65536, origin: Origin::BUILT_IN };
        assert_eq!(rlimit(&limit, u64::MAX).value, "1024:65536");
        let lowered = rlimit(&limit, 512);
        assert_eq!((lowered.value.as_str(), lowered.why.as_str()), ("512", "the caller's own hard limit"));
    }
}
