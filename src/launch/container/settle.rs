//! What is set on a process from outside while it waits, with our rights: its cgroup and its CPUs, the room for its
//! limits, how soon it is killed.

use super::Cgroup;
use crate::error::{Code, Error, Result};
use crate::spec::container::{CpuAffinity, Process};
use crate::spec::oci;
use crate::sys::{Errno, process};

/// As many CPUs as any kernel counts (CONFIG_NR_CPUS).
const ALL: [u64; 128] = [u64::MAX; 128];

/// Puts a process of a container into its cgroup, on the CPUs of `process.execCPUAffinity.initial` if that is given
/// and holds for it. Where nothing is said of CPUs it may use all that its cgroup has, and not only those that
/// somebody left to us.
pub(super) fn join(
    pid: i32,
    settings: &Process,
    cpus: Option<&CpuAffinity>,
    cgroup: &dyn Cgroup,
) -> Result<()> {
    let initial = cpus.and_then(|cpus| cpus.initial.as_ref());
    if let Some(initial) = initial {
        process::set_affinity(pid, initial)
            .map_err(|e| Error::system("set process.execCPUAffinity.initial", e.desc()))?;
    }
    cgroup.enter(pid)?;
    if initial.is_none() {
        process::set_affinity(pid, &ALL)
            .map_err(|e| Error::system("let the process use every CPU of its cgroup", e.desc()))?;
    }
    for &(resource, _, hard) in &settings.rlimits {
        make_room(pid, resource, hard)?;
    }
    let Some(score) = settings.oom_score_adj else { return Ok(()) };
    match std::fs::write(format!("/proc/{pid}/oom_score_adj"), score.to_string()) {
        // Lowering it is for CAP_SYS_RESOURCE alone.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            log::warn!("process.oomScoreAdj {score} is left out: {error}");
            Ok(())
        }
        other => other.map_err(|e| Error::system("write oom_score_adj", e)),
    }
}

/// Raises a hard limit that is below `hard`: in a user namespace the process has no right to that. What it is set
/// to in the end the process does itself, when nothing of its start can run into it any more.
///
/// Root without CAP_SYS_RESOURCE, in a container of somebody else's, gives what it has and says so: Podman asks as
/// root for limits that it takes for granted. Of an ordinary user nobody expects them unasked.
fn make_room(pid: i32, resource: i32, hard: u64) -> Result<()> {
    let fails = |what: &str, errno: Errno| {
        Error::system(format_args!("{what} the limits of the process"), errno.desc())
    };
    let now = process::limit(pid, resource).map_err(|errno| fails("read", errno))?;
    if now.rlim_max >= hard {
        return Ok(());
    }
    let (name, ours) = (oci::limit_name(resource), now.rlim_max);
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
