//! Which protected paths a workspace has (DECISIONS 5): what an agent could write so that the host runs it
//! later. Each is bound over itself read-only, and every directory above it is pinned in its place, since a
//! lone bind is undone by renaming its parent.

mod git;
mod links;
mod nested;
mod tree;
mod values;

use crate::error::{Error, Result};
use crate::spec::policy::Layer;
use crate::spec::protect::HOME;
use crate::spec::{Origin, Pin, agent};
use crate::sys::Errno;
use crate::sys::file::{self, Resolve};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use tree::Tree;

/// How many links a path may lead over, as in the kernel (path_resolution(7)).
const LINKS: usize = 40;

/// The protected paths of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protected {
    /// What is to be pinned, parents before children; with it what is still to be made.
    pub pins: Vec<Pin>,
    /// What a start makes first, since a bind needs something to lie on: in an existing `.git` a missing
    /// `hooks`, `info` or `commondir`.
    pub missing: Vec<Missing>,
    /// What git's configuration points at and is not there, relative to the workspace: it is looked for at the end.
    pub absent: Vec<PathBuf>,
    /// Protected files that have another name ([`Protected::separate`]), relative to the workspace.
    linked: Vec<PathBuf>,
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
    let none = Protected { pins: Vec::new(), missing: Vec::new(), absent: Vec::new(), linked: Vec::new() };
    let Ok(tree) = Tree::open(workspace) else { return none };
    let mut found = Found {
        workspace,
        tree,
        pins: BTreeMap::new(),
        missing: Vec::new(),
        absent: Vec::new(),
        repositories: BTreeSet::new(),
        configurations: BTreeSet::new(),
        members: 0,
        words: 0,
    };
    let top = Path::new("");
    found.repository(top, git_config);
    if found.is_bare(top) {
        found.git(top, top, git_config);
    }
    found.home_names();
    found.work_tree_names(git_config);
    for (path, layer) in more {
        found.protect(path, "named by the policy", agent::origin(layer));
    }
    let linked = found.linked();
    let pins = found.pins.into_values().collect();
    Protected { pins, missing: found.missing, absent: found.absent, linked }
}

/// The caller's home directory.
fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute())
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
    #[expect(
        clippy::disallowed_methods,
        reason = "the workspace itself; all else is beneath this descriptor"
    )]
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

/// What was found so far. Its paths are relative to the workspace.
struct Found<'a> {
    workspace: &'a Path,
    tree: Tree,
    // By path: a parent sorts before what it holds.
    pins: BTreeMap<PathBuf, Pin>,
    missing: Vec<Missing>,
    absent: Vec<PathBuf>,
    /// Git directories that were looked at.
    repositories: BTreeSet<PathBuf>,
    /// Configurations that were read, each with the work tree that its paths count from.
    configurations: BTreeSet<(PathBuf, PathBuf)>,
    /// How many submodules have pins of their own.
    members: usize,
    /// How many words of commands were looked up.
    words: usize,
}

impl Found<'_> {
    /// Pins `relative` read-only if it is there.
    fn protect(&mut self, relative: &Path, why: &'static str, origin: Origin) {
        self.protect_because(relative, Cow::Borrowed(why), origin);
    }

    fn protect_because(&mut self, relative: &Path, why: Cow<'static, str>, origin: Origin) {
        if let Some(real) = self.resolve(relative) {
            self.pin_because(&real, why, origin);
        }
    }

    /// The names of a home directory that is the workspace or lies in it, and saggar's own directories.
    fn home_names(&mut self) {
        let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let home = home();
        let names = home.iter().flat_map(|home| HOME.iter().map(|name| home.join(name.path)));
        let own = ["XDG_CONFIG_HOME", "XDG_STATE_HOME"].into_iter().filter_map(variable);
        for path in names.chain(own.map(|path| path.join("saggar"))).collect::<Vec<_>>() {
            if let Ok(relative) = path.strip_prefix(self.workspace)
                && !relative.as_os_str().is_empty()
            {
                self.protect(relative, "obeyed by the host's programs in a home directory", Origin::BUILT_IN);
            }
        }
    }

    /// The real place of `relative` in the workspace, if it is there. Every link on the way is pinned: whoever
    /// exchanges a link exchanges what it leads to. What lies outside of the workspace is not ours to protect.
    fn resolve(&mut self, relative: &Path) -> Option<PathBuf> {
        let mut links = Vec::new();
        let real = self.follow(relative, &mut links);
        for link in links {
            self.pin(&link, "leads to a protected path", Origin::BUILT_IN);
        }
        let real = real?;
        (!real.as_os_str().is_empty()).then_some(real)
    }

    /// As [`Found::resolve`], without a pin.
    fn resolve_quietly(&self, relative: &Path) -> Option<PathBuf> {
        self.follow(relative, &mut Vec::new())
    }

    fn follow(&self, relative: &Path, followed: &mut Vec<PathBuf>) -> Option<PathBuf> {
        let is_plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
        match self.tree.look(relative) {
            Ok(meta) if is_plain && !meta.is_link() => return Some(relative.to_owned()),
            Err(Errno::ENOENT) if is_plain => return None,
            _ => {}
        }
        let mut real = PathBuf::new();
        let mut rest: Vec<PathBuf> = Vec::new();
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
            if !self.tree.look(&name).ok()?.is_link() {
                real = name;
                continue;
            }
            if followed.len() >= LINKS {
                return None;
            }
            let mut target = self.tree.target(&name).ok()?;
            followed.push(name);
            if target.is_absolute() {
                target = target.strip_prefix(self.workspace).ok()?.to_owned();
                real.clear();
            }
            push(&mut rest, &target);
        }
        Some(real)
    }

    fn pin(&mut self, real: &Path, why: &'static str, origin: Origin) {
        self.pin_because(real, Cow::Borrowed(why), origin);
    }

    /// Pins `real` read-only, and holds every directory above it in its place.
    fn pin_because(&mut self, real: &Path, why: Cow<'static, str>, origin: Origin) {
        // A read-only directory holds what is in it.
        if real.ancestors().skip(1).any(|above| self.pins.get(above).is_some_and(|pin| pin.read_only)) {
            return;
        }
        for parent in real.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
            self.pins.entry(parent.to_owned()).or_insert_with(|| Pin {
                at: self.workspace.join(parent),
                read_only: false,
                why: "holds a protected path in its place".into(),
                origin: Origin::BUILT_IN,
            });
        }
        let pin = Pin { at: self.workspace.join(real), read_only: true, why, origin };
        self.pins.insert(real.to_owned(), pin);
    }

    /// Pins `relative` all the same when it is not there: a start makes it. Where we may not write, nobody
    /// inside may: as an ordinary user the programs have our rights, and what is somebody else's they cannot
    /// make writable either.
    fn want(&mut self, relative: &Path, content: Option<&'static str>, why: &'static str) {
        let path = self.workspace.join(relative);
        if self.tree.look(relative).is_ok() || self.missing.iter().any(|missing| missing.path == path) {
            return;
        }
        let above = relative.parent().unwrap_or(Path::new(""));
        let Ok(meta) = self.tree.look(above) else { return };
        let theirs = meta.owner().0 != nix::unistd::geteuid().as_raw();
        match self.tree.may_write(above) {
            Err(Errno::EROFS) => return,
            Err(_) if theirs => return,
            _ => {}
        }
        self.missing.push(Missing { path, content, owner: meta.owner() });
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
