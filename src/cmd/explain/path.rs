//! `--path`: explains what a path is inside the sandbox, and why.

use super::tree::{LookupFailure, PathLookup, PathNode, SandboxTree, hiding_cover};
use crate::app::prepare::PreparedSandbox;
use crate::spec::protect::WORK_TREE_NAMES;
use crate::spec::{MaskKind, MountKind, MountSpec};
use crate::text::one_line;
use serde::Serialize;
use std::fmt;
use std::path::Path;

/// The state of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PathState {
    /// The path does not exist.
    Absent,
    /// The inner user may not search a directory above it, or there are too many links.
    Unreachable,
    /// From the host, read-only.
    ReadOnly,
    /// From the host, writable as far as file permissions allow.
    ReadWrite,
    /// Private to the sandbox, in memory or from the kernel; gone when the sandbox ends.
    Private,
    /// Created by saggar.
    Made,
    /// Covered by an empty file or directory.
    Masked,
    /// Read-only in a writable tree.
    Protected,
}

/// The explanation for `--path`.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct PathExplanation {
    version: u32,
    /// The path as requested.
    path: String,
    /// The path with links resolved.
    resolved: String,
    state: PathState,
    /// Whether it exists at the start; `null` for files that the kernel creates dynamically.
    present: Option<bool>,
    /// Whether the inner user may read it; `null` if that cannot be predicted.
    readable: Option<bool>,
    /// Whether the inner user may write it.
    writable: Option<bool>,
    /// Whether a program could create it, if it is absent.
    creatable: bool,
    /// Whether it is pinned: it cannot be renamed or removed.
    pinned: bool,
    /// The file of the host that is visible there.
    host: Option<String>,
    /// The mount that contains it; `null` for the private root.
    mount: Option<MountSummary>,
    decided_by: PathDecision,
    /// The links that were followed.
    links: Vec<FollowedLink>,
}

/// A mount.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct MountSummary {
    path: String,
    what: String,
    layer: String,
}

/// The cause of a state.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct PathDecision {
    what: String,
    layer: String,
    why: String,
}

/// A link that was followed.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct FollowedLink {
    path: String,
    target: String,
}

/// The state and access of a path, with the cause.
struct PathVerdict {
    state: PathState,
    readable: Option<bool>,
    writable: Option<bool>,
    decided_by: PathDecision,
}

/// Explains `path`; a relative path is below the workspace.
pub(super) fn explain(prepared: &PreparedSandbox, path: &Path) -> PathExplanation {
    let tree = SandboxTree::new(prepared);
    let absolute = prepared.workspace.join(path);
    let found = tree.look_up(&absolute);
    let verdict = verdict(prepared, &tree, &found);
    let shown = |path: &Path| path.display().to_string();
    PathExplanation {
        version: 1,
        path: shown(path),
        resolved: shown(&found.path),
        state: verdict.state,
        present: match (&found.failure, &found.entry.node) {
            (Some(_), _) | (None, PathNode::Absent) => Some(false),
            (None, PathNode::Dynamic) => None,
            _ => Some(true),
        },
        readable: verdict.readable,
        writable: verdict.writable,
        creatable: matches!(&found.failure, Some(LookupFailure::Absent(at)) if *at == found.path)
            && is_creatable(prepared, &tree, &found.path),
        pinned: prepared.spec.pinned_paths.iter().any(|pin| pin.path == found.path)
            || tree.mounts().any(|mount| mount.destination == found.path)
            || tree.hidden().any(|(hidden, _)| *hidden == found.path),
        host: found.entry.host.as_ref().map(|host| shown(&host.path)),
        mount: found.entry.mount.map(|mount| MountSummary {
            path: shown(&mount.destination),
            what: super::report::describe_mount(mount),
            layer: mount.origin.to_string(),
        }),
        decided_by: verdict.decided_by,
        links: found
            .links
            .iter()
            .map(|(path, target)| FollowedLink { path: shown(path), target: shown(target) })
            .collect(),
    }
}

fn built_in(what: impl Into<String>, why: impl Into<String>) -> PathDecision {
    PathDecision { what: what.into(), layer: "built-in".to_owned(), why: why.into() }
}

fn by_mount(mount: &MountSpec) -> PathDecision {
    PathDecision {
        what: format!("the mount on {}", mount.destination.display()),
        layer: mount.origin.to_string(),
        why: mount.purpose.to_string(),
    }
}

fn verdict(prepared: &PreparedSandbox, tree: &SandboxTree<'_>, found: &PathLookup<'_>) -> PathVerdict {
    if let Some(stopped) = &found.failure {
        return failed_lookup_verdict(prepared, tree, found, stopped);
    }
    let path = &found.path;
    let decided = |state, readable, writable, decided_by| PathVerdict {
        state,
        readable: Some(readable),
        writable: Some(writable),
        decided_by,
    };
    let unpredictable =
        |state, writable, decided_by| PathVerdict { state, readable: None, writable, decided_by };
    if let Some(mask) = tree.mask(path) {
        let what = format!("the mask on /proc/{}", mask.name);
        return match mask.kind {
            MaskKind::ReadOnly => unpredictable(
                PathState::ReadOnly,
                Some(false),
                built_in(what, "it can be read and not written"),
            ),
            MaskKind::File => {
                unpredictable(PathState::Masked, None, built_in(what, "/dev/null lies over it"))
            }
            MaskKind::Directory => {
                decided(PathState::Masked, true, false, built_in(what, "an empty directory lies over it"))
            }
        };
    }
    if let Some((hidden, origin)) = tree.hidden_over(path) {
        let decided_by = PathDecision {
            what: format!("what hides {}", hidden.display()),
            layer: origin.to_string(),
            why: hiding_cover(&found.entry.node).to_owned(),
        };
        return decided(PathState::Masked, true, false, decided_by);
    }
    let Some(mount) = found.entry.mount else {
        let (state, why) = match tree.files().iter().any(|file| file == path) {
            true => (PathState::Made, "a file that saggar writes"),
            false => (PathState::Made, "a directory that holds mount points, links or files of saggar"),
        };
        return decided(state, true, false, built_in("the private root, which is read-only", why));
    };
    let of_host = mount.kind.host_source().is_some();
    if let Some(pin) = tree.pin_over(path).filter(|_| of_host && mount.writable) {
        let decided_by = PathDecision {
            what: format!("the pin on {}", pin.path.display()),
            layer: pin.origin.to_string(),
            why: pin.reason.to_string(),
        };
        let readable = found.entry.host.as_ref().is_none_or(|host| host.rights.read);
        return decided(PathState::Protected, readable, false, decided_by);
    }
    match (&mount.kind, &found.entry.host) {
        (_, Some(host)) => {
            let state = if mount.writable { PathState::ReadWrite } else { PathState::ReadOnly };
            decided(state, host.rights.read, mount.writable && host.rights.write, by_mount(mount))
        }
        (MountKind::Proc | MountKind::Devpts { .. }, None) if found.entry.node == PathNode::Dynamic => {
            unpredictable(PathState::Private, None, by_mount(mount))
        }
        (MountKind::System { .. } | MountKind::Named { .. } | MountKind::Overlay { .. }, None)
            if found.entry.node == PathNode::Dynamic =>
        {
            unpredictable(
                if mount.writable { PathState::ReadWrite } else { PathState::ReadOnly },
                None,
                by_mount(mount),
            )
        }
        (MountKind::System { .. } | MountKind::Named { .. } | MountKind::Overlay { .. }, None) => {
            let state = if mount.writable { PathState::ReadWrite } else { PathState::ReadOnly };
            decided(state, true, mount.writable, by_mount(mount))
        }
        (MountKind::OuterProc, None) => {
            let readable = (found.entry.node != PathNode::Dynamic).then_some(true);
            PathVerdict { readable, ..decided(PathState::ReadOnly, true, false, by_mount(mount)) }
        }
        (MountKind::Proc, None) => decided(PathState::Private, true, false, by_mount(mount)),
        (_, None) => decided(PathState::Private, true, mount.writable, by_mount(mount)),
    }
}

fn failed_lookup_verdict(
    prepared: &PreparedSandbox,
    tree: &SandboxTree<'_>,
    found: &PathLookup<'_>,
    stopped: &LookupFailure,
) -> PathVerdict {
    if let Some((hidden, origin)) = tree.hidden_over(&found.path) {
        let decided_by = PathDecision {
            what: format!("what hides {}", hidden.display()),
            layer: origin.to_string(),
            why: "nothing of it is inside".to_owned(),
        };
        return PathVerdict {
            state: PathState::Absent,
            readable: Some(false),
            writable: Some(false),
            decided_by,
        };
    }
    let (state, decided_by) = match stopped {
        LookupFailure::Absent(_) => {
            let relative = found.path.strip_prefix(&prepared.workspace).ok();
            let is_protected =
                relative.is_some_and(|r| WORK_TREE_NAMES.iter().any(|name| Path::new(name) == r));
            let decision = match found.entry.mount {
                _ if is_protected => built_in(
                    "the list of protected names",
                    "protected where it is; saggar makes nothing in a work tree",
                ),
                Some(mount) => {
                    PathDecision { why: "it has nothing of that name".to_owned(), ..by_mount(mount) }
                }
                None => built_in("the private root", "of the host nothing is inside but what explain lists"),
            };
            (PathState::Absent, decision)
        }
        LookupFailure::NotADirectory(at) => {
            (PathState::Absent, built_in("the lookup", format!("{} is not a directory", at.display())))
        }
        LookupFailure::NotSearchable(at) => {
            let why = format!("the mode of {} lets the inner user not search it", at.display());
            (PathState::Unreachable, built_in("file permissions", why))
        }
        LookupFailure::Loop => (PathState::Unreachable, built_in("the lookup", "more than 40 links")),
    };
    PathVerdict { state, readable: Some(false), writable: Some(false), decided_by }
}

/// Returns whether the parent directory of an absent path is writable.
fn is_creatable(prepared: &PreparedSandbox, tree: &SandboxTree<'_>, path: &Path) -> bool {
    let Some(parent) = path.parent() else { return false };
    let found = tree.look_up(parent);
    verdict(prepared, tree, &found).writable == Some(true)
}

impl fmt::Display for PathState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PathState::Absent => "absent",
            PathState::Unreachable => "unreachable",
            PathState::ReadOnly => "read-only",
            PathState::ReadWrite => "read-write",
            PathState::Private => "private to the sandbox",
            PathState::Made => "made by saggar",
            PathState::Masked => "masked",
            PathState::Protected => "protected, read-only",
        })
    }
}

impl fmt::Display for PathExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", one_line(&self.path), self.state)?;
        for FollowedLink { path, target } in &self.links {
            writeln!(f, "  link     {} -> {}", one_line(path), one_line(target))?;
        }
        if self.resolved != self.path {
            writeln!(f, "  leads to {}", one_line(&self.resolved))?;
        }
        if let Some(MountSummary { path, what, layer }) = &self.mount {
            writeln!(f, "  mount    {}: {} ({})", one_line(path), one_line(what), one_line(layer))?;
        }
        if let Some(host) = self.host.as_ref().filter(|host| **host != self.resolved) {
            writeln!(f, "  on host  {}", one_line(host))?;
        }
        let PathDecision { what, layer, why } = &self.decided_by;
        writeln!(f, "  because  {} ({}): {}", one_line(what), one_line(layer), one_line(why))?;
        let word = |right: Option<bool>| right.map_or("when asked", |right| if right { "yes" } else { "no" });
        if self.present == Some(false) {
            let made = if self.creatable { "yes" } else { "no" };
            return writeln!(f, "  could be made there: {made}");
        }
        let pinned = if self.pinned { ", held in its place" } else { "" };
        writeln!(f, "  readable: {}, writable: {}{pinned}", word(self.readable), word(self.writable))
    }
}
