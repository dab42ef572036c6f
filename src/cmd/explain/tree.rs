//! The file tree inside, as the plan would make it over the host's: what stands at a path, and what a lookup
//! of a path finds.
//!
//! The host may change between this look and a start, and what the kernel makes up as it goes (processes,
//! terminals) cannot be known before: such a path is there or not when a program looks.

use super::access::{self, Owners, Rights};
use crate::cmd::prepare::Prepared;
use crate::host::Kind;
use crate::plan::step::Step;
use crate::spec::{Cover, Mount, MountKind, Pin, ProcMask};
use std::collections::VecDeque;
use std::ffi::{CStr, OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// As many links as the kernel follows (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// What is at a path inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    Directory,
    File,
    /// A link, and what it says.
    Link(PathBuf),
    Absent,
    /// What the kernel makes up as it goes.
    Live,
}

/// A file of the host that shows inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OnHost {
    pub(super) path: PathBuf,
    pub(super) rights: Rights,
}

/// What stands at one path, links not followed.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) node: Node,
    /// The mount that it lies in; none is the private root.
    pub(super) mount: Option<&'a Mount>,
    pub(super) host: Option<OnHost>,
}

/// Where a lookup ended.
#[derive(Debug)]
pub(super) struct Found<'a> {
    /// The path without links; that of the component where the lookup failed, and what was left, when it did.
    pub(super) path: PathBuf,
    pub(super) place: Place<'a>,
    /// The links that were followed: where, and what they say.
    pub(super) links: Vec<(PathBuf, PathBuf)>,
    /// Why the lookup ended early.
    pub(super) stopped: Option<Stopped>,
}

/// Why a lookup ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stopped {
    /// Nothing is there.
    Absent(PathBuf),
    /// A component is no directory.
    NotADirectory(PathBuf),
    /// The inner user may not search this directory.
    Closed(PathBuf),
    /// More links than the kernel follows.
    Loop,
}

/// The file tree of a sandbox.
#[derive(Debug)]
pub(super) struct Tree<'a> {
    prepared: &'a Prepared,
    links: Vec<(PathBuf, PathBuf)>,
    files: Vec<PathBuf>,
}

impl<'a> Tree<'a> {
    pub(super) fn new(prepared: &'a Prepared) -> Self {
        let (mut links, mut files) = (Vec::new(), Vec::new());
        for step in prepared.plan.steps.as_slice() {
            match step {
                Step::Symlink { path, target } => links.push((inside(path), as_path(target).to_owned())),
                Step::WriteFile { path, .. } => files.push(inside(path)),
                _ => {}
            }
        }
        Tree { prepared, links, files }
    }

    /// Links that saggar makes: path, target.
    pub(super) fn links(&self) -> &[(PathBuf, PathBuf)] {
        &self.links
    }

    /// Files that saggar writes.
    pub(super) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The mounts that a start makes, in order: those of the system only where the host has them, and not as
    /// links.
    pub(super) fn mounts(&self) -> impl Iterator<Item = &'a Mount> {
        let host = &self.prepared.host;
        self.prepared.spec.mounts.iter().filter(|mount| match &mount.kind {
            MountKind::System { source } => matches!(host.kind(source), Some(Kind::Directory | Kind::File)),
            _ => true,
        })
    }

    /// The masks of `/proc` that count here.
    pub(super) fn masks(&self) -> impl Iterator<Item = &'a ProcMask> {
        let host = &self.prepared.host;
        self.prepared
            .spec
            .proc_masks
            .iter()
            .filter(|mask| host.kind(&Path::new("/proc").join(mask.name)).is_some())
    }

    /// The mask that lies on `path` or above it.
    pub(super) fn mask(&self, path: &Path) -> Option<&'a ProcMask> {
        self.masks().find(|mask| path.starts_with(Path::new("/proc").join(mask.name)))
    }

    /// The read-only pin on `path` or above it: the last one lies uppermost.
    pub(super) fn protection(&self, path: &Path) -> Option<&'a Pin> {
        self.prepared.spec.pins.iter().rev().find(|pin| pin.read_only && path.starts_with(&pin.at))
    }

    /// Looks `path` up, absolute, as a program inside would, its last component too.
    pub(super) fn look_up(&self, path: &Path) -> Found<'a> {
        let mut at = PathBuf::from("/");
        let mut left = parts(path);
        let mut links = Vec::new();
        while let Some(part) = left.pop_front() {
            if part == ".." {
                at.pop();
                continue;
            }
            let here = self.place(&at);
            let next = at.join(&part);
            let stopped = match &here.node {
                Node::File => Some(Stopped::NotADirectory(at.clone())),
                Node::Directory if here.host.as_ref().is_some_and(|host| !host.rights.search) => {
                    Some(Stopped::Closed(at.clone()))
                }
                _ => None,
            };
            if let Some(why) = stopped {
                return self.stop(rest(&next, &left), links, why);
            }
            match self.place(&next).node {
                Node::Link(_) if links.len() == MOST_LINKS => return self.stop(next, links, Stopped::Loop),
                Node::Link(target) => {
                    if target.is_absolute() {
                        at = PathBuf::from("/");
                    }
                    let mut new = parts(&target);
                    new.append(&mut left);
                    left = new;
                    links.push((next, target));
                }
                Node::Absent => return self.stop(rest(&next, &left), links, Stopped::Absent(next)),
                Node::Live => {
                    let path = rest(&next, &left);
                    let place = self.place(&next);
                    return Found { path, place, links, stopped: None };
                }
                Node::Directory | Node::File => at = next,
            }
        }
        let place = self.place(&at);
        Found { path: at, place, links, stopped: None }
    }

    fn stop(&self, path: PathBuf, links: Vec<(PathBuf, PathBuf)>, why: Stopped) -> Found<'a> {
        let mount = self.mount(&path);
        Found { path, place: Place { node: Node::Absent, mount, host: None }, links, stopped: Some(why) }
    }

    /// The uppermost mount at `path` or above it: the last that was made.
    fn mount(&self, path: &Path) -> Option<&'a Mount> {
        self.mounts().filter(|mount| path.starts_with(&mount.at)).last()
    }

    /// What is at `path`, links not followed.
    pub(super) fn place(&self, path: &Path) -> Place<'a> {
        let mount = self.mount(path);
        let none = |node| Place { node, mount, host: None };
        if let Some((_, target)) = self.links.iter().find(|(link, _)| link == path) {
            return none(Node::Link(target.clone()));
        }
        if self.files.iter().any(|file| file == path) {
            return none(Node::File);
        }
        if let Some(mask) = self.mask(path) {
            return none(masked(mask, path));
        }
        let Some(mount) = mount else { return none(self.made(path)) };
        let below = path.strip_prefix(&mount.at).unwrap_or(Path::new(""));
        match &mount.kind {
            MountKind::System { source } => self.on_host(mount, source, below, false),
            MountKind::Named { source } | MountKind::Overlay { lower: source, .. } => {
                self.on_host(mount, source, below, true)
            }
            _ if below.as_os_str().is_empty() => none(Node::Directory),
            MountKind::Tmpfs { .. } => none(self.made(path)),
            MountKind::Proc => none(live(below)),
            MountKind::Devpts { .. } => none(Node::Live),
            MountKind::Mqueue => none(Node::Absent),
        }
    }

    /// A directory of ours that holds mount points, links or files.
    fn made(&self, path: &Path) -> Node {
        let mut made =
            self.mounts().map(|mount| mount.at.as_path()).chain(self.files.iter().map(PathBuf::as_path));
        let links = &mut self.links.iter().map(|(link, _)| link.as_path());
        if made.any(|other| other.starts_with(path)) || links.any(|other| other.starts_with(path)) {
            Node::Directory
        } else {
            Node::Absent
        }
    }

    fn on_host(&self, mount: &'a Mount, source: &Path, below: &Path, named: bool) -> Place<'a> {
        let planned = self.prepared.planned.iter().find(|planned| planned.path == source && !source.exists());
        let root = match planned {
            Some(planned) => planned.original.as_deref(),
            None => Some(source),
        };
        let mount_at = Some(mount);
        let none = |node| Place { node, mount: mount_at, host: None };
        // An empty directory that a start makes.
        let Some(root) = root else {
            return none(if below.as_os_str().is_empty() { Node::Directory } else { Node::Absent });
        };
        let path: PathBuf = root.join(below).components().collect();
        if let Some(missing) =
            self.prepared.missing.iter().find(|missing| missing.path == mount.at.join(below))
        {
            return none(if missing.content.is_some() { Node::File } else { Node::Directory });
        }
        let meta = match path.symlink_metadata() {
            Ok(meta) => meta,
            // Who may not even look here may not inside either: its directory says so.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return none(Node::Live),
            Err(_) => return none(Node::Absent),
        };
        let node = match meta.file_type() {
            kind if kind.is_symlink() => match fs::read_link(&path) {
                Ok(target) => return none(Node::Link(target)),
                Err(_) => Node::Absent,
            },
            kind if kind.is_dir() => Node::Directory,
            _ => Node::File,
        };
        let root = root.metadata().ok();
        let mapped = named && !self.prepared.host.unmapped.contains_key(source);
        let owners = Owners::of(self.prepared.plan.block, mapped, root.as_ref());
        let rights = access::rights(&path, &meta, owners);
        Place { node, mount: mount_at, host: Some(OnHost { path, rights }) }
    }
}

fn masked(mask: &ProcMask, path: &Path) -> Node {
    let covered = path == Path::new("/proc").join(mask.name);
    match (mask.how, covered) {
        (Cover::File, true) => Node::File,
        (Cover::Directory | Cover::ReadOnly, true) => Node::Directory,
        (Cover::ReadOnly, false) => Node::Live,
        (_, false) => Node::Absent,
    }
}

/// What is below `/proc`: processes come and go, and what is no process is the same in every pid namespace.
fn live(below: &Path) -> Node {
    let first = below.components().next().map(|part| part.as_os_str().to_string_lossy().into_owned());
    match first {
        Some(name)
            if !name.bytes().all(|byte| byte.is_ascii_digit())
                && !Path::new("/proc").join(&name).exists() =>
        {
            Node::Absent
        }
        _ => Node::Live,
    }
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let part = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    path.components().filter_map(part).collect()
}

fn rest(path: &Path, left: &VecDeque<OsString>) -> PathBuf {
    left.iter().fold(path.to_owned(), |path, part| path.join(part))
}

fn inside(path: &CStr) -> PathBuf {
    Path::new("/").join(as_path(path))
}

fn as_path(path: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(path.to_bytes()))
}
