//! The running sandboxes of this host (row KC-34).

use super::path::{MAIN, parse_name};
use super::usage::read_field;
use super::{SandboxCgroups, v1};
use crate::host::cgroup_parent::{process_cgroup, unified_mount};
use saggar_sys::id::SandboxId;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Maximum depth of the search for cgroups.
const MAX_DEPTH: usize = 16;

/// A running sandbox: its cgroups have processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveSandbox {
    /// The id of the sandbox.
    pub id: SandboxId,
    /// Its cgroups.
    pub cgroups: SandboxCgroups,
}

/// The running sandboxes of this host whose cgroups belong to `owner`, or all of them.
pub fn find_sandboxes(owner: Option<u32>) -> Vec<LiveSandbox> {
    let mut found = Vec::new();
    if let Some(mount) = unified_mount() {
        find_below(Path::new(mount), owner, MAX_DEPTH, &mut found);
    }
    // Those of version 1 are root's.
    let v1 = if owner.is_none_or(|owner| owner == 0) { v1::find_running() } else { Vec::new() };
    for (id, cgroup) in v1 {
        // A user's sandbox may have the same id.
        let unified = unified_of(cgroup.path());
        match found.iter_mut().find(|one| one.id == id && one.cgroups.unified == unified) {
            Some(sandbox) => sandbox.cgroups.v1.push(cgroup),
            None => {
                found.push(LiveSandbox { id, cgroups: SandboxCgroups { unified: None, v1: vec![cgroup] } })
            }
        }
    }
    found.sort_by(|one, other| {
        (one.id.as_str(), &one.cgroups.unified).cmp(&(other.id.as_str(), &other.cgroups.unified))
    });
    found
}

fn find_below(directory: &Path, owner: Option<u32>, depth: usize, found: &mut Vec<LiveSandbox>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let path = entry.path();
        let id = parse_name(&entry.file_name()).filter(|_| path.join(MAIN).is_dir());
        match id {
            Some(id) => {
                let is_owned =
                    owner.is_none_or(|owner| entry.metadata().is_ok_and(|meta| meta.uid() == owner));
                if is_owned && read_field(&path, "cgroup.events", "populated") == Some(1) {
                    let cgroups = SandboxCgroups { unified: Some(path), v1: Vec::new() };
                    found.push(LiveSandbox { id, cgroups });
                }
            }
            None if depth > 0 => find_below(&path, owner, depth - 1, found),
            None => {}
        }
    }
}

/// The cgroup in version 2 of the sandbox with this cgroup in version 1, by one of its processes.
fn unified_of(v1: &Path) -> Option<PathBuf> {
    let processes = fs::read_to_string(v1.join("cgroup.procs")).ok()?;
    let own = process_cgroup(unified_mount()?, processes.lines().next()?)?;
    Some(own.parent().filter(|_| own.ends_with(MAIN)).map_or_else(|| own.clone(), Path::to_owned))
}

impl LiveSandbox {
    /// Whether all of its processes are frozen.
    pub fn is_frozen(&self) -> bool {
        let unified = self.cgroups.unified.as_deref();
        unified.is_some_and(|cgroup| read_field(cgroup, "cgroup.events", "frozen") == Some(1))
    }
}
