//! The cgroup of an agent's sandbox: made below our own, limited, entered by the clone itself, and
//! removed with everything in it by [`crate::launch::guard`].
//!
//! ```text
//! <own>/saggar-<id>        the limits
//! <own>/saggar-<id>/main   the processes, born there; the cgroup namespace is rooted here
//! ```
//! Never outside of our own subtree, which /proc/self/cgroup names. Every write is read back.

use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::plan::Degraded;
use crate::spec::{Limit, Limits};
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the names of our cgroups begin with.
const PREFIX: &str = "saggar-";

/// The cgroup of one sandbox.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    main: OwnedFd,
}

impl Cgroup {
    /// The directory for clone3's CLONE_INTO_CGROUP.
    pub fn main(&self) -> &OwnedFd {
        &self.main
    }
}

/// Where a cgroup for `id` would be: below our own in the unified hierarchy; `None` without one.
pub fn place(id: &SandboxId) -> Option<PathBuf> {
    own().map(|own| own.join(format!("{PREFIX}{id}")))
}

/// Whether a cgroup can be made at `place` at all: where it cannot, nothing needs to be watched over.
pub fn may_make(place: &Path) -> bool {
    place.parent().is_some_and(|own| may_make_in(own).is_ok())
}

fn may_make_in(own: &Path) -> nix::Result<()> {
    nix::unistd::access(own, nix::unistd::AccessFlags::W_OK)
}

/// Our own cgroup in the unified hierarchy.
fn own() -> Option<PathBuf> {
    let mount = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .into_iter()
        .find(|path| statfs(*path).is_ok_and(|fs| fs.filesystem_type() == CGROUP2_SUPER_MAGIC))?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(Path::new(mount).join(own))
}

/// Removes the cgroups below our own that sandboxes left which are dead: without a process, older than `age`, and
/// not `known` to live; how many there were. Nothing is killed: one that gets a process meanwhile stays.
pub fn sweep(age: Duration, known: impl Fn(&str) -> bool) -> usize {
    let is_dead = |path: &Path| {
        let events = fs::read_to_string(path.join("cgroup.events")).unwrap_or_default();
        let made = path.metadata().and_then(|meta| meta.modified()).ok();
        let old = made.and_then(|at| at.elapsed().ok()).is_some_and(|passed| passed >= age);
        old && events.lines().any(|line| line == "populated 0")
    };
    let remove = |path: &Path| {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            let _ = fs::remove_dir(entry.path());
        }
        fs::remove_dir(path).is_ok()
    };
    let entries = own().and_then(|own| fs::read_dir(own).ok()).into_iter().flatten().flatten();
    let left = entries.filter(|entry| {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        id.is_some_and(|id| !known(id)) && is_dead(&entry.path())
    });
    left.filter(|entry| remove(&entry.path())).count()
}

/// What a start would find missing of its cgroup and its limits; writes nothing. What a limit reads back is
/// known only when it is written.
pub fn foresee(place: Option<&Path>, limits: &Limits) -> Vec<Degraded> {
    let mut degraded = Vec::new();
    let lack = |what: &str, why: String| Degraded { what: what.to_owned(), why };
    let refused = match place.and_then(Path::parent) {
        None => Some("this host has no cgroup v2 hierarchy".to_owned()),
        Some(own) => may_make_in(own)
            .err()
            .map(|errno| format!("no cgroup can be made in {}: {}", own.display(), errno.desc())),
    };
    degraded.extend(refused.iter().map(|why| lack("cgroup", why.clone())));
    let enabled = place.and_then(Path::parent).map(controllers_for_children).unwrap_or_default();
    let has = [
        ("memory", limits.memory.is_some()),
        ("cpu", limits.cpu_milli.is_some()),
        ("pids", limits.pids.is_some()),
    ];
    for (controller, _) in has.into_iter().filter(|(_, wanted)| *wanted) {
        if let Some(why) = &refused {
            degraded.push(lack(controller, why.clone()));
        } else if !enabled.iter().any(|one| one == controller) {
            degraded.push(lack(controller, format!("the {controller} controller is not to be had here")));
        }
    }
    if limits.disk.is_some() {
        degraded.push(lack("disk", NO_QUOTA.to_owned()));
    }
    degraded
}

/// The controllers that a child of `own` would have: those that are on, and those that can be switched on,
/// which the kernel refuses where there are processes, but for the root.
fn controllers_for_children(own: &Path) -> Vec<String> {
    let words = |name: &str| {
        let text = fs::read_to_string(own.join(name)).unwrap_or_default();
        text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    // Only the root of the hierarchy has no cgroup.type (cgroups(7)).
    if own.join("cgroup.type").exists() {
        words("cgroup.subtree_control")
    } else {
        words("cgroup.controllers")
    }
}

/// DECISIONS 29.
const NO_QUOTA: &str = "the workspace is a directory of the host; only each file is bounded (fsize)";

/// What [`create`] came to.
#[derive(Debug)]
pub struct Outcome {
    /// The cgroup, where one can be had.
    pub cgroup: Option<Cgroup>,
    /// What of it, and of the limits, is missing.
    pub degraded: Vec<Degraded>,
}

/// Makes the cgroup at `place` and sets the limits in it.
///
/// # Errors
/// [`Code::Unsupported`] when a limit that somebody named cannot hold; what was made is in the guard's charge.
pub fn create(place: Option<&Path>, limits: &Limits, required: bool) -> Result<Outcome> {
    let made = place.ok_or_else(|| "this host has no cgroup v2 hierarchy".to_owned()).and_then(make);
    let (cgroup, why) = match made {
        Ok(cgroup) => (Some(cgroup), String::new()),
        Err(why) if required => {
            return Err(Error::new(Code::Unsupported, format!("a cgroup is required: {why}"))
                .hint("run saggar where its user may make cgroups (saggar doctor says how)"));
        }
        Err(why) => (None, why),
    };
    let mut degraded = Vec::new();
    if cgroup.is_none() {
        degraded.push(Degraded { what: "cgroup".into(), why: why.clone() });
    }
    limit_all(cgroup.as_ref(), &why, limits, &mut degraded)?;
    Ok(Outcome { cgroup, degraded })
}

fn make(path: &Path) -> std::result::Result<Cgroup, String> {
    let says = |what: &Path, e: std::io::Error| format!("make {}: {e}", what.display());
    fs::create_dir(path).map_err(|e| says(path, e))?;
    enable_controllers(path);
    let main = path.join("main");
    let made = fs::create_dir(&main).and_then(|()| fs::File::open(&main));
    match made {
        Ok(directory) => match fs::read_to_string(main.join("cgroup.type")) {
            // Somebody switched cpu or pids on in our own cgroup, with processes in it.
            Ok(kind) if kind.trim() != "domain" => {
                let _ = fs::remove_dir(&main).and_then(|()| fs::remove_dir(path));
                Err(format!("a cgroup below our own would be of the type \"{}\"", kind.trim()))
            }
            _ => Ok(Cgroup { path: path.to_owned(), main: directory.into() }),
        },
        Err(e) => Err(says(&main, e)),
    }
}

/// Asks our own cgroup to give its children what it has, where that is the root. Any other holds processes, us
/// among them: there the kernel refuses memory, and takes cpu and pids at a price, since the children then are
/// for threads alone and no process can be born in them (cgroups(7)). The limits say which controller is missing.
fn enable_controllers(path: &Path) {
    let Some(own) = path.parent().filter(|own| !own.join("cgroup.type").exists()) else { return };
    let read = |name: &str| fs::read_to_string(own.join(name)).unwrap_or_default();
    let (available, enabled) = (read("cgroup.controllers"), read("cgroup.subtree_control"));
    for controller in ["memory", "pids", "cpu"] {
        let has = |list: &str| list.split_whitespace().any(|word| word == controller);
        if has(&available) && !has(&enabled) {
            let _ = fs::write(own.join("cgroup.subtree_control"), format!("+{controller}"));
        }
    }
}

fn limit_all(
    cgroup: Option<&Cgroup>,
    why: &str,
    limits: &Limits,
    degraded: &mut Vec<Degraded>,
) -> Result<()> {
    let mut set = |name: &str, limit: &Option<Limit<u64>>, files: &[(&str, String)]| -> Result<()> {
        let Some(limit) = limit else { return Ok(()) };
        let result = match cgroup {
            Some(cgroup) => files.iter().try_for_each(|(file, text)| write_back(&cgroup.path, file, text)),
            None => Err(why.to_owned()),
        };
        let Err(why) = result else { return Ok(()) };
        if limit.named {
            let message =
                format!("the limit {name} = {}, from {}, cannot hold: {why}", limit.value, limit.origin);
            return Err(Error::new(Code::Unsupported, message).hint(format!(
                "run saggar in a cgroup v2 subtree of its own with the {name} controller, as with systemd-run \
                 --scope -p Delegate=yes, or leave the limit out"
            )));
        }
        degraded.push(Degraded { what: name.to_owned(), why });
        Ok(())
    };
    let number = |limit: &Option<Limit<u64>>| limit.as_ref().map_or(0, |l| l.value).to_string();
    let memory = [("memory.max", number(&limits.memory)), ("memory.swap.max", "0".to_owned())];
    set("memory", &limits.memory, &memory)?;
    let quota = limits.cpu_milli.as_ref().map_or(0, |limit| limit.value.saturating_mul(100));
    set("cpu", &limits.cpu_milli, &[("cpu.max", format!("{quota} 100000"))])?;
    set("pids", &limits.pids, &[("pids.max", number(&limits.pids))])?;
    match &limits.disk {
        Some(limit) if limit.named => {
            let message = format!("the limit disk = {}, from {}, cannot hold", limit.value, limit.origin);
            Err(Error::new(Code::Unsupported, message).hint(
                "a directory of the host that is mounted as it is has no byte limit of its own; leave the limit \
                 out (limits.fsize still bounds each file)",
            ))
        }
        Some(_) => {
            degraded.push(Degraded { what: "disk".into(), why: NO_QUOTA.into() });
            Ok(())
        }
        None => Ok(()),
    }
}

/// Writes one file and reads it back: a limit that does not read as it was written does not hold. The kernel
/// rounds memory down to pages.
fn write_back(directory: &Path, file: &str, text: &str) -> std::result::Result<(), String> {
    let path = directory.join(file);
    if !path.exists() {
        let controller = file.split('.').next().unwrap_or(file);
        return Err(format!("the {controller} controller is not to be had here ({file} is missing)"));
    }
    fs::write(&path, text).map_err(|e| format!("write {text} to {file}: {e}"))?;
    let back = fs::read_to_string(&path).map_err(|e| format!("read {file} back: {e}"))?;
    let back = back.trim_end();
    let rounded = match (back.parse::<u64>(), text.parse::<u64>()) {
        (Ok(is), Ok(was)) => is <= was && was - is < 4096,
        _ => false,
    };
    if back == text || rounded {
        Ok(())
    } else {
        Err(format!("{file} reads {back} after {text} was written"))
    }
}
