//! Symbolic links that an agent left: whether one leads out of the folder, or to a protected name. A program of the host
//! that reads or writes through such a link reads or writes something else than what it was given.

use super::overlay::is_whiteout;
use super::{Change, Trees};
use crate::session::beneath::{self, Kind};
use crate::session::workspace::Place;
use crate::spec::protect;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Component, Path, PathBuf};

/// How many links are followed, as the kernel does (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// Why the link that `change` leaves is not taken over unasked; `None` for one that stays among ordinary files, and for
/// what is no link.
pub(super) fn leads_out(change: &Change, trees: &Trees) -> Option<String> {
    let target = change.after.as_ref().filter(|after| after.meta.kind == Kind::Link)?;
    let Some(target) = &target.target else { return Some("it is a link that cannot be read".to_owned()) };
    let outside = || Some("it is a link that leads out of the folder".to_owned());
    let mut at = change.path.parent().unwrap_or(Path::new("")).to_owned();
    let mut rest: VecDeque<OsString> = VecDeque::new();
    if !prepend(&mut rest, target) {
        return outside();
    }
    let mut followed = 0;
    while let Some(part) = rest.pop_front() {
        if part == ".." {
            if !at.pop() {
                return outside();
            }
            continue;
        }
        at.push(&part);
        let Some(next) = link_at(&at, trees) else { continue };
        at.pop();
        followed += 1;
        if followed > MAX_LINKS || !prepend(&mut rest, &next) {
            return outside();
        }
    }
    let protected = protect::why(&at).is_some() || protect::is_on_the_way(&at);
    let by_policy = trees.origin.more.iter().any(|more| at.starts_with(more));
    (protected || by_policy).then(|| "it is a link that leads to what is protected".to_owned())
}

/// Puts the parts of a link's target before the rest of a path; false for one that begins at the root.
fn prepend(rest: &mut VecDeque<OsString>, target: &Path) -> bool {
    let parts: Vec<Component<'_>> = target.components().collect();
    for part in parts.into_iter().rev() {
        match part {
            Component::Normal(_) | Component::ParentDir => rest.push_front(part.as_os_str().to_owned()),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    true
}

/// The target of the link at `path`, which no link is above, as the folder will have it.
fn link_at(path: &Path, trees: &Trees) -> Option<PathBuf> {
    let (above, name) = (path.parent()?, Path::new(path.file_name()?));
    let look = |tree: &std::os::fd::OwnedFd| {
        let parent = beneath::directory(tree.as_fd(), above).ok()?;
        let meta = beneath::look(parent.as_fd(), name).ok()??;
        Some((parent, meta))
    };
    let read = |(parent, meta): (std::os::fd::OwnedFd, beneath::Meta)| {
        (meta.kind == Kind::Link).then(|| beneath::link(parent.as_fd(), name).ok()).flatten()
    };
    match look(&trees.left) {
        Some((parent, meta)) if is_whiteout(parent.as_fd(), name, &meta) => None,
        Some(found) => read(found),
        // What a copy has not may be in the folder still, and stay there.
        None => {
            let only_left = trees.origin.place == Place::Copy && trees.manifest.get(path).is_some();
            look(&trees.folder).filter(|_| !only_left).and_then(read)
        }
    }
}
