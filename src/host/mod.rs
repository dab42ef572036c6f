//! Facts about the kernel, the user and the file tree of this host.
//!
//! A start collects only the facts that the plan needs ([`HostFacts::survey`]), in a microsecond each. A
//! feature is detected by using it; `saggar doctor` tries all of them ([`probe`]).

pub mod cgroups;
pub mod delegation;
pub mod disk_bounds;
pub mod idmap_support;
pub mod kmsg;
pub mod mounts;
pub mod network_namespace;
pub mod peer;
pub mod probe;
pub mod processes;
#[cfg_attr(not(test), deny(clippy::disallowed_methods))]
pub mod protect;
mod user_limits;
#[cfg_attr(not(test), deny(clippy::disallowed_methods))]
pub mod workspace_scan;

pub use user_limits::UserLimits;

use crate::spec::{HostIdMapping, MountKind, SandboxProfile, SandboxSpec};
use crate::sys;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The type of a path on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathKind {
    /// A directory.
    Directory,
    /// Anything that is neither a directory nor a link.
    File,
    /// A symbolic link, with its target.
    Link(PathBuf),
}

/// Known facts about the host. They are data, so that a test can make a plan for any host.
#[derive(Debug, Clone, Default)]
pub struct HostFacts {
    /// The landlock ABI version; 0 without landlock.
    pub landlock_abi: u32,
    /// The paths that were checked and exist.
    pub paths: HashMap<PathBuf, PathKind>,
    /// Trees named in the spec whose owners cannot be mapped; checked only if root starts the sandbox.
    pub unmappable_trees: HashMap<PathBuf, idmap_support::UnmappableTree>,
    /// The kernel's limits for the caller.
    pub user_limits: UserLimits,
}

impl HostFacts {
    /// Collects the facts about everything that `spec` names.
    pub fn survey(spec: &SandboxSpec) -> Self {
        let mut paths = HashMap::new();
        let mut look = |path: &Path| {
            if let Some(kind) = path_kind(path) {
                paths.insert(path.to_owned(), kind);
            }
        };
        for mount in &spec.mounts {
            if let MountKind::System { source } = &mount.kind {
                look(source);
            }
            if let Some(source) = mount.kind.named_source() {
                look(source);
            }
        }
        for (path, _) in &spec.hidden_paths {
            look(path);
        }
        for mask in &spec.proc_masks {
            look(&Path::new("/proc").join(mask.name));
        }
        let mut unmapped = HashMap::new();
        if matches!(spec.identity.map, HostIdMapping::Block { .. }) {
            for mount in &spec.mounts {
                let Some(source) = mount.kind.named_source() else { continue };
                unmapped.extend(idmap_support::find_unmappable(source).map(|tree| (source.clone(), tree)));
            }
        }
        let quotas = UserLimits::read(spec.profile == SandboxProfile::Nesting);
        HostFacts {
            landlock_abi: sys::landlock::abi(),
            paths,
            unmappable_trees: unmapped,
            user_limits: quotas,
        }
    }

    /// The type of `path`, if it was checked and exists.
    pub fn path_kind(&self, path: &Path) -> Option<&PathKind> {
        self.paths.get(path)
    }
}

fn path_kind(path: &Path) -> Option<PathKind> {
    let kind = path.symlink_metadata().ok()?.file_type();
    if kind.is_symlink() {
        return path.read_link().ok().map(PathKind::Link);
    }
    Some(if kind.is_dir() { PathKind::Directory } else { PathKind::File })
}
