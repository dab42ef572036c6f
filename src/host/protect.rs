//! Which protected paths a workspace has (DECISIONS 5): what an agent could write so that the host runs it
//! later. Each is bound over itself read-only, and every directory above it is pinned in its place, since a
//! lone bind is undone by renaming its parent.

use crate::error::{Error, Result};
use crate::spec::policy::Layer;
use crate::spec::protect::{GIT_DIRECTORY_FILES, WORK_TREE};
use crate::spec::{Origin, Pin, agent};
use crate::sys::file::{self, Resolve};
use crate::sys::{Errno, read};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// How many links a path may lead over, as in the kernel (path_resolution(7)).
const LINKS: usize = 40;

/// How much of a git configuration is read.
const CONFIG_LIMIT: u64 = 1 << 16;

/// How deep submodules are looked for.
const MODULE_DEPTH: usize = 16;

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
    /// Leaves out what a start would make, where nothing may be made.
    pub fn leave_out_missing(&mut self) {
        let missing = std::mem::take(&mut self.missing);
        self.pins.retain(|pin| missing.iter().all(|missing| missing.path != pin.at));
    }

    /// Makes what is missing in `workspace`.
    ///
    /// # Errors
    /// [`crate::error::Code::System`] when git's directory cannot be written.
    pub fn make_missing(&self, workspace: &Path) -> Result<()> {
        self.missing.iter().try_for_each(|missing| {
            let made = missing.make(workspace);
            made.map_err(|e| {
                let path = missing.path.display();
                Error::system(format_args!("make {path}, which is to be protected"), e)
            })
        })
    }
}

impl Missing {
    /// By descriptors and over no link: another sandbox of this work tree may be at work in it, and what is made and
    /// given away here is made with the rights of the caller.
    fn make(&self, workspace: &Path) -> std::io::Result<()> {
        let relative = self.path.strip_prefix(workspace).map_err(std::io::Error::other)?;
        let (Some(above), Some(name)) = (relative.parent(), relative.file_name()) else {
            return Err(Errno::EINVAL.into());
        };
        let c_path =
            |path: &OsStr| CString::new(path.as_bytes()).map_err(|_| std::io::Error::from(Errno::EINVAL));
        let (above, name) = (c_path(Path::new(".").join(above).as_os_str())?, c_path(name)?);
        let root = fs::File::open(workspace)?;
        let beneath = |at: BorrowedFd<'_>, path: &CStr, flags: i32| {
            file::open(at, path, flags | libc::O_NOFOLLOW, 0o644, Resolve::BeneathNoLinks)
        };
        let above = beneath(root.as_fd(), &above, libc::O_RDONLY | libc::O_DIRECTORY)?;
        let made = match self.content {
            None => {
                let mode = nix::sys::stat::Mode::from_bits_truncate(0o755);
                nix::sys::stat::mkdirat(&above, name.as_c_str(), mode)?;
                beneath(above.as_fd(), &name, libc::O_PATH | libc::O_DIRECTORY)?
            }
            Some(content) => {
                let made = beneath(above.as_fd(), &name, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL)?;
                file::write_all(made.as_fd(), content.as_bytes())?;
                made
            }
        };
        // As root, what is made in somebody's repository belongs to that somebody.
        if nix::unistd::geteuid().is_root() {
            let _ = file::set_owner(made.as_fd(), self.owner.0, self.owner.1);
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

    fn git(&mut self, config: bool) {
        let Some(git) = self.resolve(".git".as_ref()) else { return };
        let Ok(meta) = self.workspace.join(&git).symlink_metadata() else { return };
        if meta.is_file() {
            self.pin(&git, "says where git's directory is", Origin::BUILT_IN);
        }
        if !meta.is_dir() {
            return;
        }
        self.git_directory(&git, config, true);
        for name in self.directories_in(&git.join("worktrees")) {
            self.git_directory(&name, config, false);
        }
        self.submodules(&git.join("modules"), config, MODULE_DEPTH);
    }

    /// The directories of submodules. Their names have slashes in them as those of their work trees do, and
    /// submodules have submodules.
    fn submodules(&mut self, below: &Path, config: bool, depth: usize) {
        if depth == 0 {
            return;
        }
        for name in self.directories_in(below) {
            // HEAD alone would not do: an agent can take it away in one session, and give it back in the next.
            let mut marks = ["HEAD", "config", "objects"].iter();
            if marks.any(|mark| self.workspace.join(&name).join(mark).symlink_metadata().is_ok()) {
                self.git_directory(&name, config, true);
                self.pointer_to(&name);
                self.submodules(&name.join("modules"), config, depth - 1);
            } else {
                self.submodules(&name, config, depth - 1);
            }
        }
    }

    /// The `.git` file of a submodule's work tree, which says where its git directory is: who writes it gives the
    /// host's next `git status` another one. The directory's `core.worktree` says where the work tree is.
    fn pointer_to(&mut self, git: &Path) {
        let config = self.workspace.join(git).join("config");
        let Some(config) = read::small_file(&config, CONFIG_LIMIT) else { return };
        let config = String::from_utf8_lossy(&config);
        let value = |line: &str| {
            Some(line.trim().strip_prefix("worktree")?.trim().strip_prefix('=')?.trim().to_owned())
        };
        let Some(tree) = config.lines().find_map(value) else { return };
        let mut place = git.to_owned();
        for part in Path::new(tree.trim_matches('"')).components() {
            match part {
                Component::ParentDir if place.pop() => {}
                Component::Normal(name) => place.push(name),
                Component::CurDir => {}
                // Outside of the workspace, which is not ours to protect.
                _ => return,
            }
        }
        let pointer = place.join(".git");
        if self.workspace.join(&pointer).symlink_metadata().is_ok_and(|meta| meta.is_file()) {
            self.protect(&pointer, "says where git's directory is", Origin::BUILT_IN);
        }
    }

    /// The directories in one of the workspace, no links.
    fn directories_in(&self, relative: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.workspace.join(relative)).into_iter().flatten().flatten();
        let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        directories.map(|entry| relative.join(entry.file_name())).collect()
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

    /// Pins `relative` all the same when it is not there: a start makes it. Where we may not write, nobody
    /// inside may: as an ordinary user the programs have our rights, and what is somebody else's they cannot
    /// make writable either.
    fn want(&mut self, relative: &Path, content: Option<&'static str>, why: &'static str) {
        let path = self.workspace.join(relative);
        let Some(above) = path.parent().filter(|_| path.symlink_metadata().is_err()) else { return };
        let owner = above.symlink_metadata().map_or((0, 0), |meta| (meta.uid(), meta.gid()));
        let theirs = owner.0 != nix::unistd::geteuid().as_raw();
        match nix::unistd::access(above, nix::unistd::AccessFlags::W_OK) {
            Err(Errno::EROFS) => return,
            Err(_) if theirs => return,
            _ => {}
        }
        self.missing.push(Missing { path, content, owner });
        self.pin(relative, why, Origin::BUILT_IN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another sandbox may exchange what is above it after it was found.
    #[test]
    fn nothing_is_made_over_a_link() {
        let scratch = tempfile::tempdir().unwrap();
        let (work, outside) = (scratch.path().join("work"), scratch.path().join("outside"));
        for directory in [&work, &outside, &work.join(".git")] {
            fs::create_dir(directory).unwrap();
        }
        let found = find(&work, true, &[]);
        assert_eq!(found.missing.len(), 3);
        fs::rename(work.join(".git"), work.join("moved")).unwrap();
        std::os::unix::fs::symlink(&outside, work.join(".git")).unwrap();
        assert!(found.make_missing(&work).is_err());
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        fs::remove_file(work.join(".git")).unwrap();
        fs::rename(work.join("moved"), work.join(".git")).unwrap();
        found.make_missing(&work).unwrap();
        assert_eq!(fs::read_to_string(work.join(".git/commondir")).unwrap(), ".\n");
        assert!(work.join(".git/hooks").is_dir() && work.join(".git/info").is_dir());
    }
}
