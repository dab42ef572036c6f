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

/// Finds the pins of `workspace`, parents before children. `more` are workspace-relative paths of the policy.
/// In an existing `.git` a missing `hooks`, `info` or `commondir` is made, since a bind needs something to
/// lie on.
///
/// # Errors
/// [`crate::error::Code::System`] when the directory cannot be read or written.
pub fn find(workspace: &Path, git_config: bool, more: &[(&Path, &Layer)]) -> Result<Vec<Pin>> {
    let mut found = Found { workspace, pins: BTreeMap::new() };
    for name in WORK_TREE {
        found.protect(name.as_ref(), "started or read by the host's programs", Origin::BUILT_IN);
    }
    found.git(git_config)?;
    for (path, layer) in more {
        found.protect(path, "named by the policy", agent::origin(layer));
    }
    Ok(found.pins.into_values().collect())
}

struct Found<'a> {
    workspace: &'a Path,
    // By path: a parent sorts before what it holds.
    pins: BTreeMap<PathBuf, Pin>,
}

impl Found<'_> {
    /// Pins `relative` read-only if it is there and is a file or a directory. A link is neither: what it
    /// leads to is protected where it is, if it is anywhere at all.
    fn protect(&mut self, relative: &Path, why: &'static str, origin: Origin) {
        let at = self.workspace.join(relative);
        let Ok(meta) = at.symlink_metadata() else { return };
        if meta.file_type().is_symlink() {
            return;
        }
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

    fn git(&mut self, config: bool) -> Result<()> {
        let git = self.workspace.join(".git");
        let Ok(meta) = git.symlink_metadata() else { return Ok(()) };
        if meta.is_file() {
            self.protect(".git".as_ref(), "says where git's directory is", Origin::BUILT_IN);
            return Ok(());
        }
        if !meta.is_dir() {
            return Ok(());
        }
        self.git_directory(".git".as_ref(), config, true)?;
        // Linked worktrees and submodules have directories of their own.
        for (below, is_main) in [("worktrees", false), ("modules", true)] {
            for entry in fs::read_dir(git.join(below)).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    let relative = Path::new(".git").join(below).join(entry.file_name());
                    self.git_directory(&relative, config, is_main)?;
                }
            }
        }
        Ok(())
    }

    fn git_directory(&mut self, relative: &Path, config: bool, is_main: bool) -> Result<()> {
        const WHY: &str = "decides what the host's git runs";
        if is_main {
            self.make_missing(relative)?;
        }
        for name in GIT_DIRECTORY_FILES {
            if (*name == "config" || *name == "config.worktree") && !config {
                continue;
            }
            self.protect(&relative.join(name), WHY, Origin::BUILT_IN);
        }
        Ok(())
    }

    /// Makes empty `hooks` and `info`, and a `commondir` that says what git assumes without one: an agent
    /// that wrote it would own the host's next git command.
    fn make_missing(&self, relative: &Path) -> Result<()> {
        let git = self.workspace.join(relative);
        let owner = git.symlink_metadata().map(|meta| (meta.uid(), meta.gid())).ok();
        let fail = |path: &Path, e: std::io::Error| {
            Error::system(format_args!("make {}, which is to be protected", path.display()), e)
        };
        for name in ["hooks", "info"] {
            let path = git.join(name);
            if path.symlink_metadata().is_err() {
                fs::DirBuilder::new().mode(0o755).create(&path).map_err(|e| fail(&path, e))?;
                give_to(&path, owner);
            }
        }
        let path = git.join("commondir");
        if path.symlink_metadata().is_err() {
            fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o644)
                .open(&path)
                .and_then(|mut file| std::io::Write::write_all(&mut file, b".\n"))
                .map_err(|e| fail(&path, e))?;
            give_to(&path, owner);
        }
        Ok(())
    }
}

/// As root, what is made in somebody's repository belongs to that somebody.
fn give_to(path: &Path, owner: Option<(u32, u32)>) {
    if let Some((uid, gid)) = owner.filter(|_| nix::unistd::geteuid().is_root()) {
        let _ = std::os::unix::fs::lchown(path, Some(uid), Some(gid));
    }
}
