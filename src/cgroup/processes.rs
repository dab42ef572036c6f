//! Processes of a container's cgroups: listed, put in, signalled.

use super::place::{Directory, Place};
use super::tree::{Dir, Dirs, errno};
use super::{freeze, make};
use crate::error::{Code, Error, Result};
use crate::host::cgroups::{Layout, Version, path_in};
use crate::sys::pidfd;
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long processes may take to die of SIGKILL.
const DEATH: Duration = Duration::from_secs(10);
/// When killed processes are first looked at again.
const FIRST: Duration = Duration::from_micros(100);

/// Every process in these cgroups and in those below.
pub(super) fn list(dirs: &Dirs) -> Result<BTreeSet<i32>> {
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
        // Gone meanwhile; or threads of processes that are listed above (cgroups(7), Thread mode).
        Err(Errno::ENOENT | Errno::ENODEV | Errno::EOPNOTSUPP) => {}
        Err(errno) => return Err(errno),
    }
    let below = fs::read_dir(path).into_iter().flatten().flatten();
    for entry in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        list_below(&entry.path(), pids)?;
    }
    Ok(())
}

/// Puts a process in one cgroup.
pub(super) fn put(dir: &Dir, pid: i32) -> Result<()> {
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

/// Whether the kernel lets the caller move its processes there: it must have the right to write the `cgroup.procs` of
/// the cgroup above both (cgroups(7), "Delegation containment").
pub(super) fn is_within_reach(directory: &Directory) -> bool {
    let layout = Layout::discover().unwrap_or_default();
    let own = layout.unified().map(|hierarchy| &hierarchy.own);
    let both = directory.path.ancestors().find(|above| own.is_some_and(|own| own.starts_with(above)));
    both.is_some_and(|above| access(&above.join("cgroup.procs"), AccessFlags::W_OK).is_ok())
}

/// Reads back that a process is in all of the place's cgroups, or below them.
pub(super) fn check(place: &Place, pid: i32) -> Result<()> {
    let file = format!("/proc/{pid}/cgroup");
    let text = fs::read(&file).map_err(|e| Error::system(format_args!("read {file}"), e))?;
    for directory in &place.directories {
        let is = cgroup_in(&text, directory);
        if !is.as_deref().is_some_and(|is| is.starts_with(&directory.cgroup)) {
            let is = is.unwrap_or_default();
            let message = format!(
                "process {pid} is in cgroup {} of {}, not in {}",
                is.display(),
                directory.mount.display(),
                directory.cgroup.display()
            );
            return Err(Error::new(Code::System, message).hint("somebody else moves processes: start again"));
        }
    }
    Ok(())
}

/// What a `/proc/PID/cgroup` names in the hierarchy of a directory.
fn cgroup_in(text: &[u8], directory: &Directory) -> Option<PathBuf> {
    path_in(text, |listed| match (directory.version, directory.controllers.first()) {
        (Version::V2, _) => listed.is_empty(),
        (Version::V1, Some(first)) => listed.split(',').any(|one| one == first),
        (Version::V1, None) => false,
    })
}

/// The v2 cgroup that a process of the container belongs to when it joins: the container's, or, when that gives
/// controllers to cgroups that the container made ("no internal processes"), the one of its first process.
pub(super) fn beside(place: &Place, dir: &Dir, init: i32) -> Result<Option<Dir>> {
    if dir.version == Version::V1 || dir.read("cgroup.subtree_control").is_ok_and(|on| on.is_empty()) {
        return Ok(None);
    }
    let directory = place.directories.iter().find(|one| one.path == dir.path);
    let text = fs::read(format!("/proc/{init}/cgroup")).unwrap_or_default();
    let Some(directory) = directory else { return Ok(None) };
    let below = cgroup_in(&text, directory);
    let Some(below) = below.as_deref().and_then(|is| is.strip_prefix(&directory.cgroup).ok()) else {
        return Ok(None);
    };
    let at = Directory { path: directory.path.join(below), ..directory.clone() };
    let opened = make::open(&at);
    opened.map(Some).map_err(|e| Error::system(format_args!("open cgroup {}", at.path.display()), e.desc()))
}

/// Sends a signal to every process, none that is forked meanwhile forgotten. SIGKILL is waited for.
pub(super) fn kill_all(dirs: &Dirs, signal: i32) -> Result<()> {
    if signal != libc::SIGKILL {
        return kill_stopped(dirs, signal);
    }
    let end = Instant::now() + DEATH;
    let mut pause = FIRST;
    loop {
        // Linux 5.14; it takes whatever is being forked, and what is frozen.
        let killed = dirs.unified().is_some_and(|dir| dir.write("cgroup.kill", "1").is_ok());
        let left = list(dirs)?;
        if left.is_empty() {
            return Ok(());
        }
        if !killed {
            kill_stopped(dirs, signal)?;
        } else if dirs.list.len() > 1 {
            // What is in a v1 hierarchy alone, from a start that was broken off; and v1's freezer holds the dead.
            send(dirs, signal)?;
            freeze::let_die(dirs);
        }
        if pause > FIRST {
            freeze::bring_home(dirs, &left);
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

/// Stops all, signals all, and lets them go on, unless they were stopped before.
fn kill_stopped(dirs: &Dirs, signal: i32) -> Result<()> {
    let was_frozen = freeze::is_frozen(dirs).unwrap_or(false);
    // Without a freezer, or in time: the signal is sent all the same.
    let frozen = was_frozen || freeze::set(dirs, true).is_ok();
    let sent = send(dirs, signal);
    if frozen && (!was_frozen || signal == libc::SIGKILL) {
        freeze::set(dirs, false)?;
    }
    sent
}

/// Signals everybody who is listed. A number may be another's by the time it is used: so a process is first
/// pinned, and then looked for once more.
fn send(dirs: &Dirs, signal: i32) -> Result<()> {
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
