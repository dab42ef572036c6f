//! Directories of cgroups: made with what they need to take a process, and removed.

use super::place::{Directory, Place};
use super::tree::{Dir, errno};
use crate::error::{Code, Error, Result};
use crate::host::cgroups::Version;
use nix::errno::Errno;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often a directory above is made again that another container's end removed under our hands.
const TRIES: u32 = 16;

/// How long [`remove`] waits for processes that are only just going.
const PATIENCE: Duration = Duration::from_secs(5);

/// Controllers that a cgroup has when it can, so that what is used can be told: limits may need others.
const COUNTED: [&str; 5] = ["cpu", "cpuset", "io", "memory", "pids"];

/// A controller that could not be switched on: its name, the file, what was written, and the error.
pub(super) type Refused = (String, PathBuf, String, Errno);

/// Makes the directory of one hierarchy and opens it; `needed` are controllers that limits ask for.
pub(super) fn make(directory: &Directory, needed: &[String], refused: &mut Vec<Refused>) -> Result<Dir> {
    make_path(directory)?;
    match directory.version {
        Version::V2 => enable(directory, needed, refused),
        Version::V1 => inherit_cpuset(directory)?,
    }
    open(directory).map_err(|errno| says("open", &directory.path, errno))
}

/// Opens the directory of one hierarchy.
pub(super) fn open(directory: &Directory) -> Result<Dir, Errno> {
    Dir::open(&directory.path, directory.version, &directory.controllers)
}

fn says(what: &str, path: &Path, errno: Errno) -> Error {
    let error = Error::system(format_args!("{what} cgroup {}", path.display()), errno.desc());
    match errno {
        Errno::EACCES | Errno::EPERM => error.hint(
            "run as root, or in a cgroup that is delegated to this user (systemd-run --user --scope -p Delegate=yes)",
        ),
        Errno::EROFS => error.hint("mount the cgroup file system read-write, or use --cgroup-manager disabled"),
        Errno::ENOSPC | Errno::EAGAIN => error.hint("raise cgroup.max.descendants or cgroup.max.depth above it"),
        _ => error,
    }
}

fn make_path(directory: &Directory) -> Result<()> {
    for _ in 0..TRIES {
        let mut gone = false;
        for path in &directory.made {
            match fs::create_dir(path).map_err(|e| errno(&e)) {
                Ok(()) => {}
                Err(Errno::EEXIST) if *path != directory.path => {}
                Err(Errno::EEXIST) => {
                    return Err(Error::new(
                        Code::Exists,
                        format!("cgroup {} is there already", path.display()),
                    )
                    .hint(
                        "another container is being made in it: give linux.cgroupsPath of this one's own",
                    ));
                }
                Err(Errno::ENOENT) => gone = true,
                Err(errno) => return Err(says("make", path, errno)),
            }
        }
        if !gone {
            return Ok(());
        }
    }
    Err(says("make", &directory.path, Errno::ENOENT))
}

/// Refuses a cgroup that was there before and has processes: they are not the container's.
pub(super) fn check_empty(directory: &Directory) -> Result<()> {
    if directory.made.contains(&directory.path) {
        return Ok(());
    }
    let processes = fs::read_to_string(directory.path.join("cgroup.procs")).unwrap_or_default();
    let count = processes.lines().count();
    if count == 0 {
        return Ok(());
    }
    let message =
        format!("container's cgroup is not empty: {count} process(es) found in {}", directory.path.display());
    Err(Error::new(Code::Refused, message).hint("give the container a linux.cgroupsPath of its own"))
}

/// Switches controllers on in every cgroup from the root down to the one above ours.
fn enable(directory: &Directory, needed: &[String], refused: &mut Vec<Refused>) {
    let mut above: Vec<&Path> =
        directory.path.ancestors().skip(1).take_while(|path| path.starts_with(&directory.mount)).collect();
    above.reverse();
    for path in above {
        let words = |name: &str| {
            let text = fs::read_to_string(path.join(name)).unwrap_or_default();
            text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let (there, on) = (words("cgroup.controllers"), words("cgroup.subtree_control"));
        let is_wanted = |name: &String| COUNTED.contains(&name.as_str()) || needed.contains(name);
        let missing: Vec<_> =
            there.into_iter().filter(|name| is_wanted(name) && !on.contains(name)).collect();
        if missing.is_empty() {
            continue;
        }
        let file = path.join("cgroup.subtree_control");
        let all: Vec<_> = missing.iter().map(|name| format!("+{name}")).collect();
        if fs::write(&file, all.join(" ")).is_ok() {
            continue;
        }
        // One that cannot be had must not cost the others.
        for name in missing {
            let value = format!("+{name}");
            if let Err(e) = fs::write(&file, &value) {
                refused.push((name, file.clone(), value, errno(&e)));
            }
        }
    }
}

/// A new cpuset of v1 is empty, and takes no process before it has CPUs and memory nodes.
pub(super) fn inherit_cpuset(directory: &Directory) -> Result<()> {
    if !directory.controllers.iter().any(|one| one == "cpuset") {
        return Ok(());
    }
    let mut path: Vec<&Path> =
        directory.path.ancestors().take_while(|path| **path != *directory.mount).collect();
    path.reverse();
    for directory in path {
        let Some(above) = directory.parent() else { continue };
        for name in ["cpuset.cpus", "cpuset.mems"] {
            let file = directory.join(name);
            let is_empty = fs::read_to_string(&file).is_ok_and(|text| text.trim().is_empty());
            if is_empty {
                let inherited = fs::read_to_string(above.join(name)).unwrap_or_default();
                fs::write(&file, inherited.trim()).map_err(|e| {
                    Error::system(format_args!("write {:?} to {}", inherited.trim(), file.display()), e)
                })?;
            }
        }
    }
    Ok(())
}

/// Goes to the shelter, so that our own cgroup has no process.
pub(super) fn take_shelter(place: &Place) -> Result<()> {
    let Some(shelter) = &place.shelter else { return Ok(()) };
    match fs::create_dir(shelter).map_err(|e| errno(&e)) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(errno) => return Err(says("make", shelter, errno)),
    }
    fs::write(shelter.join("cgroup.procs"), "0").map_err(|e| says("enter", shelter, errno(&e)))
}

/// As [`remove`], of cgroups that have neither processes nor cgroups below them, as most have in the end: the kernel
/// looks faster than we do. False when one has.
pub(super) fn remove_empty(place: &Place) -> bool {
    let ours = place.directories.iter().filter(|one| one.made.contains(&one.path));
    let mut removed = ours.map(|one| fs::remove_dir(&one.path).map_err(|e| errno(&e)));
    let empty = removed.all(|result| matches!(result, Ok(()) | Err(Errno::ENOENT)));
    if empty {
        remove_above(place);
    }
    empty
}

/// Removes the directories of a place that were not there before, and all below them.
pub(super) fn remove(place: &Place) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    let mut result = Ok(());
    for directory in &place.directories {
        if directory.made.contains(&directory.path) {
            // The others go all the same.
            result = result.and(remove_tree(&directory.path, end));
        }
    }
    remove_above(place);
    result
}

/// What was made on the way: of several containers the last takes it along.
fn remove_above(place: &Place) {
    for directory in &place.directories {
        for path in directory.made.iter().rev().filter(|path| **path != directory.path) {
            let _ = fs::remove_dir(path);
        }
    }
    if let Some(shelter) = &place.shelter {
        let _ = fs::remove_dir(shelter);
    }
}

fn remove_tree(path: &Path, end: Instant) -> Result<()> {
    let mut pause = Duration::from_micros(100);
    loop {
        match remove_once(path) {
            Ok(()) => return Ok(()),
            Err((_, Errno::EBUSY | Errno::ENOTEMPTY)) if Instant::now() < end => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(20));
            }
            Err((busy, errno)) => {
                let processes = fs::read_to_string(busy.join("cgroup.procs")).unwrap_or_default();
                let pids: Vec<_> = processes.lines().take(8).collect();
                let what = format!("remove cgroup {} (processes: {})", busy.display(), pids.join(" "));
                return Err(Error::system(what, errno.desc())
                    .hint("end these processes, then delete the container again"));
            }
        }
    }
}

/// Removes the cgroups below, then the cgroup; what is gone is gone.
fn remove_once(path: &Path) -> Result<(), (PathBuf, Errno)> {
    let remove = || fs::remove_dir(path).map_err(|e| errno(&e));
    match remove() {
        Ok(()) | Err(Errno::ENOENT) => return Ok(()),
        // EBUSY is both a cgroup below and a process.
        Err(_) => {}
    }
    let below = fs::read_dir(path).into_iter().flatten().flatten();
    for entry in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_once(&entry.path())?;
    }
    match remove() {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err((path.to_owned(), errno)),
    }
}
