//! What has appeared in a workspace under a protected name since the start (DECISIONS 5). What was there then is
//! pinned; a bind needs something to lie on, so what was not there can only be looked for.
//!
//! Two looks: [`Watched::names`] asks for the names that were missing, a few dozen calls, and is made while
//! programs run; [`Watched::everything`] walks the work tree for repositories too, and is made when all of
//! them are dead. Both go by descriptors, follow no link, open no file but a regular one, and are bounded.

mod git;
pub mod git_config;
mod walk;

use crate::spec::protect::{GIT_DIRECTORY_FILES, WORK_TREE};
use crate::sys::file::{self, Resolve};
use crate::sys::{Errno, SysResult};
use std::collections::BTreeSet;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Something that was not there at the start.
#[derive(Debug)]
pub struct Found {
    /// The directory that it is in.
    pub directory: OwnedFd,
    /// Its name there.
    pub name: OsString,
    /// Its path in the workspace.
    pub path: PathBuf,
    /// What it is, for people.
    pub why: String,
    /// What is to be done about it.
    pub remedy: Remedy,
}

/// What is to be done about something that appeared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// Out of the workspace with it.
    Move,
    /// The same, and a new file with this content takes its place.
    Replace(Vec<u8>),
    /// Whoever looks after the workspace is told.
    Report,
}

/// Takes what is found.
pub type Take<'a> = &'a mut dyn FnMut(Found);

/// What to look for in one workspace.
#[derive(Debug)]
pub struct Watched {
    root: OwnedFd,
    /// Protected names that were missing, each in a directory that has no link on its way, as far as it was
    /// there.
    missing: BTreeSet<PathBuf>,
    /// The git directory, when there was one: its own path; and the worktrees and submodules that it had.
    git: Option<PathBuf>,
    known: BTreeSet<PathBuf>,
    since: SystemTime,
}

const APPEARED: &str = "appeared under a protected name";

impl Watched {
    /// Remembers what `workspace` does not have; `more` are protected paths of the policy. Call it before any
    /// program runs, and after a start made what is missing.
    ///
    /// # Errors
    /// Those of open(2) for the workspace.
    pub fn new(workspace: &Path, git_config: bool, more: &[&Path]) -> SysResult<Self> {
        let path = c_path(workspace)?;
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        let root = file::open(file::cwd(), &path, flags, 0, Resolve::Ordinary)?;
        // The clock of time stamps: what is made from now on has a later one, or the same.
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_REALTIME_COARSE)?;
        let since = SystemTime::UNIX_EPOCH + Duration::from(now);
        let mut it = Watched { root, missing: BTreeSet::new(), git: None, known: BTreeSet::new(), since };
        for name in WORK_TREE.iter().map(Path::new).chain(more.iter().copied()) {
            it.note(workspace, name);
        }
        it.git = real(workspace, Path::new(".git")).filter(|git| workspace.join(git).is_dir());
        match it.git.clone() {
            Some(git) => it.note_git(workspace, &git, git_config),
            None => it.note(workspace, Path::new(".git")),
        }
        Ok(it)
    }

    /// Notes `name` when it is missing. A link that leads to nothing is pinned, and what it leads to missing.
    fn note(&mut self, workspace: &Path, name: &Path) {
        let (parent, last) = (name.parent().unwrap_or(Path::new("")), name.file_name().unwrap_or_default());
        let place = if parent.as_os_str().is_empty() || workspace.join(parent).symlink_metadata().is_err() {
            Some(name.to_owned())
        } else {
            real(workspace, parent).map(|parent| parent.join(last))
        };
        let Some(place) = place else { return };
        if workspace.join(&place).symlink_metadata().is_err() {
            self.missing.insert(place);
        } else if let Ok(target) = workspace.join(&place).read_link()
            && !workspace.join(&place).exists()
            && let (Some(above), Some(last)) = (place.parent(), target.file_name())
            && let Some(directory) = real(workspace, &above.join(target.parent().unwrap_or(Path::new(""))))
        {
            self.missing.insert(directory.join(last));
        }
    }

    fn note_git(&mut self, workspace: &Path, git: &Path, config: bool) {
        let mut directories = vec![git.to_owned()];
        for holder in ["worktrees", "modules"] {
            directories.extend(walk::below(&workspace.join(git.join(holder)), &git.join(holder)));
        }
        for directory in directories {
            for name in GIT_DIRECTORY_FILES {
                if config || !name.starts_with("config") {
                    self.note(workspace, &directory.join(name));
                }
            }
            self.known.insert(directory);
        }
    }

    /// Looks for the names that were missing, and for repositories that git's own directory has by now.
    pub fn names(&self, take: Take<'_>) {
        let here = Here { path: Path::new(""), directory: self.root.as_fd() };
        for name in self.missing.iter().filter(|name| *name != Path::new(".git")) {
            look_for(&here, name, take);
        }
        match &self.git {
            None if self.missing.contains(Path::new(".git")) => {
                git::new_repository(&here, OsStr::new(".git"), None, take);
            }
            // The pointer file of a worktree or a submodule was there, and is pinned.
            None => {}
            Some(git) => {
                if let Ok(directory) = open_directory(self.root.as_fd(), git) {
                    let here = Here { path: git, directory: directory.as_fd() };
                    git::new_worktrees(&here, &self.known, take);
                }
            }
        }
    }

    /// The same, and every repository in the work tree that was made, or changed, since the start. At most so
    /// many entries of it are looked at: false when there are more.
    pub fn everything(&self, entries: usize, take: Take<'_>) -> bool {
        self.names(take);
        walk::tree(self, entries, take)
    }
}

/// An open directory of the workspace and its path there.
#[derive(Debug, Clone, Copy)]
struct Here<'a> {
    path: &'a Path,
    directory: BorrowedFd<'a>,
}

impl Here<'_> {
    /// Something in it. A directory that cannot be held open any more is not looked at.
    fn found(&self, name: &OsStr, why: impl Into<String>, remedy: Remedy, take: Take<'_>) {
        if let Ok(directory) = self.directory.try_clone_to_owned() {
            let path = self.path.join(name);
            take(Found { directory, name: name.to_owned(), path, why: why.into(), remedy });
        }
    }

    /// What `name` is, itself and not what it leads to.
    fn look(&self, name: &OsStr) -> SysResult<Metadata> {
        let file = file::open(self.directory, &c_path(name)?, OPEN_PATH, 0, Resolve::BeneathNoLinks)?;
        // An O_PATH descriptor can be looked at, of whatever kind the file is (open(2)).
        File::from(file).metadata().map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO)))
    }

    /// Names and kinds, at most `limit`; whether there are more.
    fn entries(&self, limit: usize) -> (Vec<fs::DirEntry>, bool) {
        let path = format!("/proc/self/fd/{}", self.directory.as_raw_fd());
        let mut entries = fs::read_dir(path).into_iter().flatten().flatten();
        let some: Vec<_> = entries.by_ref().take(limit).collect();
        (some, entries.next().is_some())
    }
}

const OPEN_PATH: i32 = libc::O_PATH | libc::O_NOFOLLOW;

/// Asks for one name that was missing. A link on its way is new, and as good as the name itself.
fn look_for(root: &Here<'_>, name: &Path, take: Take<'_>) {
    let mut parts = name.iter().peekable();
    let (mut directory, mut path) = (None::<OwnedFd>, PathBuf::new());
    while let Some(part) = parts.next() {
        let here = Here { path: &path, directory: directory.as_ref().map_or(root.directory, AsFd::as_fd) };
        let is_last = parts.peek().is_none();
        match here.look(part) {
            Ok(_) if is_last => return here.found(part, APPEARED, Remedy::Move, take),
            Ok(meta) if meta.file_type().is_symlink() => {
                return here.found(part, "a link that leads to a protected name", Remedy::Move, take);
            }
            Ok(meta) if meta.is_dir() => {}
            Err(Errno::EACCES) => return here.found(part, "it cannot be looked at", Remedy::Report, take),
            _ => return,
        }
        match open_directory(here.directory, Path::new(part)) {
            Ok(next) => directory = Some(next),
            Err(_) => return,
        }
        path.push(part);
    }
}

fn open_directory(above: BorrowedFd<'_>, path: &Path) -> SysResult<OwnedFd> {
    file::open(above, &c_path(path)?, OPEN_PATH | libc::O_DIRECTORY, 0, Resolve::BeneathNoLinks)
}

fn c_path(path: impl AsRef<OsStr>) -> SysResult<CString> {
    CString::new(path.as_ref().as_bytes()).map_err(|_| Errno::EINVAL)
}

/// The place of `path` without links, when it is there and in the workspace.
fn real(workspace: &Path, path: &Path) -> Option<PathBuf> {
    let real = workspace.join(path).canonicalize().ok()?;
    real.strip_prefix(workspace).ok().map(Path::to_owned)
}

/// Whether something was changed since `since`: ctime cannot be set (inode(7)).
fn changed(meta: &Metadata, since: SystemTime) -> bool {
    let (Ok(seconds), Ok(nanos)) = (u64::try_from(meta.ctime()), u32::try_from(meta.ctime_nsec())) else {
        return true;
    };
    SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos) >= since
}

/// Whether something was made since `since`. Where the file system keeps no birth time, a change counts.
fn made(meta: &Metadata, since: SystemTime) -> bool {
    meta.created().map_or_else(|_| changed(meta, since), |at| at >= since)
}
