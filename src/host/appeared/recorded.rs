//! What a workspace had when a sandbox started: enough to tell afterwards what the sandbox planted, by this process or,
//! when that was killed, by a later one. So it can be written down.

use super::{Here, Meta, c_path, config, open_directory};
use crate::spec::Pin;
use crate::sys::file::{self, Resolve};
use crate::sys::{Errno, SysResult};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// How much of a file is kept, to be restored.
const KEPT: u64 = 64 << 10;
/// How many files are kept.
const FILES: usize = 64;
/// How many directories are opened to look for repositories in them, at most two levels down.
const LOOKED_INTO: usize = 48;
/// How many entries of each are read.
const ENTRIES: usize = 1024;
/// How many repositories are noted.
const REPOSITORIES: usize = 64;

/// What there was.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Recorded {
    /// The clock of time stamps, in nanoseconds: what is made from then on has a later one, or the same.
    pub since: i128,
    /// Whether git's configuration is protected.
    pub git_config: bool,
    /// Protected names that were missing, each in a directory that has no link on its way, as far as it was there. Only
    /// the look while programs run needs them.
    #[serde(skip)]
    pub missing: Vec<Bytes>,
    /// Protected names that the policy adds.
    pub more: Vec<Bytes>,
    /// What is pinned.
    pub pins: Vec<Pinned>,
    /// The repositories at the top of the workspace and up to two directories down.
    pub repositories: Vec<Repository>,
}

/// A protected path that was there, and that programs cannot write as long as it stays what it was.
#[derive(Debug, Serialize, Deserialize)]
pub struct Pinned {
    /// Its path in the workspace.
    pub path: Bytes,
    /// Its file.
    pub is: Identity,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// What was in it, when it is a small file.
    pub content: Option<Bytes>,
}

/// A git directory that was there.
#[derive(Debug, Serialize, Deserialize)]
pub struct Repository {
    /// Its path in the workspace.
    pub path: Bytes,
    /// Its directory.
    pub is: Identity,
    /// Its directory of hooks.
    pub hooks: Option<Identity>,
    /// What was in these files of it.
    pub files: Vec<(String, Bytes)>,
}

/// Device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity(pub u64, pub u64);

/// Files of a git directory whose earlier content counts.
const FILES_OF_GIT: [&str; 4] =
    ["config", "config.worktree", "rebase-merge/git-rebase-todo", "sequencer/todo"];

impl Repository {
    /// The variables that the configuration `name` had.
    pub(super) fn entries(&self, name: &str) -> Vec<config::Entry> {
        self.text(name).and_then(|text| config::parse(text).ok()).unwrap_or_default()
    }

    /// What was in the file `name`.
    pub(super) fn text(&self, name: &str) -> Option<&[u8]> {
        self.files.iter().find(|(known, _)| known == name).map(|(_, text)| text.0.as_slice())
    }
}

impl Recorded {
    /// Notes what is in `root`; `pins` are protected paths below `workspace`.
    pub(super) fn note(&mut self, root: &OwnedFd, workspace: &Path, pins: &[Pin]) {
        let here = Here { path: Path::new(""), directory: root.as_fd() };
        for pin in pins.iter().filter(|pin| pin.read_only) {
            let Ok(path) = pin.at.strip_prefix(workspace) else { continue };
            let Ok(meta) = here.look(path.as_os_str()) else { continue };
            let keep = meta.is_file() && self.pins.len() < FILES;
            let content = keep.then(|| read(root.as_fd(), path)).flatten().map(Bytes);
            let (is, is_directory) = (meta.identity(), meta.is_dir());
            self.pins.push(Pinned { path: Bytes::of(path), is, is_directory, content });
        }
        let mut left = LOOKED_INTO;
        self.repositories_in(&here, 2, &mut left);
    }

    fn repositories_in(&mut self, here: &Here<'_>, depth: usize, left: &mut usize) {
        self.repository(here);
        if depth == 0 || self.repositories.len() >= REPOSITORIES {
            return;
        }
        let Ok((_, directories)) = here.entries(ENTRIES) else { return };
        for name in directories.iter().filter(|name| *name != ".git" && *name != "node_modules") {
            let Some(rest) = left.checked_sub(1) else { return };
            *left = rest;
            if let Ok(directory) = open_directory(here.directory, Path::new(name)) {
                let path = here.path.join(name);
                self.repositories_in(&Here { path: &path, directory: directory.as_fd() }, depth - 1, left);
            }
        }
    }

    fn repository(&mut self, here: &Here<'_>) {
        let Ok(git) = open_directory(here.directory, Path::new(".git")) else { return };
        let Ok(meta) = Meta::of(git.as_fd()) else { return };
        let path = here.path.join(".git");
        let inside = Here { path: &path, directory: git.as_fd() };
        let hooks = inside.look(OsStr::new("hooks")).ok().filter(Meta::is_dir).map(|meta| meta.identity());
        let file = |name: &&str| Some(((*name).to_owned(), Bytes(read(git.as_fd(), Path::new(name))?)));
        let files = FILES_OF_GIT.iter().filter_map(file).collect();
        self.repositories.push(Repository { path: Bytes::of(&path), is: meta.identity(), hooks, files });
    }

    /// Whether `path` is still the file or directory that is pinned there: then no program could write it.
    pub(super) fn is_pinned(&self, path: &Path, meta: &Meta) -> bool {
        let pin = self.pins.iter().find(|pin| pin.path.as_path() == path);
        pin.is_some_and(|pin| pin.is == meta.identity())
    }

    /// Whether the small file `name` has the content that it had when it was pinned: the host saved it anew, or the look
    /// has restored it.
    pub(super) fn has_its_content(&self, here: &Here<'_>, name: &OsStr) -> bool {
        let path = here.path.join(name);
        let pin = self.pins.iter().find(|pin| pin.path.as_path() == path);
        let Some(before) = pin.and_then(|pin| pin.content.as_ref()) else { return false };
        read(here.directory, Path::new(name)).is_some_and(|now| now == before.0)
    }

    /// The repository that was at `path`, when this is still it.
    pub(super) fn repository_at(&self, path: &Path, meta: &Meta) -> Option<&Repository> {
        let known = self.repositories.iter().find(|known| known.path.as_path() == path);
        known.filter(|known| known.is == meta.identity())
    }
}

/// The content of a small regular file.
fn read(at: BorrowedFd<'_>, path: &Path) -> Option<Vec<u8>> {
    super::read(at, path, KEPT)
}

/// Bytes that need not be UTF-8: a path, a content. In JSON they are base64.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub Vec<u8>);

impl Bytes {
    /// Those of a path.
    pub fn of(path: &Path) -> Self {
        Bytes(path.as_os_str().as_bytes().to_vec())
    }

    /// As a path.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// As a path.
    pub fn into_path(self) -> PathBuf {
        PathBuf::from(OsString::from_vec(self.0))
    }
}

impl Serialize for Bytes {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&BASE64.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
        BASE64.decode(text.as_bytes()).map(Bytes).map_err(serde::de::Error::custom)
    }
}

/// The workspace, opened.
///
/// # Errors
/// Those of open(2).
pub(super) fn open_root(workspace: &Path) -> SysResult<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY;
    match file::open(file::cwd(), &c_path(workspace)?, flags, 0, Resolve::Ordinary) {
        Err(Errno::EACCES) => file::open(
            file::cwd(),
            &c_path(workspace)?,
            libc::O_PATH | libc::O_DIRECTORY,
            0,
            Resolve::Ordinary,
        ),
        other => other,
    }
}
