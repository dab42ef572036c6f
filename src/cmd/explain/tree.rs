//! The file tree inside, predicted from the plan and the host's files: the entry at a path, and path lookup.
//!
//! The host may change between the prediction and a start. Files that the kernel creates dynamically
//! (processes, terminals) cannot be predicted: whether such a path exists depends on the time of the lookup.

use super::access::{self, FileRights, TreeOwners};
use crate::app::prepare::PreparedSandbox;
use crate::host::PathKind;
use crate::plan::agent::step::AgentStep;
use crate::spec::{MaskKind, MountKind, MountSpec, Origin, PinnedPath, ProcMask};
use std::collections::VecDeque;
use std::ffi::{CStr, OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Maximum number of links that the kernel follows (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// The type of file at a path inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathNode {
    Directory,
    File,
    /// A symbolic link, with its target.
    Link(PathBuf),
    Absent,
    /// A file that the kernel creates dynamically.
    Dynamic,
}

/// A file of the host that is visible inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostFile {
    pub(super) path: PathBuf,
    pub(super) rights: FileRights,
}

/// The entry at a path, with links not followed.
#[derive(Debug)]
pub(super) struct PathEntry<'a> {
    pub(super) node: PathNode,
    /// The mount that contains it; `None` for the private root.
    pub(super) mount: Option<&'a MountSpec>,
    pub(super) host: Option<HostFile>,
}

/// The result of a lookup.
#[derive(Debug)]
pub(super) struct PathLookup<'a> {
    /// The resolved path; after a failure, the failed component and the unresolved rest.
    pub(super) path: PathBuf,
    pub(super) entry: PathEntry<'a>,
    /// The links that were followed: path and target.
    pub(super) links: Vec<(PathBuf, PathBuf)>,
    /// Why the lookup failed.
    pub(super) failure: Option<LookupFailure>,
}

/// Why a lookup failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LookupFailure {
    /// This path does not exist.
    Absent(PathBuf),
    /// This component is not a directory.
    NotADirectory(PathBuf),
    /// The inner user may not search this directory.
    NotSearchable(PathBuf),
    /// More links than the kernel follows.
    Loop,
}

/// The file tree of a sandbox.
#[derive(Debug)]
pub(super) struct SandboxTree<'a> {
    prepared: &'a PreparedSandbox,
    links: Vec<(PathBuf, PathBuf)>,
    files: Vec<PathBuf>,
}

impl<'a> SandboxTree<'a> {
    pub(super) fn new(prepared: &'a PreparedSandbox) -> Self {
        let (mut links, mut files) = (Vec::new(), Vec::new());
        for step in prepared.plan.steps.as_slice() {
            match step {
                AgentStep::Symlink { path, target } => {
                    links.push((absolute(path), as_path(target).to_owned()))
                }
                AgentStep::WriteFile { path, .. } => files.push(absolute(path)),
                _ => {}
            }
        }
        SandboxTree { prepared, links, files }
    }

    /// Links that saggar creates: path and target.
    pub(super) fn links(&self) -> &[(PathBuf, PathBuf)] {
        &self.links
    }

    /// Files that saggar writes.
    pub(super) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The mounts of a start, in order. System mounts are included only if the host has the source, and not as a
    /// link.
    pub(super) fn mounts(&self) -> impl Iterator<Item = &'a MountSpec> {
        self.prepared.spec.mounts.iter().filter(|mount| self.prepared.host.has_mounted(mount))
    }

    /// The masks of `/proc` whose files exist on this host.
    pub(super) fn masks(&self) -> impl Iterator<Item = &'a ProcMask> {
        let host = &self.prepared.host;
        self.prepared
            .spec
            .proc_masks
            .iter()
            .filter(|mask| host.path_kind(&Path::new("/proc").join(mask.name)).is_some())
    }

    /// The mask on `path` or above it.
    pub(super) fn mask(&self, path: &Path) -> Option<&'a ProcMask> {
        self.masks().find(|mask| path.starts_with(Path::new("/proc").join(mask.name)))
    }

    /// The paths that the policy hides and that exist on this host.
    pub(super) fn hidden(&self) -> impl Iterator<Item = &'a (PathBuf, Origin)> {
        self.prepared.hidden_paths()
    }

    /// The hidden path that is `path` or above it.
    pub(super) fn hidden_over(&self, path: &Path) -> Option<&'a (PathBuf, Origin)> {
        self.hidden().find(|(hidden, _)| path.starts_with(hidden))
    }

    /// The read-only pin on `path` or above it: the last one is topmost.
    pub(super) fn pin_over(&self, path: &Path) -> Option<&'a PinnedPath> {
        self.prepared.spec.pinned_paths.iter().rev().find(|pin| pin.read_only && path.starts_with(&pin.path))
    }

    /// Resolves an absolute `path` like a program inside, and follows a link in the last component too.
    pub(super) fn look_up(&self, path: &Path) -> PathLookup<'a> {
        let mut at = PathBuf::from("/");
        let mut left = components(path);
        let mut links = Vec::new();
        while let Some(part) = left.pop_front() {
            if part == ".." {
                at.pop();
                continue;
            }
            let here = self.entry_at(&at);
            let next = at.join(&part);
            let stopped = match &here.node {
                PathNode::File => Some(LookupFailure::NotADirectory(at.clone())),
                PathNode::Directory if here.host.as_ref().is_some_and(|host| !host.rights.search) => {
                    Some(LookupFailure::NotSearchable(at.clone()))
                }
                _ => None,
            };
            if let Some(why) = stopped {
                return self.fail(append_remaining(&next, &left), links, why);
            }
            match self.entry_at(&next).node {
                PathNode::Link(_) if links.len() == MAX_LINKS => {
                    return self.fail(next, links, LookupFailure::Loop);
                }
                PathNode::Link(target) => {
                    if target.is_absolute() {
                        at = PathBuf::from("/");
                    }
                    let mut new = components(&target);
                    new.append(&mut left);
                    left = new;
                    links.push((next, target));
                }
                PathNode::Absent => {
                    return self.fail(append_remaining(&next, &left), links, LookupFailure::Absent(next));
                }
                PathNode::Dynamic => {
                    let path = append_remaining(&next, &left);
                    let entry = self.entry_at(&next);
                    return PathLookup { path, entry, links, failure: None };
                }
                PathNode::Directory | PathNode::File => at = next,
            }
        }
        let entry = self.entry_at(&at);
        PathLookup { path: at, entry, links, failure: None }
    }

    fn fail(&self, path: PathBuf, links: Vec<(PathBuf, PathBuf)>, why: LookupFailure) -> PathLookup<'a> {
        let mount = self.mount(&path);
        PathLookup {
            path,
            entry: PathEntry { node: PathNode::Absent, mount, host: None },
            links,
            failure: Some(why),
        }
    }

    /// Returns the topmost mount at `path` or above it: the last in order.
    fn mount(&self, path: &Path) -> Option<&'a MountSpec> {
        self.mounts().filter(|mount| path.starts_with(&mount.destination)).last()
    }

    /// Returns the entry at `path`, with links not followed.
    pub(super) fn entry_at(&self, path: &Path) -> PathEntry<'a> {
        let mount = self.mount(path);
        let none = |node| PathEntry { node, mount, host: None };
        if let Some((_, target)) = self.links.iter().find(|(link, _)| link == path) {
            return none(PathNode::Link(target.clone()));
        }
        if self.files.iter().any(|file| file == path) {
            return none(PathNode::File);
        }
        if let Some(mask) = self.mask(path) {
            return none(masked_node(mask, path));
        }
        if let Some((hidden, _)) = self.hidden_over(path) {
            let is_directory = self.prepared.host.path_kind(hidden) == Some(&PathKind::Directory);
            return none(match (hidden == path, is_directory) {
                (true, true) => PathNode::Directory,
                (true, false) => PathNode::File,
                (false, _) => PathNode::Absent,
            });
        }
        let Some(mount) = mount else { return none(self.generated_node(path)) };
        let below = path.strip_prefix(&mount.destination).unwrap_or(Path::new(""));
        match &mount.kind {
            MountKind::System { source } => self.host_entry(mount, source, below, false),
            MountKind::Named { source } | MountKind::Overlay { lower: source, .. } => {
                self.host_entry(mount, source, below, true)
            }
            _ if below.as_os_str().is_empty() => none(PathNode::Directory),
            MountKind::Tmpfs { .. } => none(self.generated_node(path)),
            MountKind::Proc | MountKind::OuterProc => none(proc_node(below)),
            MountKind::Devpts { .. } => none(PathNode::Dynamic),
            MountKind::Mqueue => none(PathNode::Absent),
        }
    }

    /// Returns a directory if saggar creates one there for mount points, links or files.
    fn generated_node(&self, path: &Path) -> PathNode {
        let mut made = self
            .mounts()
            .map(|mount| mount.destination.as_path())
            .chain(self.files.iter().map(PathBuf::as_path));
        let links = &mut self.links.iter().map(|(link, _)| link.as_path());
        if made.any(|other| other.starts_with(path)) || links.any(|other| other.starts_with(path)) {
            PathNode::Directory
        } else {
            PathNode::Absent
        }
    }

    fn host_entry(&self, mount: &'a MountSpec, source: &Path, below: &Path, named: bool) -> PathEntry<'a> {
        let planned = self.prepared.planned.iter().find(|planned| planned.path == source && !source.exists());
        let root = match planned {
            Some(planned) => planned.original.as_deref(),
            None => Some(source),
        };
        let mount_at = Some(mount);
        let none = |node| PathEntry { node, mount: mount_at, host: None };
        // A start creates an empty directory.
        let Some(root) = root else {
            return none(if below.as_os_str().is_empty() { PathNode::Directory } else { PathNode::Absent });
        };
        let path: PathBuf = root.join(below).components().collect();
        if let Some(missing) =
            self.prepared.missing.iter().find(|missing| missing.path == mount.destination.join(below))
        {
            return none(if missing.content.is_some() { PathNode::File } else { PathNode::Directory });
        }
        let meta = match path.symlink_metadata() {
            Ok(meta) => meta,
            // The caller may not search a directory above it, whose own entry shows whether the inner user may.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return none(PathNode::Dynamic),
            Err(_) => return none(PathNode::Absent),
        };
        let node = match meta.file_type() {
            kind if kind.is_symlink() => match fs::read_link(&path) {
                Ok(target) => return none(PathNode::Link(target)),
                Err(_) => PathNode::Absent,
            },
            kind if kind.is_dir() => PathNode::Directory,
            _ => PathNode::File,
        };
        let root = root.metadata().ok();
        let mapped = named && !self.prepared.host.unmappable_trees.contains_key(source);
        let owners = TreeOwners::of(self.prepared.plan.block, mapped, root.as_ref());
        let rights = access::rights(&path, &meta, owners);
        PathEntry { node, mount: mount_at, host: Some(HostFile { path, rights }) }
    }
}

/// How a path is hidden.
pub(super) fn hiding_cover(node: &PathNode) -> &'static str {
    match node {
        PathNode::Directory => "an empty directory covers it, read-only",
        _ => "an empty file covers it, read-only",
    }
}

fn masked_node(mask: &ProcMask, path: &Path) -> PathNode {
    let covered = path == Path::new("/proc").join(mask.name);
    match (mask.kind, covered) {
        (MaskKind::File, true) => PathNode::File,
        (MaskKind::Directory | MaskKind::ReadOnly, true) => PathNode::Directory,
        (MaskKind::ReadOnly, false) => PathNode::Dynamic,
        (_, false) => PathNode::Absent,
    }
}

/// Predicts an entry below `/proc`: processes come and go, other entries are the same in every pid namespace.
fn proc_node(below: &Path) -> PathNode {
    let first = below.components().next().map(|part| part.as_os_str().to_string_lossy().into_owned());
    match first {
        Some(name)
            if !name.bytes().all(|byte| byte.is_ascii_digit())
                && !Path::new("/proc").join(&name).exists() =>
        {
            PathNode::Absent
        }
        _ => PathNode::Dynamic,
    }
}

fn components(path: &Path) -> VecDeque<OsString> {
    let part = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    path.components().filter_map(part).collect()
}

fn append_remaining(path: &Path, left: &VecDeque<OsString>) -> PathBuf {
    left.iter().fold(path.to_owned(), |path, part| path.join(part))
}

fn absolute(path: &CStr) -> PathBuf {
    Path::new("/").join(as_path(path))
}

fn as_path(path: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(path.to_bytes()))
}
