//! The limits of a sandbox: each with its value, who set it, and whether it holds.

use crate::cmd::prepare::Prepared;
use crate::spec::{Limit, Rlimit};
use nix::sys::resource::{Resource, getrlimit};
use serde::Serialize;
use std::fmt::Display;

/// One limit.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Row {
    /// As in a policy file, or as setrlimit(2) calls it.
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

/// Why the limits that need a cgroup do not hold. A plan has no cgroup; when it gets one, it says this itself.
const NO_CGROUP: &str = "it needs a cgroup, and this sandbox gets none of its own";
/// DECISIONS 29.
const NO_QUOTA: &str = "a tree of the host has no quota: only the size of each file is limited (fsize)";

pub(super) fn rows(prepared: &Prepared) -> Vec<Row> {
    let limits = &prepared.policy.effective.limits;
    let spec = &prepared.spec.limits;
    let mut rows = Vec::new();
    rows.extend(lacking("memory", &limits.memory.value, spec.memory.as_ref(), NO_CGROUP));
    rows.extend(lacking("cpus", &limits.cpus.value, spec.cpu_milli.as_ref(), NO_CGROUP));
    rows.extend(lacking("pids", &limits.pids.value, spec.pids.as_ref(), NO_CGROUP));
    rows.extend(lacking("disk", &limits.disk.value, spec.disk.as_ref(), NO_QUOTA));
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

fn lacking(name: &'static str, value: &impl Display, limit: Option<&Limit<u64>>, why: &str) -> Option<Row> {
    let limit = limit?;
    Some(Row {
        name,
        value: value.to_string(),
        layer: limit.origin.to_string(),
        named: limit.named,
        holds: false,
        why: why.to_owned(),
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
