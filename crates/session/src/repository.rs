//! The repository that a workspace belongs to (gitrepository-layout(5), git-worktree(1)): the work tree that contains a
//! directory, and the git directory of a linked worktree or a submodule, which is outside of its work tree.
//!
//! A file `.git` is content of the work tree: programs of an earlier sandbox can have written it. So it makes no directory
//! of the host visible that does not name this work tree in turn, by a file that those programs could not write.

use crate::protect::BoundedTree;
use crate::protect::git_variables;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// The longest pointer file that is read, in bytes.
const MAX_POINTER: u64 = 1 << 13;
/// The longest configuration that is read, in bytes.
const MAX_CONFIG: u64 = 1 << 16;
/// The most worktrees of a repository that are examined.
const MAX_WORKTREES: usize = 4096;

/// The git directory of a workspace that is a linked worktree or a submodule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutsideGitDirectory {
    /// What all worktrees of the repository share; of a submodule, its whole git directory. Without links.
    pub common: PathBuf,
    /// The part of a linked worktree, `worktrees/NAME`, relative to [`OutsideGitDirectory::common`].
    pub worktree: Option<PathBuf>,
    /// When the workspace's file `.git` changed last, in nanoseconds: no program can set that (stat(2), `st_ctim`).
    pub pointer_changed_ns: i128,
    /// Other work trees in it, as some layouts with a bare repository have them, relative to it.
    pub(crate) inner_work_trees: Vec<PathBuf>,
}

impl OutsideGitDirectory {
    /// The mounts that show it: path, whether it is writable, purpose. The parts of other worktrees are read-only, because
    /// git removes those of worktrees that it does not see (git-worktree(1), `prune`).
    pub fn mounts(&self, is_writable: bool) -> impl Iterator<Item = (PathBuf, bool, &'static str)> {
        let common = (self.common.clone(), is_writable, "the git directory of the repository");
        let parts = self.worktree.as_ref().filter(|_| is_writable).map(|own| {
            let others = self.common.join("worktrees");
            [
                (others, false, "the parts of other worktrees"),
                (self.common.join(own), true, "the part of this worktree"),
            ]
        });
        [common].into_iter().chain(parts.into_iter().flatten())
    }
}

/// A git directory outside of the workspace that is not known to belong to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnverifiedGitDirectory {
    /// The directory that `.git` names.
    pub directory: PathBuf,
    /// Why it is not accepted.
    pub reason: UnverifiedReason,
}

/// Why a git directory is not accepted as that of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnverifiedReason {
    /// `.git` is a symbolic link.
    Link,
    /// The path leads over a symbolic link.
    PathWithLink,
    /// It does not name the work tree.
    NamesAnother,
    /// It is that of a worktree at another path, which was moved or copied.
    MovedWorktree,
    /// Its `commondir` is not the directory that contains `worktrees`.
    CommonDirectory,
    /// The work tree belongs to another user.
    Owner,
    /// It has more worktrees than are examined.
    TooManyWorktrees,
    /// A sandbox that is running could have written `.git`.
    WritableByOthers,
}

impl fmt::Display for UnverifiedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UnverifiedReason::Link => ".git is a symbolic link",
            UnverifiedReason::PathWithLink => "its path leads over a symbolic link",
            UnverifiedReason::NamesAnother => "it does not name this work tree",
            UnverifiedReason::MovedWorktree => "it names another path as the worktree",
            UnverifiedReason::CommonDirectory => "its commondir names another repository",
            UnverifiedReason::Owner => "it belongs to another user than the work tree",
            UnverifiedReason::TooManyWorktrees => "it has too many worktrees",
            UnverifiedReason::WritableByOthers => "another sandbox, which runs, could have written .git",
        })
    }
}

/// The top of the work tree that contains `directory`, a path without links. Like git, the search ends at the border of a
/// file system (git(1), `GIT_DISCOVERY_ACROSS_FILESYSTEM`).
pub fn find_work_tree(directory: &Path) -> Option<WorkTree> {
    let device = BoundedTree::open(directory).ok()?.root_meta().ok()?.device();
    directory.ancestors().find_map(|above| {
        let tree = BoundedTree::open(above).ok()?;
        let meta = tree.root_meta().ok()?;
        let git = tree.stat(Path::new(".git")).ok()?;
        let is_repository = match () {
            () if git.is_directory() => is_git_directory(&tree, Path::new(".git")),
            () if git.is_file() => read_pointer(&tree, Path::new(".git"), "gitdir:").is_some(),
            () => git.is_link(),
        };
        let owners = [meta.owner().0, git.owner().0];
        (is_repository && meta.device() == device).then(|| WorkTree { top: above.to_owned(), owners })
    })
}

/// A work tree that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkTree {
    /// Its top.
    pub top: PathBuf,
    /// The owners (uid) of its top and of its `.git`.
    owners: [u32; 2],
}

impl WorkTree {
    /// Whether the top and `.git` belong to the owner of `directory`, so that no other user planted them.
    pub fn has_owner_of(&self, directory: &Path) -> bool {
        let owner = BoundedTree::open(directory).and_then(|tree| tree.root_meta()).map(|meta| meta.owner().0);
        owner.is_ok_and(|owner| self.owners == [owner; 2])
    }
}

/// Finds the git directory of `workspace`, a path without links, if it is outside of it and exists.
///
/// # Errors
/// [`UnverifiedGitDirectory`]: it is not known to belong to the workspace.
pub fn find_outside_git_directory(
    workspace: &Path,
) -> Result<Option<OutsideGitDirectory>, UnverifiedGitDirectory> {
    let Ok(tree) = BoundedTree::open(workspace) else { return Ok(None) };
    let dot_git = Path::new(".git");
    let Ok(meta) = tree.stat(dot_git) else { return Ok(None) };
    let target = match () {
        () if meta.is_link() => tree.read_link(dot_git).ok(),
        () if meta.is_file() => read_pointer(&tree, dot_git, "gitdir:"),
        () => None,
    };
    let Some(directory) = target.map(|target| plain_path(workspace, &target)) else { return Ok(None) };
    // A directory that does not exist is missing outside too.
    let Ok(git) = BoundedTree::open(&directory) else { return Ok(None) };
    if directory.starts_with(workspace) {
        return Ok(None);
    }
    let unverified = |reason| Err(UnverifiedGitDirectory { directory: directory.clone(), reason });
    if meta.is_link() {
        return unverified(UnverifiedReason::Link);
    }
    if !git.path().is_ok_and(|real| real == directory) {
        return unverified(UnverifiedReason::PathWithLink);
    }
    let (common, names, other) = match read_pointer(&git, Path::new("commondir"), "") {
        Some(common) if plain_path(&directory, &common) != directory => {
            let above = directory.parent().filter(|above| above.file_name() == Some(OsStr::new("worktrees")));
            match above.and_then(Path::parent) {
                Some(top) if top == plain_path(&directory, &common) => {}
                _ => return unverified(UnverifiedReason::CommonDirectory),
            }
            let pointer = read_pointer(&git, Path::new("gitdir"), "");
            let names = pointer.map(|pointer| plain_path(&directory, &pointer));
            (plain_path(&directory, &common), names, UnverifiedReason::MovedWorktree)
        }
        _ => {
            let names = submodule_work_tree(&git, &directory).map(|top| top.join(dot_git));
            (directory.clone(), names, UnverifiedReason::NamesAnother)
        }
    };
    if names.is_none_or(|names| names != workspace.join(dot_git)) {
        return unverified(other);
    }
    let Ok(shared) = BoundedTree::open(&common) else { return Ok(None) };
    if !is_git_directory(&shared, Path::new("")) {
        return Ok(None);
    }
    let owner = |tree: &BoundedTree| tree.root_meta().map(|meta| meta.owner().0).ok();
    if owner(&shared) != owner(&tree) || owner(&git) != owner(&tree) {
        return unverified(UnverifiedReason::Owner);
    }
    let Some(inner_work_trees) = inner_work_trees(&shared, &common, workspace) else {
        return unverified(UnverifiedReason::TooManyWorktrees);
    };
    let worktree = directory.strip_prefix(&common).ok().filter(|own| !own.as_os_str().is_empty());
    Ok(Some(OutsideGitDirectory {
        worktree: worktree.map(Path::to_owned),
        common,
        pointer_changed_ns: meta.changed_ns(),
        inner_work_trees,
    }))
}

/// The work trees of a repository that are in its git directory, without `own`. Returns `None` if it has too many.
fn inner_work_trees(tree: &BoundedTree, common: &Path, own: &Path) -> Option<Vec<PathBuf>> {
    let (members, whole) = tree.directories(Path::new("worktrees"), MAX_WORKTREES);
    let pointers = members.iter().filter_map(|member| {
        let pointer = read_pointer(tree, &member.join("gitdir"), "")?;
        Some(plain_path(&common.join(member), &pointer))
    });
    let tops = pointers.filter_map(|pointer| pointer.parent().map(Path::to_owned));
    let inner = tops
        .filter(|top| top != own)
        .filter_map(|top| top.strip_prefix(common).ok().map(Path::to_owned))
        .filter(|top| !top.as_os_str().is_empty());
    whole.then(|| inner.collect())
}

/// Whether `path` is a git directory by git's own criteria.
pub(crate) fn is_git_directory(tree: &BoundedTree, path: &Path) -> bool {
    ["HEAD", "objects", "refs"].iter().all(|mark| tree.stat(&path.join(mark)).is_ok())
}

/// The path in a file of one line after `prefix`.
fn read_pointer(tree: &BoundedTree, file: &Path, prefix: &str) -> Option<PathBuf> {
    let text = tree.read(file, MAX_POINTER)?;
    let path = text.strip_prefix(prefix.as_bytes())?.trim_ascii();
    (!path.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(path)))
}

/// The work tree that the configuration of a submodule names.
fn submodule_work_tree(git: &BoundedTree, directory: &Path) -> Option<PathBuf> {
    // `config.worktree` is read later (git-worktree(1), CONFIGURATION FILE).
    let files = ["config.worktree", "config"].into_iter();
    let mut values = files.filter_map(|name| {
        let variables = git_variables::parse_variables(&git.read(Path::new(name), MAX_CONFIG)?);
        variables.into_iter().rev().find(|(name, _)| name == "core.worktree")
    });
    values.next().map(|(_, value)| plain_path(directory, Path::new(&value)))
}

/// `path` from `base`, without `.` and `..`, which is what it leads to if no directory in it is a link.
fn plain_path(base: &Path, path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in base.join(path).components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}
