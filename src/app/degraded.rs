//! The message at a start whose limits no cgroup enforces: one line.

use crate::cgroup::{self, CgroupPlace};
use crate::host::delegation::MissingController;
use crate::host::kernel_version;
use crate::plan::agent::DegradedProtection;
use crate::plan::agent::process_limits::ProcessLimits;
use crate::spec::policy::ByteSize;
use crate::spec::{LimitsSpec, SandboxIdentity};

/// The limits of processes in place of those that are `missing` in a cgroup.
pub(crate) fn process_limits(
    missing: &[DegradedProtection],
    limits: &LimitsSpec,
    identity: &SandboxIdentity,
) -> ProcessLimits {
    // Before Linux 5.14, RLIMIT_NPROC counts what its user runs in the whole system; to root it never applies (getrlimit(2)).
    let counts_processes = kernel_version::is_at_least(5, 14) && !identity.has_root_id();
    ProcessLimits::in_place_of(missing, limits, counts_processes)
}

/// The message, if a limit is missing: what is missing and why, what there is instead, and the remedy.
pub(crate) fn message(
    missing: &[DegradedProtection],
    instead: &ProcessLimits,
    place: &CgroupPlace,
    limits: &LimitsSpec,
) -> Option<String> {
    // Where version 1 enforces them all, the cgroup of version 2 alone is missing.
    let lacks: Vec<&DegradedProtection> = missing.iter().filter(|one| one.name != "cgroup").collect();
    let first = lacks.first()?;
    let (reason, remedy) = match cgroup::diagnose(place, limits, &first.name) {
        Some(MissingController { reason, remedy }) => (reason, Some(remedy)),
        None => (first.reason.clone(), None),
    };
    let names: Vec<&str> = lacks.iter().map(|one| one.name.as_str()).collect();
    Some(describe(&names, instead, &reason, remedy))
}

fn describe(names: &[&str], instead: &ProcessLimits, reason: &str, remedy: Option<String>) -> String {
    let ProcessLimits { data, processes, cpus } = instead;
    let parts = [
        data.map(|bytes| format!("{} of data for each process", ByteSize::from_bytes(bytes))),
        processes.map(|count| format!("{count} processes by RLIMIT_NPROC")),
        cpus.map(|count| format!("{count} CPU{} by affinity", if count == 1 { "" } else { "s" })),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let instead = (!parts.is_empty()).then(|| format!("instead: {}", parts.join(", ")));
    let what = format!("no cgroup enforces {} here: {reason}", names.join(", "));
    let silence = "--quiet-degraded or protections.quiet suppresses this message".to_owned();
    let all: Vec<String> = [Some(what), instead, remedy, Some(silence)].into_iter().flatten().collect();
    all.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_no_cgroup_enforces_are_reported_in_one_line() {
        let all = ProcessLimits { data: Some(2 << 30), processes: Some(512), cpus: Some(1) };
        insta::assert_snapshot!(describe(&["memory", "cpu", "pids"], &all, "the reason", Some("the remedy".into())), @"no cgroup enforces memory, cpu, pids here: the reason; instead: 2G of data for each process, 512 processes by RLIMIT_NPROC, 1 CPU by affinity; the remedy; --quiet-degraded or protections.quiet suppresses this message");
        insta::assert_snapshot!(describe(&["swap"], &ProcessLimits::default(), "the reason", None), @"no cgroup enforces swap here: the reason; --quiet-degraded or protections.quiet suppresses this message");
    }
}
