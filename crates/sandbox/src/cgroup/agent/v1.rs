//! The cgroups of a sandbox in hierarchies of version 1, where those have the controllers of its limits. Only root can
//! make them.
//!
//! ```text
//! <mount>/saggar.slice/saggar-<id>   one in each of these hierarchies; a policy can name another parent
//! ```
//! clone3(2) puts a process into a cgroup of version 2 only, and every move of another process waits for all CPUs of the
//! host (`cgroup_threadgroup_rwsem`). So the one thread of the launching process enters these cgroups, makes pid 1, and goes
//! back: a thread that moves itself waits for nobody (Linux 5.17, `cgroup_procs_write_start`).
//!
//! Programs cannot leave them: nothing of these hierarchies is writable in a sandbox.

mod counters;

pub(super) use counters::{oom_kills, stats, usage};

use super::path::{is_older, parse_name};
use crate::cgroup::directories::inherit_cpuset;
use crate::host::cgroup_parent::{CgroupParent, unified_mount};
use crate::host::cgroups::{
    CgroupHierarchy, CgroupLayout, CgroupVersion, V1_LIMIT_CONTROLLERS, has_processes,
};
use crate::spec::CgroupName;
use nix::unistd::{AccessFlags, access, geteuid};
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::id::SandboxId;
use saggar_sys::process;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where hierarchies are mounted. Those elsewhere are not used: a record of what is to be removed names none.
const ROOT: &str = "/sys/fs/cgroup";

/// A cgroup of a sandbox in one hierarchy of version 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct V1Cgroup {
    pub(super) path: PathBuf,
    /// The controllers of the hierarchy.
    pub(super) controllers: Vec<String>,
    /// The mount point of the hierarchy.
    mount: PathBuf,
    /// The cgroup of this process, to which it returns.
    own: PathBuf,
}

/// This process is in cgroups of a sandbox. The drop takes it back.
#[derive(Debug)]
pub struct V1Membership<'a> {
    entered: &'a [V1Cgroup],
}

/// The hierarchies of version 1 that root can use for limits; none for ordinary users.
fn hierarchies() -> Vec<CgroupHierarchy> {
    // With version 2 there, it has all controllers.
    if !geteuid().is_root() || unified_mount() == Some(ROOT) {
        return Vec::new();
    }
    let mut hierarchies = CgroupLayout::discover().unwrap_or_default().hierarchies;
    hierarchies.retain(|one| {
        one.version == CgroupVersion::V1
            && one.mount_point.starts_with(ROOT)
            && one.controllers.iter().any(|name| V1_LIMIT_CONTROLLERS.contains(&name.as_str()))
            && access(&one.mount_point, AccessFlags::W_OK).is_ok()
    });
    hierarchies
}

impl V1Cgroup {
    /// The cgroups of the sandbox `id` for these controllers. Nothing is made.
    pub(super) fn choose(id: &str, controllers: &[&str], parent: &CgroupName) -> Vec<Self> {
        let is_needed = |one: &CgroupHierarchy| {
            let mut names = one.controllers.iter().map(String::as_str);
            names.any(|name| V1_LIMIT_CONTROLLERS.contains(&name) && controllers.contains(&name))
        };
        let place = |hierarchy: CgroupHierarchy| V1Cgroup {
            path: CgroupParent::Slice(hierarchy.mount_point.join(parent.as_str())).child(id),
            controllers: hierarchy.controllers,
            mount: hierarchy.mount_point,
            own: hierarchy.own_cgroup,
        };
        hierarchies().into_iter().filter(is_needed).map(place).collect()
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Why it would not accept this process. With CONFIG_RT_GROUP_SCHED a new cgroup has no share of the real-time bandwidth.
    pub(super) fn objection(&self) -> Option<String> {
        let has_bandwidth = || self.mount.join("cpu.rt_runtime_us").exists();
        (self.has("cpu") && process::is_real_time() && has_bandwidth()).then(|| {
            format!(
                "a cgroup in {} takes no process with a real-time policy; start saggar with another: chrt -o 0",
                self.mount.display()
            )
        })
    }

    /// Makes the directory.
    ///
    /// # Errors
    /// [`Code::System`] if it cannot be made, or accepts no process; [`Code::Unsupported`] if
    /// it does not accept this one.
    pub(super) fn create(&self) -> Result<()> {
        if let Some(why) = self.objection() {
            return Err(Error::new(Code::Unsupported, why));
        }
        let made = match self.path.parent().map(fs::create_dir) {
            Some(Err(error)) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => fs::create_dir(&self.path),
        };
        made.map_err(|error| Error::system(format_args!("make {}", self.path.display()), error))?;
        inherit_cpuset(&self.mount, &self.path, &self.controllers)
    }

    /// Whether the hierarchy has this controller.
    pub(super) fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|name| name == controller)
    }
}

impl<'a> V1Membership<'a> {
    /// Moves this process, which has one thread, into these cgroups.
    ///
    /// # Errors
    /// [`Code::System`] if it cannot be moved; the process is then where it was.
    pub(super) fn enter(cgroups: &'a [V1Cgroup]) -> Result<Self> {
        let mut membership = V1Membership { entered: &[] };
        for (index, cgroup) in cgroups.iter().enumerate() {
            move_this_thread(&cgroup.path).map_err(|e| enter_error(&cgroup.path, &e))?;
            membership.entered = &cgroups[..=index];
        }
        Ok(membership)
    }
}

fn enter_error(cgroup: &Path, error: &io::Error) -> Error {
    Error::system(format_args!("enter {}", cgroup.display()), error)
        .hint("leave the limits out that it is for")
}

impl Drop for V1Membership<'_> {
    fn drop(&mut self) {
        for V1Cgroup { own, .. } in self.entered {
            if let Err(error) = move_this_thread(own) {
                log::warn!(
                    "saggar stays in the cgroup of its sandbox: write 0 to {}/tasks: {error}",
                    own.display()
                );
            }
        }
    }
}

fn move_this_thread(cgroup: &Path) -> io::Result<()> {
    fs::write(cgroup.join("tasks"), "0")
}

/// The cgroups of running sandboxes in every hierarchy, each with the id of its sandbox. They are two levels below the root,
/// whichever parent a policy names. A scope of systemd there is that of a container.
pub(super) fn find_running() -> Vec<(SandboxId, V1Cgroup)> {
    let below = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let sandbox = |path: PathBuf| {
        let is_scope = path.extension().is_some_and(|extension| extension == "scope");
        let id = parse_name(path.file_name()?).filter(|_| !is_scope && has_processes(&path))?;
        Some((id, path))
    };
    let of_hierarchy = |CgroupHierarchy { mount_point, controllers, own_cgroup, .. }: CgroupHierarchy| {
        let paths = below(&mount_point).flat_map(|parent| below(&parent).collect::<Vec<_>>());
        let found = paths.filter_map(sandbox).map(|(id, path)| {
            let (mount, own) = (mount_point.clone(), own_cgroup.clone());
            (id, V1Cgroup { path, controllers: controllers.clone(), mount, own })
        });
        found.collect::<Vec<_>>()
    };
    hierarchies().into_iter().flat_map(of_hierarchy).collect()
}

/// Removes the cgroups of dead sandboxes: those without a process, older than `age`, and not `known` to run. Returns their
/// number.
pub(super) fn remove_stale(age: Duration, known: impl Fn(&str) -> bool) -> usize {
    let slices = hierarchies().into_iter().map(|one| one.mount_point.join(CgroupName::DEFAULT));
    let entries = slices.filter_map(|slice| fs::read_dir(slice).ok()).flatten().flatten();
    let is_stale = |entry: &fs::DirEntry| {
        let id = parse_name(&entry.file_name());
        is_older(&entry.path(), age) && id.is_some_and(|id| !known(id.as_str()))
    };
    // One with processes is not removed: EBUSY.
    entries.filter(is_stale).filter(|entry| fs::remove_dir(entry.path()).is_ok()).count()
}
