//! `--path`: what one path would be inside, and why.

use super::tree::{Found, Node, Stopped, Tree};
use crate::cmd::prepare::Prepared;
use crate::spec::protect::WORK_TREE;
use crate::spec::{Cover, Mount, MountKind};
use crate::text::line;
use serde::Serialize;
use std::fmt;
use std::path::Path;

/// What a path would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    /// Nothing is there.
    Absent,
    /// A directory above it is closed to the inner user, or its links never end.
    Unreachable,
    /// Of the host, and cannot be changed.
    ReadOnly,
    /// Of the host, and can be changed, as far as file permissions go.
    ReadWrite,
    /// The sandbox's own, in memory or from the kernel; gone at the end.
    Private,
    /// saggar writes it.
    Made,
    /// Something empty lies over it.
    Masked,
    /// In a writable tree, and cannot be changed all the same.
    Protected,
}

/// The answer to `--path`.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Answer {
    version: u32,
    /// What was asked for.
    path: String,
    /// Where that leads, links followed.
    resolved: String,
    state: State,
    /// Whether it is there at the start; `null` for what the kernel makes up as it goes.
    present: Option<bool>,
    /// Whether the inner user may read it; `null` when that cannot be known before.
    readable: Option<bool>,
    /// Whether the inner user may write it.
    writable: Option<bool>,
    /// Whether a program could make it, when it is not there.
    creatable: bool,
    /// Whether it is held in its place: it cannot be renamed or removed.
    pinned: bool,
    /// The file of the host that shows.
    host: Option<String>,
    /// The mount that it lies in; `null` for the private root.
    mount: Option<On>,
    decided_by: Decision,
    /// The links on the way.
    links: Vec<Followed>,
}

/// A mount.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct On {
    path: String,
    what: String,
    layer: String,
}

/// What makes it so.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Decision {
    what: String,
    layer: String,
    why: String,
}

/// A link that was followed.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Followed {
    path: String,
    target: String,
}

/// What is known of a path before it is said who decided it.
struct Verdict {
    state: State,
    readable: Option<bool>,
    writable: Option<bool>,
    decided_by: Decision,
}

/// Explains `path`, which is below the workspace when it is relative.
pub(super) fn explain(prepared: &Prepared, path: &Path) -> Answer {
    let tree = Tree::new(prepared);
    let absolute = prepared.workspace.join(path);
    let found = tree.look_up(&absolute);
    let verdict = verdict(prepared, &tree, &found);
    let shown = |path: &Path| path.display().to_string();
    Answer {
        version: 1,
        path: shown(path),
        resolved: shown(&found.path),
        state: verdict.state,
        present: match (&found.stopped, &found.place.node) {
            (Some(_), _) | (None, Node::Absent) => Some(false),
            (None, Node::Live) => None,
            _ => Some(true),
        },
        readable: verdict.readable,
        writable: verdict.writable,
        creatable: matches!(&found.stopped, Some(Stopped::Absent(at)) if *at == found.path)
            && can_be_made(prepared, &tree, &found.path),
        pinned: prepared.spec.pins.iter().any(|pin| pin.at == found.path)
            || tree.mounts().any(|mount| mount.at == found.path),
        host: found.place.host.as_ref().map(|host| shown(&host.path)),
        mount: found.place.mount.map(|mount| On {
            path: shown(&mount.at),
            what: super::report::what(mount),
            layer: mount.origin.to_string(),
        }),
        decided_by: verdict.decided_by,
        links: found
            .links
            .iter()
            .map(|(path, target)| Followed { path: shown(path), target: shown(target) })
            .collect(),
    }
}

fn built_in(what: impl Into<String>, why: impl Into<String>) -> Decision {
    Decision { what: what.into(), layer: "built-in".to_owned(), why: why.into() }
}

fn by_mount(mount: &Mount) -> Decision {
    Decision {
        what: format!("the mount on {}", mount.at.display()),
        layer: mount.origin.to_string(),
        why: mount.why.to_string(),
    }
}

fn verdict(prepared: &Prepared, tree: &Tree<'_>, found: &Found<'_>) -> Verdict {
    if let Some(stopped) = &found.stopped {
        return stopped_verdict(prepared, found, stopped);
    }
    let path = &found.path;
    let known = |state, readable, writable, decided_by| Verdict {
        state,
        readable: Some(readable),
        writable: Some(writable),
        decided_by,
    };
    let live = |state, writable, decided_by| Verdict { state, readable: None, writable, decided_by };
    if let Some(mask) = tree.mask(path) {
        let what = format!("the mask on /proc/{}", mask.name);
        return match mask.how {
            Cover::ReadOnly => {
                live(State::ReadOnly, Some(false), built_in(what, "it can be read and not written"))
            }
            Cover::File => live(State::Masked, None, built_in(what, "/dev/null lies over it")),
            Cover::Directory => {
                known(State::Masked, true, false, built_in(what, "an empty directory lies over it"))
            }
        };
    }
    let Some(mount) = found.place.mount else {
        let (state, why) = match tree.files().iter().any(|file| file == path) {
            true => (State::Made, "a file that saggar writes"),
            false => (State::Made, "a directory that holds mount points, links or files of saggar"),
        };
        return known(state, true, false, built_in("the private root, which is read-only", why));
    };
    let of_host = matches!(mount.kind, MountKind::System { .. }) || mount.kind.named().is_some();
    if let Some(pin) = tree.protection(path).filter(|_| of_host && mount.writable) {
        let decided_by = Decision {
            what: format!("the pin on {}", pin.at.display()),
            layer: pin.origin.to_string(),
            why: pin.why.to_string(),
        };
        let readable = found.place.host.as_ref().is_none_or(|host| host.rights.read);
        return known(State::Protected, readable, false, decided_by);
    }
    match (&mount.kind, &found.place.host) {
        (_, Some(host)) => {
            let state = if mount.writable { State::ReadWrite } else { State::ReadOnly };
            known(state, host.rights.read, mount.writable && host.rights.write, by_mount(mount))
        }
        (MountKind::Proc | MountKind::Devpts { .. }, None) if found.place.node == Node::Live => {
            live(State::Private, None, by_mount(mount))
        }
        (MountKind::System { .. } | MountKind::Named { .. } | MountKind::Overlay { .. }, None)
            if found.place.node == Node::Live =>
        {
            live(if mount.writable { State::ReadWrite } else { State::ReadOnly }, None, by_mount(mount))
        }
        (MountKind::System { .. } | MountKind::Named { .. } | MountKind::Overlay { .. }, None) => {
            let state = if mount.writable { State::ReadWrite } else { State::ReadOnly };
            known(state, true, mount.writable, by_mount(mount))
        }
        (MountKind::Proc, None) => known(State::Private, true, false, by_mount(mount)),
        (_, None) => known(State::Private, true, mount.writable, by_mount(mount)),
    }
}

fn stopped_verdict(prepared: &Prepared, found: &Found<'_>, stopped: &Stopped) -> Verdict {
    let (state, decided_by) = match stopped {
        Stopped::Absent(_) => {
            let relative = found.path.strip_prefix(&prepared.workspace).ok();
            let is_protected = relative.is_some_and(|r| WORK_TREE.iter().any(|name| Path::new(name) == r));
            let decision = match found.place.mount {
                _ if is_protected => built_in(
                    "the list of protected names",
                    "protected where it is; saggar makes nothing in a work tree",
                ),
                Some(mount) => Decision { why: "it has nothing of that name".to_owned(), ..by_mount(mount) },
                None => built_in("the private root", "of the host nothing is inside but what explain lists"),
            };
            (State::Absent, decision)
        }
        Stopped::NotADirectory(at) => {
            (State::Absent, built_in("the lookup", format!("{} is not a directory", at.display())))
        }
        Stopped::Closed(at) => {
            let why = format!("the mode of {} lets the inner user not search it", at.display());
            (State::Unreachable, built_in("file permissions", why))
        }
        Stopped::Loop => (State::Unreachable, built_in("the lookup", "more than 40 links")),
    };
    Verdict { state, readable: Some(false), writable: Some(false), decided_by }
}

/// Whether the directory of an absent path takes new names.
fn can_be_made(prepared: &Prepared, tree: &Tree<'_>, path: &Path) -> bool {
    let Some(parent) = path.parent() else { return false };
    let found = tree.look_up(parent);
    verdict(prepared, tree, &found).writable == Some(true)
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Absent => "absent",
            State::Unreachable => "unreachable",
            State::ReadOnly => "read-only",
            State::ReadWrite => "read-write",
            State::Private => "private to the sandbox",
            State::Made => "made by saggar",
            State::Masked => "masked",
            State::Protected => "protected, read-only",
        })
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", line(&self.path), self.state)?;
        for Followed { path, target } in &self.links {
            writeln!(f, "  link     {} -> {}", line(path), line(target))?;
        }
        if self.resolved != self.path {
            writeln!(f, "  leads to {}", line(&self.resolved))?;
        }
        if let Some(On { path, what, layer }) = &self.mount {
            writeln!(f, "  mount    {}: {} ({})", line(path), line(what), line(layer))?;
        }
        if let Some(host) = self.host.as_ref().filter(|host| **host != self.resolved) {
            writeln!(f, "  on host  {}", line(host))?;
        }
        let Decision { what, layer, why } = &self.decided_by;
        writeln!(f, "  because  {} ({}): {}", line(what), line(layer), line(why))?;
        let word = |right: Option<bool>| right.map_or("when asked", |right| if right { "yes" } else { "no" });
        if self.present == Some(false) {
            let made = if self.creatable { "yes" } else { "no" };
            return writeln!(f, "  could be made there: {made}");
        }
        let pinned = if self.pinned { ", held in its place" } else { "" };
        writeln!(f, "  readable: {}, writable: {}{pinned}", word(self.readable), word(self.writable))
    }
}
