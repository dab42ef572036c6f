//! The cgroup of an agent's sandbox. It is created below our own cgroup and limited; the clone enters it directly;
//! [`crate::launch::agent::cleanup`] removes it with everything in it.
//!
//! ```text
//! <own>/saggar-<id>        the limits
//! <own>/saggar-<id>/main   the processes, created there; the cgroup namespace is rooted here
//! <own>/saggar-<id>/exec-N a command that a server runs in addition to an agent ([`exec`])
//! ```
//! pid 1 is in `main` too. For a cgroup of its own, pid 1 or the first program would have to be moved at the start, and
//! a move waits for every CPU of the host, for milliseconds (percpu_down_write of cgroup_threadgroup_rwsem). The
//! namespace is rooted in the cgroup into which the clone puts pid 1, so a mount of it can never show the cgroup with
//! the limits.
//!
//! saggar changes no cgroup outside its own subtree, which /proc/self/cgroup names, and enables there only the
//! controllers that limits need. Every write goes through the directory's descriptor and is read back. In a delegated
//! subtree the supervisor first moves to a leaf ([`supervisor_leaf`]).
//!
//! | module | purpose |
//! |---|---|
//! | [`path`](mod@path) | the paths of sandbox cgroups, and removal of stale ones |
//! | [`directory`] [`supervisor_leaf`] | creates the directories, and enables controllers for them |
//! | [`requests`] [`disk`] | limits as writes: data |
//! | [`limits`] | applies the writes or checks them in advance, and reports failures |
//! | [`exec`] | the cgroups of commands in addition to the agent |
//! | [`memory`] | early notification before memory runs out |
//! | [`freeze`] | freezes the whole sandbox |
//! | [`usage`] [`live`] | usage of a sandbox, and of all running sandboxes |

mod directory;
mod disk;
pub mod exec;
pub mod freeze;
pub mod limits;
pub mod live;
pub mod memory;
mod path;
mod requests;
mod supervisor_leaf;
pub mod usage;

pub use path::{can_create, cgroup_path, remove_stale};

use crate::error::{Code, Error, Result};
use crate::host::delegation::diagnose_controller;
use crate::plan::agent::DegradedProtection;
use crate::spec::LimitsSpec;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The cgroup of one sandbox.
#[derive(Debug)]
pub struct SandboxCgroup {
    path: PathBuf,
    main: OwnedFd,
}

impl SandboxCgroup {
    /// The directory for clone3's CLONE_INTO_CGROUP.
    pub fn main(&self) -> &OwnedFd {
        &self.main
    }
}

const NO_HIERARCHY: &str = "this host has no cgroup v2 hierarchy";

/// The parts of its cgroup and its limits that a start would find missing; writes nothing. Whether a limit reads back
/// as written is known only after the write.
pub fn find_missing(path: Option<&Path>, limits: &LimitsSpec) -> Vec<DegradedProtection> {
    let own = path.and_then(Path::parent);
    let refused = match own {
        None => Some(NO_HIERARCHY.to_owned()),
        Some(own) => path::check_create_in(own)
            .err()
            .map(|errno| format!("no cgroup can be made in {}: {}", own.display(), errno.desc())),
    };
    let degraded_entry =
        |what: &str, why: &str| DegradedProtection { name: what.to_owned(), reason: why.to_owned() };
    let mut degraded: Vec<_> = refused.iter().map(|why| degraded_entry("cgroup", why)).collect();
    degraded.extend(limits::find_missing_limits(own, refused.as_deref(), limits));
    degraded
}

/// The result of [`create`].
#[derive(Debug)]
pub struct CgroupCreation {
    /// The cgroup, if one can be created.
    pub cgroup: Option<SandboxCgroup>,
    /// Missing parts of the cgroup and of the limits.
    pub degraded: Vec<DegradedProtection>,
}

/// Creates the cgroup at `path` and sets the limits in it.
///
/// # Errors
/// [`Code::Unsupported`] if a required limit cannot hold; the watcher removes the directories created so far.
pub fn create(path: Option<&Path>, limits: &LimitsSpec, required: bool) -> Result<CgroupCreation> {
    let (parent, mut refused) = (path.and_then(Path::parent), Vec::new());
    let created = path.ok_or_else(|| NO_HIERARCHY.to_owned());
    let made = created
        .and_then(|path| directory::create_directory(path, &limits::controllers(limits), &mut refused));
    let (cgroup, why) = match made {
        Ok(cgroup) => (Some(cgroup), String::new()),
        Err(why) if required => {
            return Err(Error::new(Code::Unsupported, format!("a cgroup is required: {why}"))
                .hint(diagnose_controller(parent, "memory", &["memory"]).remedy));
        }
        Err(why) => (None, why),
    };
    let mut degraded = Vec::new();
    if cgroup.is_none() {
        degraded.push(DegradedProtection { name: "cgroup".into(), reason: why.clone() });
    }
    degraded.extend(limits::set((cgroup.as_ref(), &why), parent, limits, refused)?);
    Ok(CgroupCreation { cgroup, degraded })
}
