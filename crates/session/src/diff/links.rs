//! Symbolic links that an agent left: whether one leads out of the folder, or to a protected name. A program of the
//! host that uses such a link accesses another file than the one it was given.

use super::overlay::is_whiteout;
use super::{FileChange, WorkspaceTrees};
use crate::workspace_origin::ChangeStorage;
use saggar_policy::protect;
use saggar_sys::beneath::{self, FileKind};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Component, Path, PathBuf};

/// Most links that are followed, as in the kernel (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// Why the link of `change` is not applied without permission; `None` for a link to an unprotected name in the folder,
/// and for a file that is not a link.
pub(super) fn escape_reason(change: &FileChange, trees: &WorkspaceTrees) -> Option<String> {
    let target = change.after.as_ref().filter(|after| after.meta.kind == FileKind::Symlink)?;
    let Some(target) = &target.target else { return Some("it is a link that cannot be read".to_owned()) };
    let outside = || Some("it is a link that leads out of the folder".to_owned());
    let mut at = change.path.parent().unwrap_or(Path::new("")).to_owned();
    let mut rest: VecDeque<OsString> = VecDeque::new();
    if !prepend_target(&mut rest, target) {
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
        let Some(next) = link_target_at(&at, trees) else { continue };
        at.pop();
        followed += 1;
        if followed > MAX_LINKS || !prepend_target(&mut rest, &next) {
            return outside();
        }
    }
    let protected = protect::protection_reason(&at).is_some() || protect::is_above_protected(&at);
    let by_policy = trees.origin.protected_by_policy.iter().any(|entry| entry.covers(&at));
    (protected || by_policy).then(|| "it is a link that leads to a protected path".to_owned())
}

/// Puts the components of a link's target before the rest of a path; false for an absolute target.
fn prepend_target(rest: &mut VecDeque<OsString>, target: &Path) -> bool {
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

/// The target of the link at `path`, which has no link above it, as the folder will have it after the changes.
fn link_target_at(path: &Path, trees: &WorkspaceTrees) -> Option<PathBuf> {
    let (above, name) = (path.parent()?, Path::new(path.file_name()?));
    let look = |tree: &std::os::fd::OwnedFd| {
        let parent = beneath::open_directory(tree.as_fd(), above).ok()?;
        let meta = beneath::stat_beneath(parent.as_fd(), name).ok()??;
        Some((parent, meta))
    };
    let read = |(parent, meta): (std::os::fd::OwnedFd, beneath::FileMeta)| {
        (meta.kind == FileKind::Symlink).then(|| beneath::read_link(parent.as_fd(), name).ok()).flatten()
    };
    match look(&trees.changed_tree) {
        Some((parent, meta)) if is_whiteout(parent.as_fd(), name, &meta) => None,
        Some(found) => read(found),
        // A name that the copy does not have may exist in the folder and stay there.
        None => {
            let only_left = trees.origin.storage == ChangeStorage::Copy && trees.manifest.get(path).is_some();
            look(&trees.folder).filter(|_| !only_left).and_then(read)
        }
    }
}
