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
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

/// How many links a path may lead over, as in the kernel (path_resolution(7)).
const LINKS: usize = 40;

/// How deep submodules are looked for.
const MODULE_DEPTH: usize = 16;

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
    /// Pins `relative` read-only if it is there.
    fn protect(&mut self, relative: &Path, why: &'static str, origin: Origin) {
        if let Some(real) = self.resolve(relative) {
            self.pin(&real, why, origin);
        }
    }

    /// The real place of `relative` in the workspace, if it is there. Every link on the way is pinned: whoever
    /// exchanges a link exchanges what it leads to. What lies outside of the workspace is not ours to protect.
    fn resolve(&mut self, relative: &Path) -> Option<PathBuf> {
        let mut real = PathBuf::new();
        let mut rest: Vec<PathBuf> = Vec::new();
        let mut links = 0;
        let push = |rest: &mut Vec<PathBuf>, path: &Path| {
            let named = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
            rest.extend(path.components().rev().filter(named).map(|part| PathBuf::from(part.as_os_str())));
        };
        push(&mut rest, relative);
        while let Some(next) = rest.pop() {
            if next == Path::new("..") {
                if !real.pop() {
                    return None;
                }
                continue;
            }
            let name = real.join(next);
            let at = self.workspace.join(&name);
            if !at.symlink_metadata().ok()?.file_type().is_symlink() {
                real = name;
                continue;
            }
            links += 1;
            if links > LINKS {
                return None;
            }
            self.pin(&name, "leads to a protected path", Origin::BUILT_IN);
            let mut target = at.read_link().ok()?;
            if target.is_absolute() {
                target = target.strip_prefix(self.workspace).ok()?.to_owned();
                real.clear();
            }
            push(&mut rest, &target);
        }
        (!real.as_os_str().is_empty()).then_some(real)
    }

    /// Pins `real` read-only, and holds every directory above it in its place.
    fn pin(&mut self, real: &Path, why: &'static str, origin: Origin) {
        for parent in real.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
            let parent = self.workspace.join(parent);
            self.pins.entry(parent.clone()).or_insert_with(|| Pin {
                at: parent,
                read_only: false,
                why: "holds a protected path in its place".into(),
                origin: Origin::BUILT_IN,
            });
        }
        let at = self.workspace.join(real);
        self.pins.insert(at.clone(), Pin { at, read_only: true, why: Cow::Borrowed(why), origin });
    }

    fn git(&mut self, config: bool) -> Result<()> {
        let Some(git) = self.resolve(".git".as_ref()) else { return Ok(()) };
        let Ok(meta) = self.workspace.join(&git).symlink_metadata() else { return Ok(()) };
        if meta.is_file() {
            self.pin(&git, "says where git's directory is", Origin::BUILT_IN);
        }
        if !meta.is_dir() {
            return Ok(());
        }
        self.git_directory(&git, config, true)?;
        for name in self.directories_in(&git.join("worktrees")) {
            self.git_directory(&name, config, false)?;
        }
        self.submodules(&git.join("modules"), config, MODULE_DEPTH)
    }

    /// The directories of submodules. Their names have slashes in them as those of their work trees do, and
    /// submodules have submodules.
    fn submodules(&mut self, below: &Path, config: bool, depth: usize) -> Result<()> {
        if depth == 0 {
            return Ok(());
        }
        for name in self.directories_in(below) {
            // HEAD alone would not do: an agent can take it away in one session, and give it back in the next.
            let mut marks = ["HEAD", "config", "objects"].iter();
            if marks.any(|mark| self.workspace.join(&name).join(mark).symlink_metadata().is_ok()) {
                self.git_directory(&name, config, true)?;
                self.submodules(&name.join("modules"), config, depth - 1)?;
            } else {
                self.submodules(&name, config, depth - 1)?;
            }
        }
        Ok(())
    }

    /// The directories in one of the workspace, no links.
    fn directories_in(&self, relative: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.workspace.join(relative)).into_iter().flatten().flatten();
        let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        directories.map(|entry| relative.join(entry.file_name())).collect()
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
        // Where we may not write, nobody inside may: as an ordinary user the programs have our rights, and what
        // is somebody else's they cannot make writable either.
        let theirs = owner.is_some_and(|(uid, _)| uid != nix::unistd::geteuid().as_raw());
        let fail = |path: &Path, e: std::io::Error| match e.kind() {
            ErrorKind::ReadOnlyFilesystem => Ok(()),
            ErrorKind::PermissionDenied if theirs && !nix::unistd::geteuid().is_root() => Ok(()),
            _ => Err(Error::system(format_args!("make {}, which is to be protected", path.display()), e)),
        };
        for name in ["hooks", "info"] {
            let path = git.join(name);
            if path.symlink_metadata().is_err() {
                match fs::DirBuilder::new().mode(0o755).create(&path) {
                    Ok(()) => give_to(&path, owner),
                    Err(e) => fail(&path, e)?,
                }
            }
        }
        let path = git.join("commondir");
        if path.symlink_metadata().is_err() {
            let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path);
            match file.and_then(|mut file| file.write_all(b".\n")) {
                Ok(()) => give_to(&path, owner),
                Err(e) => fail(&path, e)?,
            }
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
