//! Cgroup directories: creates them with the controllers and CPUs that a process needs, and removes them.

use super::control_files::{OpenCgroup, errno};
use super::location::{CgroupDirectory, CgroupLocation, LocationWriter};
use crate::host::cgroups::{CgroupVersion, read_words};
use nix::errno::Errno;
use saggar_sys::error::{Code, Error, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum number of attempts to create a parent directory that the removal of another container's cgroup deletes
/// concurrently.
const MAX_ATTEMPTS: u32 = 16;

/// How long [`remove`] waits for processes that are still exiting.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Controllers that are enabled in a cgroup if possible, so that its usage is counted; limits may need others.
const ACCOUNTED_CONTROLLERS: [&str; 5] = ["cpu", "cpuset", "io", "memory", "pids"];

/// A controller that could not be enabled: its name, the file, the value written, and the error.
pub(super) type RefusedController = (String, PathBuf, String, Errno);

/// Creates the directory in one hierarchy and opens it; `needed` are the controllers that limits need.
pub(super) fn create_directory(
    location: &mut CgroupLocation,
    at: usize,
    needed: &[String],
    refused: &mut Vec<RefusedController>,
    write_location: &mut LocationWriter<'_>,
) -> Result<OpenCgroup> {
    create_path(location, at, write_location)?;
    let directory = &location.directories[at];
    match directory.version {
        CgroupVersion::V2 => enable_controllers_above(directory, needed, refused),
        CgroupVersion::V1 => inherit_cpuset(&directory.mount, &directory.path, &directory.controllers)?,
    }
    open_directory(directory).map_err(|errno| io_error("open", &directory.path, errno))
}

/// Opens the directory of one hierarchy.
pub(super) fn open_directory(directory: &CgroupDirectory) -> Result<OpenCgroup, Errno> {
    OpenCgroup::open(&directory.path, directory.version, &directory.controllers)
}

fn io_error(what: &str, path: &Path, errno: Errno) -> Error {
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

fn create_path(
    location: &mut CgroupLocation,
    at: usize,
    write_location: &mut LocationWriter<'_>,
) -> Result<()> {
    for _ in 0..MAX_ATTEMPTS {
        if try_create_path(&location.directories[at])? {
            return Ok(());
        }
        if location.directories[at].refresh_created() {
            write_location(location)?;
        }
    }
    Err(io_error("make", &location.directories[at].path, Errno::ENOENT))
}

/// Creates the missing directories, the outermost first. Returns false if a parent was removed meanwhile.
fn try_create_path(directory: &CgroupDirectory) -> Result<bool> {
    for path in &directory.created {
        match fs::create_dir(path).map_err(|e| errno(&e)) {
            Ok(()) => {}
            Err(Errno::EEXIST) if *path != directory.path => {}
            Err(Errno::EEXIST) => {
                return Err(Error::new(Code::Exists, format!("cgroup {} is there already", path.display()))
                    .hint(
                        "another container is being made in it: give linux.cgroupsPath of this one's own",
                    ));
            }
            Err(Errno::ENOENT) => return Ok(false),
            Err(errno) => return Err(io_error("make", path, errno)),
        }
    }
    Ok(true)
}

/// Rejects a cgroup that already existed and has processes: they are not the container's.
pub(super) fn check_empty(directory: &CgroupDirectory) -> Result<()> {
    if directory.created.contains(&directory.path) {
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

/// Enables controllers in every cgroup from the root down to our cgroup's parent.
fn enable_controllers_above(
    directory: &CgroupDirectory,
    needed: &[String],
    refused: &mut Vec<RefusedController>,
) {
    let mut above: Vec<&Path> =
        directory.path.ancestors().skip(1).take_while(|path| path.starts_with(&directory.mount)).collect();
    above.reverse();
    let is_wanted =
        |name: &str| ACCOUNTED_CONTROLLERS.contains(&name) || needed.iter().any(|one| one == name);
    above.into_iter().for_each(|path| enable_controllers(path, is_wanted, refused));
}

/// Enables those controllers of a cgroup for its children that are wanted; those that cannot be enabled are added to
/// `refused`.
pub(super) fn enable_controllers(
    cgroup: &Path,
    is_wanted: impl Fn(&str) -> bool,
    refused: &mut Vec<RefusedController>,
) {
    let (available, enabled) =
        (read_words(cgroup, "cgroup.controllers"), read_words(cgroup, "cgroup.subtree_control"));
    let missing = available.into_iter().filter(|name| is_wanted(name) && !enabled.contains(name));
    let missing: Vec<String> = missing.map(|name| format!("+{name}")).collect();
    let file = cgroup.join("cgroup.subtree_control");
    // The kernel accepts one write as a whole or not at all; if it fails, each controller is written alone, so that a
    // missing one does not prevent the others.
    if missing.is_empty() || fs::write(&file, missing.join(" ")).is_ok() {
        return;
    }
    for value in missing {
        if let Err(e) = fs::write(&file, &value) {
            refused.push((value[1..].to_owned(), file.clone(), value, errno(&e)));
        }
    }
}

/// Copies the parent's CPUs and memory nodes to a new cpuset of v1, which is empty and accepts no process without them.
/// Other hierarchies than that of cpuset are left alone.
pub(super) fn inherit_cpuset(mount: &Path, path: &Path, controllers: &[String]) -> Result<()> {
    if !controllers.iter().any(|one| one == "cpuset") {
        return Ok(());
    }
    let mut below: Vec<&Path> = path.ancestors().take_while(|above| *above != mount).collect();
    below.reverse();
    for directory in below {
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

/// Moves this process to the runtime cgroup, so that its own cgroup has no process.
pub(super) fn enter_runtime_cgroup(location: &CgroupLocation) -> Result<()> {
    let Some(shelter) = &location.runtime_cgroup else { return Ok(()) };
    match fs::create_dir(shelter).map_err(|e| errno(&e)) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(errno) => return Err(io_error("make", shelter, errno)),
    }
    fs::write(shelter.join("cgroup.procs"), "0").map_err(|e| io_error("enter", shelter, errno(&e)))
}

/// As [`remove`], for cgroups that have neither processes nor cgroups below them, which is the usual case: rmdir(2)
/// alone is faster than reading them first. Returns false if one has.
pub(super) fn remove_empty(location: &CgroupLocation) -> bool {
    let created = location.directories.iter().filter(|one| one.created.contains(&one.path));
    let mut removed = created.map(|one| fs::remove_dir(&one.path).map_err(|e| errno(&e)));
    let empty = removed.all(|result| matches!(result, Ok(()) | Err(Errno::ENOENT)));
    if empty {
        remove_parents(location);
    }
    empty
}

/// Removes the directories that were created for a location, and all cgroups below them.
pub(super) fn remove(location: &CgroupLocation) -> Result<()> {
    let end = Instant::now() + REMOVE_TIMEOUT;
    let mut result = Ok(());
    for directory in &location.directories {
        if directory.created.contains(&directory.path) {
            // An error does not keep the other directories from being removed.
            result = result.and(remove_tree(&directory.path, end));
        }
    }
    remove_parents(location);
    result
}

/// Removes the parent directories that were created on the way. If several containers share them, the last one removes
/// them.
fn remove_parents(location: &CgroupLocation) {
    for directory in &location.directories {
        for path in directory.created.iter().rev().filter(|path| **path != directory.path) {
            let _ = fs::remove_dir(path);
        }
    }
    if let Some(shelter) = &location.runtime_cgroup {
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

/// Removes the cgroups below, then the cgroup itself. A directory that no longer exists is not an error.
fn remove_once(path: &Path) -> Result<(), (PathBuf, Errno)> {
    let remove = || fs::remove_dir(path).map_err(|e| errno(&e));
    match remove() {
        Ok(()) | Err(Errno::ENOENT) => return Ok(()),
        // EBUSY can mean a cgroup below or a process.
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
