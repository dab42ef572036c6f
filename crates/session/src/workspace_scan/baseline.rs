//! The state of a workspace at the start of a sandbox, from which a later scan determines what the sandbox
//! planted. It is serializable, because the scan may be run by a later process if this one was killed.

use super::{OpenDirectory, ScanMeta, git_config, open_directory};
use saggar_sandbox::spec::PinnedPath;
use saggar_sandbox::state::base64_bytes::Base64Bytes;
use saggar_sys::file::{self, Resolve};
use saggar_sys::{Errno, SysResult};
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The most bytes of a file that are kept for restoring it.
const MAX_KEPT_BYTES: u64 = 64 << 10;
/// The most files that are kept.
const MAX_FILES: usize = 64;
/// The most directories that are opened to search for repositories, at most two levels deep.
const MAX_DIRECTORIES: usize = 48;
/// The most entries of each directory that are read.
const MAX_ENTRIES: usize = 1024;
/// The most repositories that are recorded.
const MAX_REPOSITORIES: usize = 64;

/// The recorded state of a workspace.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct WorkspaceBaseline {
    /// The clock of time stamps at the start, in nanoseconds: files created later have a later time stamp,
    /// or an equal one.
    pub since_ns: i128,
    /// Whether git's configuration is protected.
    pub git_config: bool,
    /// What of the tree programs can write, if it is a git directory and no work tree.
    #[serde(default)]
    pub git_directory: Option<GitDirectoryExtent>,
    /// Protected names that were missing. Links in their existing parent directories are resolved. Used
    /// only by the scan while programs run.
    #[serde(skip)]
    pub missing: Vec<Base64Bytes>,
    /// Protected names that the policy adds.
    pub policy_paths: Vec<Base64Bytes>,
    /// The pinned paths.
    pub pins: Vec<PinRecord>,
    /// The repositories at the top level of the workspace and up to two levels below.
    pub repositories: Vec<RepositoryRecord>,
}

/// The parts of a git directory that programs can write.
#[derive(Debug, Serialize, Deserialize)]
pub struct GitDirectoryExtent {
    /// The part of their worktree, `worktrees/NAME`; without one, all of it.
    pub worktree: Option<Base64Bytes>,
    /// Paths in it that are hidden, because they are no part of a git directory.
    pub foreign: Vec<Base64Bytes>,
}

impl GitDirectoryExtent {
    /// Whether `path` is the directory itself or the part of the worktree.
    pub(super) fn is_part(&self, path: &Path) -> bool {
        path.as_os_str().is_empty() || self.worktree.as_ref().is_some_and(|own| own.as_path() == path)
    }

    /// Retains the directories in `path` that are scanned.
    pub(super) fn retain_scanned(&self, path: &Path, directories: &mut Vec<OsString>) {
        if path.as_os_str().is_empty() {
            directories.retain(|name| name == "worktrees");
        } else if path == Path::new("worktrees")
            && let Some(own) = &self.worktree
        {
            directories.retain(|name| Some(name.as_os_str()) == own.as_path().file_name());
        }
    }
}

/// A protected path that existed. Programs cannot write it as long as it is the same file.
#[derive(Debug, Serialize, Deserialize)]
pub struct PinRecord {
    /// Its path, relative to the workspace.
    pub path: Base64Bytes,
    /// The identity of the file.
    pub identity: FileIdentity,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Its content, if it is a small regular file.
    pub content: Option<Base64Bytes>,
}

/// A git directory that existed.
#[derive(Debug, Serialize, Deserialize)]
pub struct RepositoryRecord {
    /// Its path, relative to the workspace.
    pub path: Base64Bytes,
    /// The identity of the directory.
    pub identity: FileIdentity,
    /// The identity of its hooks directory.
    pub hooks: Option<FileIdentity>,
    /// The contents of the files in `GIT_FILES`, by name.
    pub files: Vec<(String, Base64Bytes)>,
}

/// Device and inode number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileIdentity(pub u64, pub u64);

/// Files of a git directory whose earlier content is compared.
const GIT_FILES: [&str; 4] = ["config", "config.worktree", "rebase-merge/git-rebase-todo", "sequencer/todo"];

impl RepositoryRecord {
    /// The variables that the configuration `name` had.
    pub(super) fn config_entries(&self, name: &str) -> Vec<git_config::ConfigEntry> {
        self.file_content(name).and_then(|text| git_config::parse(text).ok()).unwrap_or_default()
    }

    /// The content that the file `name` had.
    pub(super) fn file_content(&self, name: &str) -> Option<&[u8]> {
        self.files.iter().find(|(known, _)| known == name).map(|(_, text)| text.0.as_slice())
    }
}

impl WorkspaceBaseline {
    /// Records the content of `root`. `pins` are protected paths below `workspace`.
    pub(super) fn record(&mut self, root: &OwnedFd, workspace: &Path, pins: &[PinnedPath]) {
        let here = OpenDirectory { path: Path::new(""), directory: root.as_fd() };
        for pin in pins.iter().filter(|pin| pin.read_only) {
            let Ok(path) = pin.path.strip_prefix(workspace) else { continue };
            let Ok(meta) = here.stat(path.as_os_str()) else { continue };
            let keep = meta.is_file() && self.pins.len() < MAX_FILES;
            let content = keep.then(|| read_small_file(root.as_fd(), path)).flatten().map(Base64Bytes);
            let (is, is_directory) = (meta.identity(), meta.is_dir());
            self.pins.push(PinRecord {
                path: Base64Bytes::from_path(path),
                identity: is,
                is_directory,
                content,
            });
        }
        if let Some(git) = &self.git_directory {
            let own = git.worktree.as_ref().map(|own| own.as_path().to_owned());
            for path in own.into_iter().chain([PathBuf::new()]) {
                self.record_git_directory(&here, &path);
            }
            return;
        }
        let mut left = MAX_DIRECTORIES;
        self.record_repositories(&here, 2, &mut left);
    }

    fn record_repositories(&mut self, here: &OpenDirectory<'_>, depth: usize, budget: &mut usize) {
        self.record_git_directory(here, Path::new(".git"));
        if depth == 0 || self.repositories.len() >= MAX_REPOSITORIES {
            return;
        }
        let Ok((_, directories)) = here.entries(MAX_ENTRIES) else { return };
        for name in directories.iter().filter(|name| *name != ".git" && *name != "node_modules") {
            let Some(rest) = budget.checked_sub(1) else { return };
            *budget = rest;
            if let Ok(directory) = open_directory(here.directory, Path::new(name)) {
                let path = here.path.join(name);
                self.record_repositories(
                    &OpenDirectory { path: &path, directory: directory.as_fd() },
                    depth - 1,
                    budget,
                );
            }
        }
    }

    fn record_git_directory(&mut self, here: &OpenDirectory<'_>, git: &Path) {
        let path = here.path.join(git);
        let git = if git.as_os_str().is_empty() { Path::new(".") } else { git };
        let Ok(git) = open_directory(here.directory, git) else { return };
        let Ok(meta) = ScanMeta::of(git.as_fd()) else { return };
        let inside = OpenDirectory { path: &path, directory: git.as_fd() };
        let hooks =
            inside.stat(OsStr::new("hooks")).ok().filter(ScanMeta::is_dir).map(|meta| meta.identity());
        let file = |name: &&str| {
            Some(((*name).to_owned(), Base64Bytes(read_small_file(git.as_fd(), Path::new(name))?)))
        };
        let files = GIT_FILES.iter().filter_map(file).collect();
        self.repositories.push(RepositoryRecord {
            path: Base64Bytes::from_path(&path),
            identity: meta.identity(),
            hooks,
            files,
        });
    }

    /// Whether `path` is still the pinned file or directory, which no program could write.
    pub(super) fn is_pinned(&self, path: &Path, meta: &ScanMeta) -> bool {
        let pin = self.pins.iter().find(|pin| pin.path.as_path() == path);
        pin.is_some_and(|pin| pin.identity == meta.identity())
    }

    /// Whether the small file `name` has the content that it had when it was pinned: the host saved it
    /// again, or a scan restored it.
    pub(super) fn has_pinned_content(&self, here: &OpenDirectory<'_>, name: &OsStr) -> bool {
        let path = here.path.join(name);
        let pin = self.pins.iter().find(|pin| pin.path.as_path() == path);
        let Some(before) = pin.and_then(|pin| pin.content.as_ref()) else { return false };
        read_small_file(here.directory, Path::new(name)).is_some_and(|now| now == before.0)
    }

    /// The record of the repository at `path`, if it is still the same directory.
    pub(super) fn repository_at(&self, path: &Path, meta: &ScanMeta) -> Option<&RepositoryRecord> {
        let known = self.repositories.iter().find(|known| known.path.as_path() == path);
        known.filter(|known| known.identity == meta.identity())
    }
}

/// Reads a small regular file.
fn read_small_file(at: BorrowedFd<'_>, path: &Path) -> Option<Vec<u8>> {
    super::read_bounded(at, path, MAX_KEPT_BYTES)
}

/// Opens the workspace directory.
///
/// # Errors
/// Those of open(2).
pub(super) fn open_workspace(workspace: &Path) -> SysResult<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY;
    match file::open(file::cwd(), &file::c_path(workspace)?, flags, 0, Resolve::Ordinary) {
        Err(Errno::EACCES) => file::open(
            file::cwd(),
            &file::c_path(workspace)?,
            libc::O_PATH | libc::O_DIRECTORY,
            0,
            Resolve::Ordinary,
        ),
        other => other,
    }
}
