//! Lists, moves and signals the processes of a container's cgroups.

use super::control_files::{OpenCgroup, OpenCgroups, errno};
use super::location::{CgroupDirectory, CgroupLocation};
use super::{directories, freeze};
use crate::host::cgroups::{CgroupLayout, CgroupVersion, cgroup_path_in};
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::pidfd;
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long processes may take to exit after SIGKILL.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay before killed processes are checked for the first time.
const FIRST_POLL_INTERVAL: Duration = Duration::from_micros(100);

/// Every process in these cgroups and in those below.
pub(super) fn list(dirs: &OpenCgroups) -> Result<BTreeSet<i32>> {
    let mut pids = BTreeSet::new();
    for dir in &dirs.list {
        list_below(&dir.path, &mut pids).map_err(|errno| {
            Error::system(format_args!("list processes of cgroup {}", dir.path.display()), errno.desc())
        })?;
    }
    Ok(pids)
}

fn list_below(path: &Path, pids: &mut BTreeSet<i32>) -> Result<(), Errno> {
    match fs::read_to_string(path.join("cgroup.procs")).map_err(|e| errno(&e)) {
        Ok(text) => {
            pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 0))
        }
        // The cgroup was removed meanwhile, or it has only threads of processes that its parent lists (cgroups(7),
        // Thread mode).
        Err(Errno::ENOENT | Errno::ENODEV | Errno::EOPNOTSUPP) => {}
        Err(errno) => return Err(errno),
    }
    let below = fs::read_dir(path).into_iter().flatten().flatten();
    for entry in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        list_below(&entry.path(), pids)?;
    }
    Ok(())
}

/// Moves a process into one cgroup.
pub(super) fn move_into(dir: &OpenCgroup, pid: i32) -> Result<()> {
    dir.write("cgroup.procs", &pid.to_string()).map_err(|errno| {
        let file = dir.path.join("cgroup.procs");
        let error = Error::system(format_args!("write {pid} to {}", file.display()), errno.desc());
        match errno {
            Errno::EACCES | Errno::EPERM => error.hint(
                "a process is moved only inside of a delegated subtree: start saggar in it (systemd-run --user --scope \
                 -p Delegate=yes)",
            ),
            Errno::EBUSY => error.hint("the cgroup gives controllers to others below it, and takes no process"),
            Errno::ENOSPC => error.hint("its cpuset has no CPUs or no memory nodes: name some in linux.resources.cpu"),
            _ => error,
        }
    })
}

/// Whether the caller may move its processes there: it needs write access to the `cgroup.procs` file of the common
/// ancestor of both cgroups (cgroups(7), "Delegation containment").
pub(super) fn can_move_into(directory: &CgroupDirectory) -> bool {
    let layout = CgroupLayout::discover().unwrap_or_default();
    let own = layout.v2_hierarchy().map(|hierarchy| &hierarchy.own_cgroup);
    let both = directory.path.ancestors().find(|above| own.is_some_and(|own| own.starts_with(above)));
    both.is_some_and(|above| access(&above.join("cgroup.procs"), AccessFlags::W_OK).is_ok())
}

/// Reads back that a process is in all cgroups of the location, or below them.
pub(super) fn check_membership(location: &CgroupLocation, pid: i32) -> Result<()> {
    let file = format!("/proc/{pid}/cgroup");
    let text = fs::read(&file).map_err(|e| Error::system(format_args!("read {file}"), e))?;
    for directory in &location.directories {
        let is = cgroup_in(&text, directory);
        if !is.as_deref().is_some_and(|is| is.starts_with(&directory.cgroup)) {
            let is = is.unwrap_or_default();
            let message = format!(
                "process {pid} is in cgroup {} of {}, not in {}",
                is.display(),
                directory.mount.display(),
                directory.cgroup.display()
            );
            return Err(Error::new(Code::System, message).hint("another process moves processes: try again"));
        }
    }
    Ok(())
}

/// The cgroup that a `/proc/PID/cgroup` file lists for the hierarchy of a directory.
fn cgroup_in(text: &[u8], directory: &CgroupDirectory) -> Option<PathBuf> {
    cgroup_path_in(text, |listed| match (directory.version, directory.controllers.first()) {
        (CgroupVersion::V2, _) => listed.is_empty(),
        (CgroupVersion::V1, Some(first)) => listed.split(',').any(|one| one == first),
        (CgroupVersion::V1, None) => false,
    })
}

/// The v2 cgroup for a process that joins the container: the container's cgroup or, if that enables controllers for
/// cgroups that the container created ("no internal processes"), the one of its first process.
pub(super) fn find_joined_cgroup(
    location: &CgroupLocation,
    dir: &OpenCgroup,
    init: i32,
) -> Result<Option<OpenCgroup>> {
    if dir.version == CgroupVersion::V1 || dir.read("cgroup.subtree_control").is_ok_and(|on| on.is_empty()) {
        return Ok(None);
    }
    let directory = location.directories.iter().find(|one| one.path == dir.path);
    let text = fs::read(format!("/proc/{init}/cgroup")).unwrap_or_default();
    let Some(directory) = directory else { return Ok(None) };
    let below = cgroup_in(&text, directory);
    let Some(below) = below.as_deref().and_then(|is| is.strip_prefix(&directory.cgroup).ok()) else {
        return Ok(None);
    };
    let at = CgroupDirectory { path: directory.path.join(below), ..directory.clone() };
    let opened = directories::open_directory(&at);
    opened.map(Some).map_err(|e| Error::system(format_args!("open cgroup {}", at.path.display()), e.desc()))
}

/// Sends a signal to every process, including those that are forked meanwhile. It waits for the effect of SIGKILL.
pub(super) fn kill_all(dirs: &OpenCgroups, signal: i32) -> Result<()> {
    if signal != libc::SIGKILL {
        return signal_frozen(dirs, signal);
    }
    let end = Instant::now() + KILL_TIMEOUT;
    let mut pause = FIRST_POLL_INTERVAL;
    loop {
        // `cgroup.kill` needs Linux 5.14; it also kills processes that are being forked or are frozen.
        let killed = dirs.unified().is_some_and(|dir| dir.write("cgroup.kill", "1").is_ok());
        let left = list(dirs)?;
        if left.is_empty() {
            return Ok(());
        }
        if !killed {
            signal_frozen(dirs, signal)?;
        } else if dirs.list.len() > 1 {
            // Processes may be in a v1 hierarchy only, after a start that was aborted; and v1's freezer holds killed
            // processes.
            signal_all(dirs, signal)?;
            freeze::thaw_killed(dirs);
        }
        if pause > FIRST_POLL_INTERVAL {
            freeze::move_back(dirs, &left);
        }
        if Instant::now() >= end {
            let pids: Vec<_> = left.iter().take(8).map(i32::to_string).collect();
            let message = format!("processes outlive SIGKILL: {}", pids.join(" "));
            return Err(Error::new(Code::System, message)
                .hint("they wait in the kernel for a device or a network file system: see /proc/PID/stack"));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Freezes all processes, signals all, and thaws them, unless they were frozen before.
fn signal_frozen(dirs: &OpenCgroups, signal: i32) -> Result<()> {
    let was_frozen = freeze::is_frozen(dirs).unwrap_or(false);
    // If freezing fails or takes too long, the signal is sent nevertheless.
    let frozen = was_frozen || freeze::set_frozen(dirs, true).is_ok();
    let sent = signal_all(dirs, signal);
    if frozen && (!was_frozen || signal == libc::SIGKILL) {
        freeze::set_frozen(dirs, false)?;
    }
    sent
}

/// Signals every listed process. A pid may be reused meanwhile, so the process is first opened as a pidfd, and the list
/// is then read again.
fn signal_all(dirs: &OpenCgroups, signal: i32) -> Result<()> {
    let pinned = list(dirs)?.into_iter().filter_map(|pid| Some((pid, pidfd::open(pid).ok()?)));
    let pinned: Vec<_> = pinned.collect();
    let still = list(dirs)?;
    for (pid, pidfd) in pinned.iter().filter(|(pid, _)| still.contains(pid)) {
        match pidfd::signal(pidfd.as_fd(), signal) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => {
                return Err(Error::system(
                    format_args!("send signal {signal} to process {pid}"),
                    errno.desc(),
                ));
            }
        }
    }
    Ok(())
}
