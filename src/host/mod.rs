//! What this kernel, this user and this file tree are like.
//!
//! On the start path only what the plan needs is looked at ([`Host::survey`]), a microsecond each. Whether
//! something works is found by doing it; `saggar doctor` tries everything ([`probe`]).

#[cfg_attr(not(test), deny(clippy::disallowed_methods))]
pub mod appeared;
pub mod cgroups;
pub mod delegation;
pub mod kmsg;
pub mod network;
pub mod owners;
pub mod peer;
pub mod probe;
pub mod processes;
#[cfg_attr(not(test), deny(clippy::disallowed_methods))]
pub mod protect;
pub mod quota;
mod quotas;

pub use quotas::Quotas;

use crate::spec::{IdMap, MountKind, Profile, SandboxSpec};
use crate::sys;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// What a path of the host is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// Anything that is neither a directory nor a link.
    File,
    /// A symbolic link, and what it says.
    Link(PathBuf),
}

/// What is known of the host. As data, so that a plan can be made for any host in a test.
#[derive(Debug, Clone, Default)]
pub struct Host {
    /// The landlock ABI, 0 for none.
    pub landlock_abi: u32,
    /// Paths that were looked at and are there.
    pub paths: HashMap<PathBuf, Kind>,
    /// Trees that somebody named and whose owners cannot be mapped; looked at for root's sandboxes alone.
    pub unmapped: HashMap<PathBuf, owners::Unmapped>,
    /// What the kernel lets the caller have.
    pub quotas: Quotas,
}

impl Host {
    /// Looks at everything that `spec` names.
    pub fn survey(spec: &SandboxSpec) -> Self {
        let mut paths = HashMap::new();
        let mut look = |path: &Path| {
            if let Some(kind) = look_at(path) {
                paths.insert(path.to_owned(), kind);
            }
        };
        for mount in &spec.mounts {
            if let MountKind::System { source } = &mount.kind {
                look(source);
            }
            if let Some(source) = mount.kind.named() {
                look(source);
            }
        }
        for (path, _) in &spec.hidden {
            look(path);
        }
        for mask in &spec.proc_masks {
            look(&Path::new("/proc").join(mask.name));
        }
        let mut unmapped = HashMap::new();
        if matches!(spec.identity.map, IdMap::Block { .. }) {
            for mount in &spec.mounts {
                let Some(source) = mount.kind.named() else { continue };
                unmapped.extend(owners::unmapped(source).map(|tree| (source.clone(), tree)));
            }
        }
        let quotas = Quotas::read(spec.profile == Profile::Nesting);
        Host { landlock_abi: sys::landlock::abi(), paths, unmapped, quotas }
    }

    /// What is at `path`, if it was looked at and is there.
    pub fn kind(&self, path: &Path) -> Option<&Kind> {
        self.paths.get(path)
    }
}

fn look_at(path: &Path) -> Option<Kind> {
    let kind = path.symlink_metadata().ok()?.file_type();
    if kind.is_symlink() {
        return path.read_link().ok().map(Kind::Link);
    }
    Some(if kind.is_dir() { Kind::Directory } else { Kind::File })
}
