//! The repository that a workspace belongs to (gitrepository-layout(5), git-worktree(1)): the work tree that contains a
//! directory, and the git directory of a linked worktree or a submodule, which is outside of its work tree.
//!
//! A file `.git` is content of the work tree: programs of an earlier sandbox can have written it. So it makes no directory
//! of the host visible that does not name this work tree in turn, in a file that is read-only in every sandbox of that
//! repository.

use crate::protect::BoundedTree;
use crate::protect::git_variables;
use saggar_policy::protect::is_git_directory_entry;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// The longest pointer file that is read, in bytes.
const MAX_POINTER: u64 = 1 << 13;
/// The longest configuration that is read, in bytes.
const MAX_CONFIG: u64 = 1 << 16;
/// The most entries of a git directory that are examined, and the most that are no part of it.
const MAX_ENTRIES: usize = 4096;
const MAX_FOREIGN: usize = 64;

/// The git directory of a workspace that is a linked worktree or a submodule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutsideGitDirectory {
    /// What all worktrees of the repository share; of a submodule, its whole git directory. Without links.
    pub common: PathBuf,
    /// The part of a linked worktree, `worktrees/NAME`, relative to [`OutsideGitDirectory::common`].
    pub worktree: Option<PathBuf>,
    /// Entries that are no part of a git directory, such as the other work trees of a bare repository that contains
    /// its work trees; relative to [`OutsideGitDirectory::common`].
    pub foreign: Vec<PathBuf>,
    /// Whether the caller can write in it.
    pub is_writable: bool,
}

impl OutsideGitDirectory {
    /// Examines the git directory `common`, open as `tree`, of a workspace.
    fn examine(
        tree: &BoundedTree,
        common: PathBuf,
        worktree: Option<PathBuf>,
        workspace: &Path,
    ) -> Result<Self, UnverifiedReason> {
        if !is_git_directory(tree, Path::new("")) {
            return Err(UnverifiedReason::NotOne);
        }
        let foreign = foreign_entries(tree, &common, workspace).ok_or(UnverifiedReason::ForeignFiles)?;
        let is_writable = tree.check_writable(Path::new("")).is_ok();
        Ok(OutsideGitDirectory { common, worktree, foreign, is_writable })
    }

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
    /// The directory as that of a workspace, if it is a git directory by itself and the caller vouches for it.
    pub if_named: Option<OutsideGitDirectory>,
}

/// Why a git directory is not accepted as that of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnverifiedReason {
    /// `.git` is a symbolic link.
    Link,
    /// The path leads over a symbolic link.
    PathWithLink,
    /// It is no git directory.
    NotOne,
    /// It does not name the work tree.
    NamesAnother,
    /// It is that of a worktree at another path, which was moved or copied.
    MovedWorktree,
    /// Its `commondir` is not the directory that contains `worktrees`.
    CommonDirectory,
    /// The work tree belongs to another user.
    Owner,
    /// It contains more files that are no part of a git directory than are hidden.
    ForeignFiles,
    /// A sandbox that is running could have written `.git`.
    WritableByOthers,
}

impl fmt::Display for UnverifiedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UnverifiedReason::Link => ".git is a symbolic link",
            UnverifiedReason::PathWithLink => "its path leads over a symbolic link",
            UnverifiedReason::NotOne => "it is no git directory",
            UnverifiedReason::NamesAnother => "it does not name this work tree",
            UnverifiedReason::MovedWorktree => "it names another path as the worktree",
            UnverifiedReason::CommonDirectory => "its commondir names another repository",
            UnverifiedReason::Owner => "it belongs to another user than the work tree",
            UnverifiedReason::ForeignFiles => "it contains many other files",
            UnverifiedReason::WritableByOthers => "another sandbox, which runs, could have written .git",
        })
    }
}

/// What the file `.git` of a work tree names outside of it.
struct GitPointer {
    /// The directory, an absolute path without `.` and `..`.
    directory: PathBuf,
    /// The directory, open.
    git: BoundedTree,
    is_link: bool,
}

impl GitPointer {
    /// Returns `None` if `.git` is in the work tree, or names nothing: what does not exist is missing outside of a sandbox
    /// too.
    fn of(tree: &BoundedTree, workspace: &Path) -> Option<Self> {
        let name = Path::new(".git");
        let meta = tree.stat(name).ok()?;
        let target = match () {
            () if meta.is_link() => tree.read_link(name).ok(),
            () if meta.is_file() => read_pointer(tree, name, "gitdir:"),
            () => None,
        };
        let directory = plain_path(workspace, &target?);
        let git = BoundedTree::open(&directory).ok().filter(|_| !directory.starts_with(workspace))?;
        Some(GitPointer { directory, git, is_link: meta.is_link() })
    }

    fn verify(&self, tree: &BoundedTree, workspace: &Path) -> Result<OutsideGitDirectory, UnverifiedReason> {
        let GitPointer { directory, git, .. } = self;
        if self.is_link {
            return Err(UnverifiedReason::Link);
        }
        // Only then is a plain path what the kernel makes of it.
        if !git.path().is_ok_and(|real| real == *directory) {
            return Err(UnverifiedReason::PathWithLink);
        }
        let common =
            read_pointer(git, Path::new("commondir"), "").map(|common| plain_path(directory, &common));
        let dot_git = workspace.join(".git");
        let shared;
        let (shared, common, part) = match common.filter(|common| common != directory) {
            Some(common) => {
                let parts =
                    directory.parent().filter(|parts| parts.file_name() == Some(OsStr::new("worktrees")));
                if parts.and_then(Path::parent) != Some(&common) {
                    return Err(UnverifiedReason::CommonDirectory);
                }
                let named =
                    read_pointer(git, Path::new("gitdir"), "").map(|path| plain_path(directory, &path));
                if named.is_none_or(|named| named != dot_git) {
                    return Err(UnverifiedReason::MovedWorktree);
                }
                shared = BoundedTree::open(&common).map_err(|_| UnverifiedReason::NotOne)?;
                let part = directory.strip_prefix(&common).ok().map(Path::to_owned);
                (&shared, common, part)
            }
            None => {
                if submodule_work_tree(git, directory).is_none_or(|named| named != workspace) {
                    return Err(UnverifiedReason::NamesAnother);
                }
                (git, directory.clone(), None)
            }
        };
        let found = OutsideGitDirectory::examine(shared, common, part, workspace)?;
        let owner = |tree: &BoundedTree| tree.root_meta().map(|meta| meta.owner().0).ok();
        if [shared, git].iter().any(|git| owner(git) != owner(tree)) {
            return Err(UnverifiedReason::Owner);
        }
        Ok(found)
    }
}

/// Where the git directory of a workspace is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GitDirectoryPlace {
    /// In the workspace, or nowhere.
    Inside,
    /// Outside of the workspace.
    Outside(OutsideGitDirectory),
    /// Outside of the workspace, in a directory that is not known to belong to it.
    Unverified(UnverifiedGitDirectory),
}

/// Finds the git directory of `workspace`, a path without links.
pub fn find_git_directory(workspace: &Path) -> GitDirectoryPlace {
    let Ok(tree) = BoundedTree::open(workspace) else { return GitDirectoryPlace::Inside };
    let Some(pointer) = GitPointer::of(&tree, workspace) else { return GitDirectoryPlace::Inside };
    match pointer.verify(&tree, workspace) {
        Ok(git) => GitDirectoryPlace::Outside(git),
        Err(reason) => GitDirectoryPlace::Unverified(UnverifiedGitDirectory {
            directory: pointer.directory.clone(),
            reason,
            if_named: OutsideGitDirectory::examine(&pointer.git, pointer.directory.clone(), None, workspace)
                .ok(),
        }),
    }
}

/// The entries of a git directory that are no part of it, except `workspace` if that is in it. Returns `None` if there are
/// too many.
fn foreign_entries(tree: &BoundedTree, common: &Path, workspace: &Path) -> Option<Vec<PathBuf>> {
    let own = workspace.strip_prefix(common).ok();
    let contains_own = |path: &Path| own.is_some_and(|own| own.starts_with(path));
    let mut foreign = Vec::new();
    let mut directory = Some(PathBuf::new());
    while let Some(here) = directory.take() {
        let (names, whole) = tree.names(&here, MAX_ENTRIES);
        let is_top = here.as_os_str().is_empty();
        let others = names.into_iter().filter(|name| !(is_top && is_git_directory_entry(name)));
        for path in others.map(|name| here.join(name)) {
            match contains_own(&path) {
                true if own != Some(&path) => directory = Some(path),
                true => {}
                false => foreign.push(path),
            }
        }
        if !whole || foreign.len() > MAX_FOREIGN {
            return None;
        }
    }
    foreign.sort();
    Some(foreign)
}

/// The top of the work tree that contains `directory`, a path without links. Like git, the search ends at the border of a
/// file system, at a bare repository, and below the directories of `GIT_CEILING_DIRECTORIES` (git(1)).
pub fn find_work_tree(directory: &Path) -> Option<WorkTree> {
    let ceilings = std::env::var_os("GIT_CEILING_DIRECTORIES").unwrap_or_default();
    let ceilings: Vec<PathBuf> = std::env::split_paths(&ceilings).collect();
    let mut device = None;
    for above in directory.ancestors() {
        let tree = BoundedTree::open(above).ok()?;
        let meta = tree.root_meta().ok()?;
        if *device.get_or_insert(meta.device()) != meta.device()
            || above != directory && ceilings.iter().any(|ceiling| ceiling == above)
        {
            return None;
        }
        let is_bare = is_git_directory(&tree, Path::new(""));
        if is_bare && above.file_name() != Some(OsStr::new(".git")) {
            return None;
        }
        if let Ok(git) = tree.stat(Path::new(".git"))
            && leads_to_git_directory(&tree, above)
        {
            let owners = [meta.owner().0, git.owner().0];
            return Some(WorkTree { top: above.to_owned(), owners });
        }
    }
    None
}

/// Whether `.git` is a git directory, or names one.
fn leads_to_git_directory(tree: &BoundedTree, top: &Path) -> bool {
    let name = Path::new(".git");
    if tree.stat(name).is_ok_and(|meta| meta.is_directory()) {
        return is_git_directory(tree, name);
    }
    let target = read_pointer(tree, name, "gitdir:").or_else(|| tree.read_link(name).ok());
    let git = target.and_then(|target| BoundedTree::open(&plain_path(top, &target)).ok());
    git.is_some_and(|git| git.stat(Path::new("HEAD")).is_ok())
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
    /// Whether the top and `.git` belong to `owner`, so that no other user planted them.
    pub fn belongs_to(&self, owner: u32) -> bool {
        self.owners == [owner; 2]
    }
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

/// The work tree that the configuration of a submodule names. `config.worktree`, which may not exist and so not be
/// read-only, has no say.
fn submodule_work_tree(git: &BoundedTree, directory: &Path) -> Option<PathBuf> {
    let variables = git_variables::parse_variables(&git.read(Path::new("config"), MAX_CONFIG)?);
    let last = variables.into_iter().rev().find(|(name, _)| name == "core.worktree");
    last.map(|(_, value)| plain_path(directory, Path::new(&value)))
}

/// `path` from `base`, without `.` and `..`, which is what it leads to if no directory in it is a link.
pub fn plain_path(base: &Path, path: &Path) -> PathBuf {
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
