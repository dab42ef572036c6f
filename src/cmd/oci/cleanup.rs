//! Removes a container: its processes, its cgroups, its directory.

use super::bridge;
use super::container::{self, ContainerStatus};
use crate::cgroup::{CgroupHandle, CgroupLocation};
use crate::error::{Code, Error, Result};
use crate::launch::container::hooks;
use crate::spec::container::Hook;
use crate::state::container::{ContainerDirectory, ContainerRecord};
use std::time::Duration;

/// Time limit for a process to exit after SIGKILL.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Kills every process of the container and removes its cgroups. The directory stays.
///
/// # Errors
/// [`Code::System`] if a process survives SIGKILL or a cgroup cannot be removed.
pub(super) fn kill_and_remove(record: &ContainerRecord) -> Result<()> {
    let survives = |pid: i32| {
        Error::new(Code::System, format!("container {:?}: process {pid} outlives SIGKILL", record.id))
            .hint("it hangs in the kernel; see /proc/PID/stack")
    };
    let alive = record.process.as_ref().filter(|process| process.is_alive());
    // The first process is killed before the rest: its pid namespace ends with it, so that nothing in it forks.
    if let Some(process) = alive {
        let pidfd = process.open_pidfd().ok();
        if let Some(pidfd) = &pidfd {
            use std::os::fd::AsFd;
            let _ = crate::sys::pidfd::signal(pidfd.as_fd(), libc::SIGKILL);
        }
        if let Some(location) = &record.cgroup {
            let group = CgroupHandle::open(location)?;
            // Other processes in a cgroup that existed before stay frozen.
            if owns_cgroups(group.location()) {
                group.thaw_killed_everywhere();
            } else {
                group.thaw_killed();
            }
        }
        if !process.kill_and_wait(KILL_TIMEOUT) {
            return Err(survives(process.pid));
        }
    }
    // Before the rest of the container, because the supervisor could start a command in it.
    if let Some(sidecar) = &record.bridge {
        bridge::end(sidecar)?;
    }
    if let Some(location) = record.cgroup.as_ref().filter(|place| !CgroupHandle::remove_empty(place)) {
        let group = CgroupHandle::open(location)?;
        // A cgroup that existed before may contain other processes.
        if owns_cgroups(group.location()) {
            group.kill_all(libc::SIGKILL)?;
        }
        group.remove()?;
    }
    crate::resctrl::remove_groups(&record.resctrl)
}

/// Returns whether create made the container's cgroups, so that every process in them is the container's.
pub(super) fn owns_cgroups(location: &CgroupLocation) -> bool {
    location.directories.iter().all(|one| one.created.contains(&one.path))
}

/// Runs all poststop hooks. A failure is only a warning (runtime.md, Lifecycle, 13).
pub(super) fn run_poststop(record: &ContainerRecord, poststop: &[Hook]) {
    let state = container::state(record, ContainerStatus::Stopped).to_string();
    for hook in poststop {
        let hook_point = hooks::HookPoint::runtime(&record.bundle);
        if let Err(error) = hooks::run("poststop", std::slice::from_ref(hook), &state, hook_point) {
            log::warn!("{error}");
        }
    }
}

/// Destroys a container like `delete`: processes, cgroups, directory, then the poststop hooks.
///
/// # Errors
/// As [`kill_and_remove`]. The directory then stays, so that `delete --force` can be retried.
pub(super) fn destroy(
    directory: &ContainerDirectory,
    record: &ContainerRecord,
    hooks: &[Hook],
) -> Result<()> {
    kill_and_remove(record)?;
    directory.remove()?;
    run_poststop(record, hooks);
    Ok(())
}
