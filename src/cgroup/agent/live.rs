//! The running sandboxes of this host (row KC-34).

use super::path::{MAIN, parse_name};
use super::search::search;
use super::usage::read_field;
use super::{SandboxCgroups, v1};
use crate::host::cgroup_parent::unified_mount;
use crate::id::SandboxId;
use std::fs::DirEntry;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

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
    let is_live = |entry: &DirEntry, path: &Path| {
        parse_name(&entry.file_name())
            .filter(|_| path.join(MAIN).is_dir())
            .filter(|_| owner.is_none_or(|owner| entry.metadata().is_ok_and(|meta| meta.uid() == owner)))
            .filter(|_| read_field(path, "cgroup.events", "populated") == Some(1))
    };
    let unified = unified_mount().map(|mount| search(Path::new(mount), &is_live)).unwrap_or_default();
    let live = unified.into_iter().map(|(id, path)| LiveSandbox {
        id,
        cgroups: SandboxCgroups { unified: Some(path), v1: Vec::new() },
    });
    let mut found: Vec<LiveSandbox> = live.collect();
    // Those of version 1 are root's.
    let v1 = if owner.is_none_or(|owner| owner == 0) { v1::find_running() } else { Vec::new() };
    for (id, cgroup) in v1 {
        match found.iter_mut().find(|one| one.id == id) {
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

impl LiveSandbox {
    /// Whether all of its processes are frozen.
    pub fn is_frozen(&self) -> bool {
        let unified = self.cgroups.unified.as_deref();
        unified.is_some_and(|cgroup| read_field(cgroup, "cgroup.events", "frozen") == Some(1))
    }
}
