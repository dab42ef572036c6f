//! Which protected paths a workspace has (DECISIONS 5): what an agent could write so that the host runs it
//! later. Each is bound over itself read-only, and every directory above it is pinned in its place, since a
//! lone bind is undone by renaming its parent.

use crate::error::{Error, Result};
use crate::spec::policy::Layer;
use crate::spec::protect::{GIT_DIRECTORY_FILES, WORK_TREE};
use crate::spec::{Origin, Pin, agent};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The protected paths of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protected {
    /// What is to be pinned, parents before children; with it what is still to be made.
    pub pins: Vec<Pin>,
    /// What a start makes first, since a bind needs something to lie on: in an existing `.git` a missing
    /// `hooks`, `info` or `commondir`.
    pub missing: Vec<Missing>,
}

/// A protected path that is not there yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Where it will be.
    pub path: PathBuf,
    /// A file with this content; an empty directory without.
    pub content: Option<&'static str>,
    /// The owner of the directory that it will be in.
    owner: (u32, u32),
}

/// Finds the protected paths of `workspace`, and writes nothing. `more` are workspace-relative paths of the
/// policy.
pub fn find(workspace: &Path, git_config: bool, more: &[(&Path, &Layer)]) -> Protected {
    let mut found = Found { workspace, pins: BTreeMap::new(), missing: Vec::new() };
    for name in WORK_TREE {
        found.protect(name.as_ref(), "started or read by the host's programs", Origin::BUILT_IN);
    }
    found.git(git_config);
    for (path, layer) in more {
        found.protect(path, "named by the policy", agent::origin(layer));
    }
    Protected { pins: found.pins.into_values().collect(), missing: found.missing }
}

impl Protected {
    /// Makes what is missing.
    ///
    /// # Errors
    /// [`crate::error::Code::System`] when git's directory cannot be written.
    pub fn make_missing(&self) -> Result<()> {
        self.missing.iter().try_for_each(|missing| {
            let made = missing.make();
            made.map_err(|e| {
                let path = missing.path.display();
                Error::system(format_args!("make {path}, which is to be protected"), e)
            })
        })
    }
}

impl Missing {
    fn make(&self) -> std::io::Result<()> {
        match self.content {
            None => fs::DirBuilder::new().mode(0o755).create(&self.path)?,
            Some(content) => fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o644)
                .open(&self.path)
                .and_then(|mut file| std::io::Write::write_all(&mut file, content.as_bytes()))?,
        }
        // As root, what is made in somebody's repository belongs to that somebody.
        if nix::unistd::geteuid().is_root() {
            let _ = std::os::unix::fs::lchown(&self.path, Some(self.owner.0), Some(self.owner.1));
        }
        Ok(())
    }
}

struct Found<'a> {
    workspace: &'a Path,
    // By path: a parent sorts before what it holds.
    pins: BTreeMap<PathBuf, Pin>,
    missing: Vec<Missing>,
}

impl Found<'_> {
    /// Pins `relative` read-only if it is there and is a file or a directory. A link is neither: what it
    /// leads to is protected where it is, if it is anywhere at all.
    fn protect(&mut self, relative: &Path, why: &'static str, origin: Origin) {
        let at = self.workspace.join(relative);
        let Ok(meta) = at.symlink_metadata() else { return };
        if !meta.file_type().is_symlink() {
            self.pin(relative, why, origin);
        }
    }

    /// Pins `relative`, and every directory above it in its place.
    fn pin(&mut self, relative: &Path, why: &'static str, origin: Origin) {
        let at = self.workspace.join(relative);
        for parent in relative.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
            let parent = self.workspace.join(parent);
            self.pins.entry(parent.clone()).or_insert_with(|| Pin {
                at: parent,
                read_only: false,
                why: "holds a protected path in its place".into(),
                origin: Origin::BUILT_IN,
            });
        }
        self.pins.insert(at.clone(), Pin { at, read_only: true, why: Cow::Borrowed(why), origin });
    }

    fn git(&mut self, config: bool) {
        let git = self.workspace.join(".git");
        let Ok(meta) = git.symlink_metadata() else { return };
        if meta.is_file() {
            self.protect(".git".as_ref(), "says where git's directory is", Origin::BUILT_IN);
            return;
        }
        if !meta.is_dir() {
            return;
        }
        self.git_directory(".git".as_ref(), config, true);
        // Linked worktrees and submodules have directories of their own.
        for (below, is_main) in [("worktrees", false), ("modules", true)] {
            for entry in fs::read_dir(git.join(below)).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    let relative = Path::new(".git").join(below).join(entry.file_name());
                    self.git_directory(&relative, config, is_main);
                }
            }
        }
    }

    fn git_directory(&mut self, relative: &Path, config: bool, is_main: bool) {
        const WHY: &str = "decides what the host's git runs";
        if is_main {
            self.want(&relative.join("hooks"), None, WHY);
            self.want(&relative.join("info"), None, WHY);
            // What git assumes without one: an agent that wrote it would own the host's next git command.
            self.want(&relative.join("commondir"), Some(".\n"), WHY);
        }
        for name in GIT_DIRECTORY_FILES {
            if (*name == "config" || *name == "config.worktree") && !config {
                continue;
            }
            self.protect(&relative.join(name), WHY, Origin::BUILT_IN);
        }
    }

    /// Pins `relative` all the same when it is not there: a start makes it.
    fn want(&mut self, relative: &Path, content: Option<&'static str>, why: &'static str) {
        let path = self.workspace.join(relative);
        if path.symlink_metadata().is_ok() {
            return;
        }
        let above = path.parent().and_then(|parent| parent.symlink_metadata().ok());
        let owner = above.map_or((0, 0), |meta| (meta.uid(), meta.gid()));
        self.missing.push(Missing { path, content, owner });
        self.pin(relative, why, Origin::BUILT_IN);
    }
}
