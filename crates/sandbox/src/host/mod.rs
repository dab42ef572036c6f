//! Facts about the kernel, the user and the file tree of this host.
//!
//! A start collects only the facts that the plan needs ([`HostFacts::survey`]), in a microsecond each. A
//! feature is detected by using it; `saggar doctor` tries all of them ([`probe`]).

pub mod bus_address;
pub mod cgroup_parent;
pub mod cgroups;
pub mod delegation;
pub mod disk_bounds;
pub mod git_index;
pub mod group_only;
pub mod idmap_support;
pub mod kernel_version;
pub mod kmsg;
pub mod mounts;
pub mod network_namespace;
pub use saggar_sys::peer;
pub mod probe;
pub mod proc_obstacle;
pub use saggar_sys::processes;
mod user_limits;

pub use user_limits::UserLimits;

use crate::spec::{HostIdMapping, MountKind, MountSpec, SandboxProfile, SandboxSpec, mount_order};
use std::collections::HashMap;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// The type of a path on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathKind {
    /// A directory.
    Directory,
    /// A file or a unix socket.
    File,
    /// A FIFO.
    Fifo,
    /// A character or block device.
    Device,
    /// A symbolic link, with its target.
    Link(PathBuf),
}

/// What is at a mount point in a tree of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountPoint {
    /// A directory.
    Directory,
    /// Anything that is neither a directory nor a link.
    File,
    /// Nothing.
    Missing,
    /// This part of its path is a symbolic link.
    Link(PathBuf),
}

/// Known facts about the host. They are data, so that a test can make a plan for any host.
#[derive(Debug, Clone, Default)]
pub struct HostFacts {
    /// The landlock ABI version; 0 without landlock.
    pub landlock_abi: u32,
    /// The paths that were checked and exist.
    pub paths: HashMap<PathBuf, PathKind>,
    /// The mount points of named mounts in trees of the host, by their paths in the sandbox. Those in a tree that does not
    /// exist yet are not among them.
    pub mount_points: HashMap<PathBuf, MountPoint>,
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
            if let Some(source) = mount.kind.host_source() {
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
        let mut facts = HostFacts {
            landlock_abi: saggar_sys::landlock::abi(),
            paths,
            mount_points: HashMap::new(),
            unmappable_trees: unmapped,
            user_limits: UserLimits::read(spec.profile == SandboxProfile::Nesting),
        };
        facts.mount_points = facts.find_mount_points(&spec.mounts);
        facts
    }

    /// Mounts of the system are in order, and need nothing of the kind until a layer names a tree.
    fn find_mount_points(&self, mounts: &[MountSpec]) -> HashMap<PathBuf, MountPoint> {
        let named = mounts.iter().position(|mount| mount.kind.named_source().is_some());
        let rest = named.unwrap_or(mounts.len())..mounts.len();
        let found = rest.filter_map(|index| {
            let (earlier, at) = (mounts.get(..index)?, &mounts.get(index)?.destination);
            let tree = mount_order::containing(earlier, at, |mount| self.has_mounted(mount))?;
            let source = tree.kind.host_source()?;
            self.path_kind(source)?;
            let below = at.strip_prefix(&tree.destination).ok()?;
            Some((at.clone(), mount_point(source, below)))
        });
        found.collect()
    }

    /// Whether this mount is made: those of the system are not where the host has nothing, or a link.
    pub fn has_mounted(&self, mount: &MountSpec) -> bool {
        match &mount.kind {
            MountKind::System { source } => !matches!(self.path_kind(source), None | Some(PathKind::Link(_))),
            _ => true,
        }
    }

    /// The type of `path`, if it was checked and exists.
    pub fn path_kind(&self, path: &Path) -> Option<&PathKind> {
        self.paths.get(path)
    }
}

/// What is at `below` in the tree at `source`. A mount follows no link.
fn mount_point(source: &Path, below: &Path) -> MountPoint {
    let mut path = source.to_owned();
    let mut kind = path_kind(&path);
    for part in below.components() {
        if kind != Some(PathKind::Directory) {
            return MountPoint::Missing;
        }
        path.push(part);
        kind = path_kind(&path);
        if let Some(PathKind::Link(_)) = kind {
            return MountPoint::Link(path);
        }
    }
    match kind {
        Some(PathKind::Directory) => MountPoint::Directory,
        Some(PathKind::File | PathKind::Fifo | PathKind::Device) => MountPoint::File,
        Some(PathKind::Link(_)) => MountPoint::Link(path),
        None => MountPoint::Missing,
    }
}

/// The type of a path; `None` if it does not exist or cannot be looked at.
pub fn path_kind(path: &Path) -> Option<PathKind> {
    let kind = path.symlink_metadata().ok()?.file_type();
    if kind.is_symlink() {
        return path.read_link().ok().map(PathKind::Link);
    }
    Some(if kind.is_dir() {
        PathKind::Directory
    } else if kind.is_fifo() {
        PathKind::Fifo
    } else if kind.is_char_device() || kind.is_block_device() {
        PathKind::Device
    } else {
        PathKind::File
    })
}
