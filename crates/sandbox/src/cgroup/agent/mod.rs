//! The cgroup of an agent's sandbox. It is created where limits can hold ([`crate::host::cgroup_parent`]) and limited;
//! the clone enters it directly; [`crate::launch::agent::cleanup`] removes it with everything in it.
//!
//! ```text
//! <parent>/saggar-<id>        the limits
//! <parent>/saggar-<id>/main   the processes, created there; the cgroup namespace is rooted here
//! <parent>/saggar-<id>/exec-N a command that a server runs in addition to an agent ([`exec`])
//! ```
//! pid 1 is in `main` too. For a cgroup of its own, pid 1 or the first program would have to be moved at the start, and
//! a move waits for every CPU of the host, for milliseconds (percpu_down_write of cgroup_threadgroup_rwsem). The
//! namespace is rooted in the cgroup into which the clone puts pid 1, so a mount of it can never show the cgroup with
//! the limits.
//!
//! saggar changes no cgroup but the parent, and for root the root of the hierarchy, and enables there only the controllers
//! that limits need. Every limit is written through the directory's descriptor and read back. Where the parent is our own
//! cgroup the supervisor first moves to a leaf ([`supervisor_leaf`]).
//!
//! | module | purpose |
//! |---|---|
//! | [`place`] | where the cgroup will be |
//! | [`path`](mod@path) | the names of sandbox cgroups, and removal of stale ones |
//! | [`directory`] [`supervisor_leaf`] | creates the directories, and enables controllers for them |
//! | [`v1`] | the cgroups in hierarchies of version 1, for root |
//! | [`requests`] [`disk`] | limits as writes: data |
//! | [`limits`] | applies the writes or checks them in advance, and reports failures |
//! | [`exec`] | the cgroups of commands in addition to the agent |
//! | [`memory`] | early notification before memory runs out |
//! | [`pids`] | notification that forks fail |
//! | [`trial`] | whether limits hold here |
//! | [`usage`] [`sandbox_stats`] | usage since the start, and current usage |
//! | [`live`] | the running sandboxes |

mod directory;
mod disk;
pub mod exec;
pub mod limits;
pub mod live;
pub mod memory;
mod path;
pub mod pids;
mod place;
mod requests;
pub mod sandbox_stats;
mod supervisor_leaf;
pub mod trial;
pub mod usage;
mod v1;

pub use place::{CgroupPlace, SandboxCgroups};
pub use v1::V1Membership;

use crate::host::cgroup_parent::CgroupParent;
use crate::host::delegation::{MissingController, NO_HIERARCHY, diagnose_controller};
use crate::plan::agent::DegradedProtection;
use crate::spec::LimitsSpec;
use saggar_sys::error::{Code, Error, Result};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;
use v1::V1Cgroup;

/// The cgroups of one sandbox.
#[derive(Debug)]
pub struct SandboxCgroup {
    /// In the unified hierarchy: its path, and the directory for its processes.
    unified: Option<(PathBuf, OwnedFd)>,
    v1: Vec<V1Cgroup>,
}

impl SandboxCgroup {
    /// The directory for clone3's CLONE_INTO_CGROUP; `None` without a unified hierarchy.
    pub fn main(&self) -> Option<&OwnedFd> {
        self.unified.as_ref().map(|(_, main)| main)
    }

    /// The paths of the cgroups.
    pub fn paths(&self) -> SandboxCgroups {
        let unified = self.unified.as_ref().map(|(path, _)| path.clone());
        SandboxCgroups { unified, v1: self.v1.clone() }
    }

    /// Moves this process, which has one thread, into those cgroups that a clone cannot enter: until the result is dropped,
    /// its children are made there.
    ///
    /// # Errors
    /// [`Code::System`]: a cgroup cannot be entered.
    pub fn enter(&self) -> Result<V1Membership<'_>> {
        V1Membership::enter(&self.v1)
    }
}

/// Removes the cgroups of dead sandboxes that were left behind: those without a process, older than `age`, and not `known` to
/// run. Returns their number.
pub fn remove_stale(age: Duration, known: impl Fn(&str) -> bool) -> usize {
    v1::remove_stale(age, &known) + path::remove_stale(age, known)
}

/// The parts of its cgroup and its limits that a start would find missing; writes nothing. Whether a limit reads back
/// as written is known only after the write.
pub fn find_missing(place: &CgroupPlace, limits: &LimitsSpec) -> Vec<DegradedProtection> {
    let parent = place.unified.as_ref().map(|place| &place.parent);
    let refused = match parent {
        None => Some(NO_HIERARCHY.to_owned()),
        Some(parent) => parent
            .check_writable()
            .err()
            .map(|errno| format!("no cgroup can be made in {}: {}", parent.source().display(), errno.desc())),
    };
    let degraded_entry =
        |what: &str, why: &str| DegradedProtection { name: what.to_owned(), reason: why.to_owned() };
    let mut degraded: Vec<_> = refused.iter().map(|why| degraded_entry("cgroup", why)).collect();
    degraded.extend(limits::find_missing_limits(place, refused.as_deref(), limits));
    degraded
}

/// Why the place does not have the controller of the limit with this name, and what gives it those of all `limits`; `None` if
/// it has the controller.
pub fn diagnose(place: &CgroupPlace, limits: &LimitsSpec, name: &str) -> Option<MissingController> {
    let controller = requests::controller_of(name, limits);
    let parent = place.unified.as_ref().map(|place| &place.parent);
    let has_controller = |parent: &CgroupParent| {
        parent.check_writable().is_ok() && parent.controllers().iter().any(|one| one == controller)
    };
    if parent.is_some_and(has_controller) || place.v1.iter().any(|cgroup| cgroup.has(controller)) {
        return None;
    }
    Some(diagnose_controller(parent.map(CgroupParent::source), controller, &requests::controllers(limits)))
}

/// Why cgroups could not be created.
#[derive(Debug, Default)]
struct CreationFailures {
    /// That in the unified hierarchy.
    unified: Option<String>,
    v1: Vec<(V1Cgroup, String)>,
}

impl CreationFailures {
    /// Why no cgroup has this controller.
    fn reason(&self, controller: &str) -> Option<&str> {
        let v1 = self.v1.iter().find(|(cgroup, _)| cgroup.has(controller)).map(|(_, why)| why);
        v1.or(self.unified.as_ref()).map(String::as_str)
    }
}

/// The result of [`create`].
#[derive(Debug)]
pub struct CgroupCreation {
    /// The cgroups that could be created.
    pub cgroup: SandboxCgroup,
    /// Missing parts of the cgroup and of the limits.
    pub degraded: Vec<DegradedProtection>,
}

/// Creates the cgroups and sets the limits in them.
///
/// # Errors
/// [`Code::Unsupported`] if a required limit cannot hold; the watcher removes the directories created so far.
pub fn create(place: &CgroupPlace, limits: &LimitsSpec, required: bool) -> Result<CgroupCreation> {
    let (unified, mut refused) = (place.unified.as_ref(), Vec::new());
    let source = unified.map(|place| place.parent.source());
    let made = unified.ok_or_else(|| NO_HIERARCHY.to_owned()).and_then(|place| {
        directory::create_directory(place, &requests::controllers(limits), &mut refused)
            .map(|main| (place.path.clone(), main))
    });
    let mut failures = CreationFailures::default();
    let unified = match made {
        Ok(cgroup) => Some(cgroup),
        Err(why) if required => {
            return Err(Error::new(Code::Unsupported, format!("a cgroup is required: {why}"))
                .hint(diagnose_controller(source, "memory", &["memory"]).remedy));
        }
        Err(why) => {
            failures.unified = Some(why);
            None
        }
    };
    let mut degraded = Vec::new();
    if let Some(why) = &failures.unified {
        degraded.push(DegradedProtection { name: "cgroup".into(), reason: why.clone() });
    }
    let mut cgroup = SandboxCgroup { unified, v1: Vec::new() };
    for v1 in &place.v1 {
        match v1.create() {
            Ok(()) => cgroup.v1.push(v1.clone()),
            Err(error) => failures.v1.push((v1.clone(), error.to_string())),
        }
    }
    degraded.extend(limits::set((&cgroup, &failures), source, limits, refused)?);
    Ok(CgroupCreation { cgroup, degraded })
}
