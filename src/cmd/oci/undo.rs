//! Removing a container: its processes, its cgroups, its directory.

use super::bridge;
use super::container::{self, Status};
use crate::cgroup::{Group, Place};
use crate::error::{Code, Error, Result};
use crate::launch::container::hooks;
use crate::spec::container::Hook;
use crate::state::container::{Directory, Record};
use std::time::Duration;

/// How long a process is given to end after SIGKILL.
const PATIENCE: Duration = Duration::from_secs(10);

/// Kills every process of the container and removes its cgroups; its directory stays.
///
/// # Errors
/// [`Code::System`] when a process outlives SIGKILL, or a cgroup cannot be removed.
pub(super) fn processes(record: &Record) -> Result<()> {
    let survives = |pid: i32| {
        Error::new(Code::System, format!("container {:?}: process {pid} outlives SIGKILL", record.id))
            .hint("it hangs in the kernel; see /proc/PID/stack")
    };
    let alive = record.process.as_ref().filter(|process| process.is_alive());
    // The first process before the rest: with it goes a pid namespace, and nobody in it forks on meanwhile.
    if let Some(process) = alive {
        let pidfd = process.open().ok();
        if let Some(pidfd) = &pidfd {
            use std::os::fd::AsFd;
            let _ = crate::sys::pidfd::signal(pidfd.as_fd(), libc::SIGKILL);
        }
        if let Some(place) = &record.cgroup {
            let group = Group::open(place)?;
            // Who else is in a cgroup that was there before stays where it is.
            if is_ours(group.place()) {
                group.let_all_die();
            } else {
                group.let_killed_die();
            }
        }
        if !process.kill(PATIENCE) {
            return Err(survives(process.pid));
        }
    }
    // Before the rest of the container: a supervisor could put a command into it.
    if let Some(beside) = &record.bridge {
        bridge::end(beside)?;
    }
    if let Some(place) = record.cgroup.as_ref().filter(|place| !Group::remove_empty(place)) {
        let group = Group::open(place)?;
        // Others may have processes in a cgroup that was there before.
        if is_ours(group.place()) {
            group.kill_all(libc::SIGKILL)?;
        }
        group.remove()?;
    }
    crate::resctrl::remove(&record.resctrl)
}

/// Whether create made the container's cgroups, so that every process in them is the container's.
pub(super) fn is_ours(place: &Place) -> bool {
    place.directories.iter().all(|one| one.made.contains(&one.path))
}

/// The poststop hooks, all of them: one that fails is a warning (runtime.md, Lifecycle, 13).
pub(super) fn poststop(record: &Record, poststop: &[Hook]) {
    let state = container::state(record, Status::Stopped).to_string();
    for hook in poststop {
        let place = hooks::Place::runtime(&record.bundle);
        if let Err(error) = hooks::run("poststop", std::slice::from_ref(hook), &state, place) {
            log::warn!("{error}");
        }
    }
}

/// Destroys a container as `delete` does: processes, cgroups, directory, then its poststop hooks.
///
/// # Errors
/// As [`processes`]; then the directory stays, so that `delete --force` can be tried again.
pub(super) fn destroy(directory: &Directory, record: &Record, hooks: &[Hook]) -> Result<()> {
    processes(record)?;
    directory.remove()?;
    poststop(record, hooks);
    Ok(())
}
