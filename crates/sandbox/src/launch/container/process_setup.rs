//! Applies settings to a waiting process from outside, with the runtime's rights: its cgroup and CPUs, its hard limits,
//! its OOM score.

use super::ContainerCgroup;
use crate::spec::container::{CpuAffinity, ProcessSpec};
use crate::spec::oci;
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::{Errno, process};

/// As many CPUs as any kernel supports (CONFIG_NR_CPUS).
const ALL_CPUS: [u64; 128] = [u64::MAX; 128];

/// Moves a process of a container into its cgroup, on the CPUs of `process.execCPUAffinity.initial` if that is given
/// and applies to it. Otherwise it may use all CPUs of its cgroup, and not only those that saggar inherited.
pub(super) fn apply(
    pid: i32,
    settings: &ProcessSpec,
    cpus: Option<&CpuAffinity>,
    cgroup: &dyn ContainerCgroup,
) -> Result<()> {
    let initial = cpus.and_then(|cpus| cpus.initial.as_ref());
    if let Some(initial) = initial {
        process::set_affinity(pid, initial)
            .map_err(|e| Error::system("set process.execCPUAffinity.initial", e.desc()))?;
    }
    cgroup.enter(pid)?;
    if initial.is_none() {
        process::set_affinity(pid, &ALL_CPUS)
            .map_err(|e| Error::system("let the process use every CPU of its cgroup", e.desc()))?;
    }
    for &(resource, _, hard) in &settings.rlimits {
        raise_hard_limit(pid, resource, hard)?;
    }
    let Some(score) = settings.oom_score_adj else { return Ok(()) };
    match std::fs::write(format!("/proc/{pid}/oom_score_adj"), score.to_string()) {
        // Lowering it needs CAP_SYS_RESOURCE.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            log::warn!("process.oomScoreAdj {score} is left out: {error}");
            Ok(())
        }
        other => other.map_err(|e| Error::system("write oom_score_adj", e)),
    }
}

/// Raises a hard limit that is below `hard`: in a user namespace the process itself may not. The process sets the final
/// values itself, after the steps of its start that could exceed them.
///
/// Root without CAP_SYS_RESOURCE, inside another container, keeps the current limit and logs a warning: as root, Podman
/// requests limits that it takes for granted. An ordinary user gets an error, since no caller requests such limits by
/// default.
fn raise_hard_limit(pid: i32, resource: i32, hard: u64) -> Result<()> {
    let fails = |what: &str, errno: Errno| {
        Error::system(format_args!("{what} the limits of the process"), errno.desc())
    };
    let now = process::limit(pid, resource).map_err(|errno| fails("read", errno))?;
    if now.rlim_max >= hard {
        return Ok(());
    }
    let (name, ours) = (oci::rlimit_name(resource), now.rlim_max);
    match process::set_limit(pid, resource, now.rlim_cur, hard) {
        Err(Errno::EPERM) if nix::unistd::geteuid().is_root() => {
            log::warn!(
                "process.rlimits: {name} is {ours} and not {hard}: saggar has no CAP_SYS_RESOURCE to raise it"
            );
            Ok(())
        }
        Err(Errno::EPERM) => {
            let message = format!("process.rlimits: {name}: the hard limit {hard} is above our own {ours}");
            Err(Error::new(Code::Unsupported, message).hint(
                "only CAP_SYS_RESOURCE raises it: ask for less, or have the limit of saggar's caller raised",
            ))
        }
        other => other.map_err(|errno| fails("set", errno)),
    }
}
