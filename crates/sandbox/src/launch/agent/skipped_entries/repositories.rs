//! Finds the repositories whose work trees have hidden paths.

use saggar_sys::beneath::{self, FileKind};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Longest `.git` file, in bytes.
const MAX_LINK_SIZE: u64 = 8 << 10;

/// The directories with an index of a repository that has hidden paths in its work tree, and these paths relative to
/// the top of the work tree.
pub(super) fn repositories(
    root: BorrowedFd<'_>,
    workspace: &Path,
    hidden: &[PathBuf],
) -> io::Result<BTreeMap<PathBuf, Vec<PathBuf>>> {
    let mut found = BTreeMap::<_, Vec<_>>::new();
    for path in hidden.iter().filter(|path| !path.iter().any(|name| name == ".git")) {
        // git uses the nearest repository above a path.
        for top in path.ancestors().skip(1) {
            let Some(meta) = beneath::stat_beneath(root, top.join(".git"))? else { continue };
            if let Some(directory) = git_directory(root, workspace, top, meta.kind)
                && let Ok(below) = path.strip_prefix(top)
            {
                found.entry(directory).or_default().push(below.to_owned());
            }
            break;
        }
    }
    Ok(found)
}

/// The directory of the index, relative to the workspace: `.git` in `top`, or the one that a file of this name refers to
/// (gitrepository-layout(5)). `None` if that is outside the workspace.
fn git_directory(root: BorrowedFd<'_>, workspace: &Path, top: &Path, kind: FileKind) -> Option<PathBuf> {
    let link = top.join(".git");
    if kind != FileKind::File {
        return (kind == FileKind::Directory).then_some(link);
    }
    let mut text = Vec::new();
    beneath::open_file(root, &link).ok()?.0.take(MAX_LINK_SIZE).read_to_end(&mut text).ok()?;
    let target = Path::new(OsStr::from_bytes(text.strip_prefix(b"gitdir: ")?.trim_ascii_end()));
    let target = match target.is_absolute() {
        true => target.strip_prefix(workspace).ok()?.to_owned(),
        false => top.join(target),
    };
    let mut path = PathBuf::new();
    for part in target.components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::ParentDir if path.pop() => {}
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(path)
}
