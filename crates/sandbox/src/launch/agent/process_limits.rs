//! Applies the limits of processes to pid 1, while it waits for its id maps: every program of the sandbox inherits them.

use crate::plan::agent::process_limits::{CpuShare, ProcessLimits};
use nix::unistd::{SysconfVar, sysconf};
use saggar_sys::error::{Error, Result};
use saggar_sys::{SysResult, process};

/// The CPUs that the caller may use. Before Linux 6.2, who enters a cgroup with a cpuset may use all CPUs of that.
pub(super) struct CallerAffinity(Option<Vec<u64>>);

impl CallerAffinity {
    /// That of this process, before it or a child of it enters a cgroup.
    pub(super) fn read() -> Self {
        CallerAffinity(process::affinity(0).ok())
    }

    /// Gives it to this process and to pid 1 again, if they have another.
    pub(super) fn restore(&self, pid: i32) {
        let Some(mask) = &self.0 else { return };
        for pid in [0, pid] {
            if process::affinity(pid).is_ok_and(|now| now != *mask) {
                // A cpuset that has none of these CPUs counts for more, as with later kernels.
                let _ = process::set_affinity(pid, mask);
            }
        }
    }
}

/// Limits pid 1, which this process has just cloned.
///
/// # Errors
/// [`saggar_sys::error::Code::System`], naming the limit.
pub(super) fn apply(pid: i32, limits: &ProcessLimits) -> Result<()> {
    let ProcessLimits { data, processes, cpus } = limits;
    let rlimits = [("memory", libc::RLIMIT_DATA, data), ("processes", libc::RLIMIT_NPROC, processes)];
    for (what, resource, most) in rlimits {
        let Some(most) = most else { continue };
        lower(pid, resource.cast_signed(), *most)
            .map_err(|e| Error::system(format_args!("limit the {what} of the sandbox"), e.desc()))?;
    }
    let Some(count) = cpus else { return Ok(()) };
    give_cpus(pid, *count).map_err(|e| Error::system("limit the CPUs of the sandbox", e.desc()))
}

/// The caller may have less already.
fn lower(pid: i32, resource: i32, most: u64) -> SysResult<()> {
    let now = process::limit(pid, resource)?;
    process::set_limit(pid, resource, now.rlim_cur.min(most), now.rlim_max.min(most))
}

fn give_cpus(pid: i32, count: usize) -> SysResult<()> {
    let online = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    let online = online.and_then(|online| usize::try_from(online).ok()).unwrap_or(1);
    let share = CpuShare::choose(&process::affinity(pid)?, count, online, pid.unsigned_abs() as usize);
    if let Some(mask) = &share.mask {
        process::set_affinity(pid, mask)?;
    }
    if share.niceness > 0 {
        process::raise_niceness(pid, share.niceness)?;
    }
    Ok(())
}
