//! The walk through a whole work tree, of any depth: by descriptors, one directory after the other, with few of them held
//! open. It ends early only after very many entries or much time, and says then what it has not seen.

use super::recorded::{Identity, Recorded};
use super::repository::{self, ANOTHER_NAME, GitDirectory};
use super::{Here, Meta, Remedy, Take, allowed, config, open_anyway, open_directory};
use crate::spec::protect::WORK_TREE;
use crate::sys::Errno;
use crate::sys::file::{self, Resolve};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How many directories on the way down are held open; above them, `..` leads back.
const HELD: usize = 64;

/// Directories in which package managers keep what others wrote. Repositories are looked for in them, protected names are
/// not: packages have many of them, and nobody works there.
const STORES: [&str; 3] = ["node_modules", "site-packages", "vendor"];

/// How much is looked at.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Entries of directories.
    pub entries: usize,
    /// Time.
    pub time: Duration,
}

/// What was not looked at.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Unseen {
    /// How many directories, with all that is in them.
    pub directories: usize,
    /// The first of them, in the workspace.
    pub first: Option<PathBuf>,
}

/// What the look at one workspace has, wherever it is.
pub(super) struct Look<'a, 'b> {
    pub(super) recorded: &'a Recorded,
    pub(super) take: Take<'b>,
    /// Git directories that others lead to, and whether what leads there is new.
    pub(super) targets: Vec<(PathBuf, bool)>,
    root: BorrowedFd<'a>,
    workspace: &'a Path,
    /// Git directories that were looked at, and whether everything in them was taken for new.
    seen: HashMap<Identity, bool>,
}

impl Look<'_, '_> {
    /// The directory that `target` names in `at`, as a path in the workspace; `None` when it is not there, is no
    /// directory, or is reached over a link or from outside.
    pub(super) fn resolve(&self, at: &Path, target: &[u8]) -> Option<PathBuf> {
        let target = Path::new(OsStr::from_bytes(target));
        let path = match target.strip_prefix(self.workspace) {
            Ok(inner) => inner.to_owned(),
            Err(_) if target.is_absolute() => return None,
            Err(_) => at.join(target),
        };
        let path = if path.as_os_str().is_empty() { PathBuf::from(".") } else { path };
        open_directory(self.root, &path).ok()?;
        // No link was on the way, so `..` is what precedes it.
        let mut plain = PathBuf::new();
        for part in path.components() {
            match part {
                std::path::Component::ParentDir => _ = plain.pop(),
                std::path::Component::CurDir => {}
                part => plain.push(part),
            }
        }
        Some(plain)
    }

    /// Looks at git directories that others led to, and at those that they lead to.
    fn follow(&mut self) {
        while let Some((path, new)) = self.targets.pop() {
            if let Some((directory, moved)) = self.open_with_its_history(&path) {
                self.git_directory(&Here { path: &path, directory: directory.as_fd() }, new || moved);
            }
        }
    }

    /// Opens a directory, with whether the sandbox may have moved it to where it is.
    fn open_with_its_history(&self, path: &Path) -> Option<(OwnedFd, bool)> {
        let mut at = open_directory(self.root, Path::new(".")).ok()?;
        let (mut above, mut moved) = (Meta::of(at.as_fd()).ok()?, false);
        for part in path.iter() {
            at = open_directory(at.as_fd(), Path::new(part)).ok()?;
            let meta = Meta::of(at.as_fd()).ok()?;
            moved |= is_moved(&meta, &above, self.recorded);
            above = meta;
        }
        Some((at, moved))
    }

    fn git_directory(&mut self, here: &Here<'_>, moved: bool) {
        let Ok(meta) = Meta::of(here.directory) else { return };
        let recorded = self.recorded;
        let known = recorded.repository_at(here.path, &meta);
        let moved = moved && known.is_none();
        match self.seen.insert(meta.identity(), moved) {
            Some(true) => _ = self.seen.insert(meta.identity(), true),
            Some(false) if !moved => {}
            _ => GitDirectory { here: *here, moved, known }.look(self),
        }
    }
}

/// Whether the sandbox may have put a directory where it is. A rename changes the time stamp of what is renamed and of
/// where it goes; other work does that too.
fn is_moved(meta: &Meta, above: &Meta, recorded: &Recorded) -> bool {
    meta.changed(recorded.since) && above.changed(recorded.since)
}

/// A directory on the way to the one that is looked at.
struct Level {
    name: OsString,
    /// `None` while it is not held open.
    directory: Option<OwnedFd>,
    meta: Meta,
    moved: bool,
    /// Whether it is git's own.
    in_git: bool,
    /// Whether it holds what a package manager keeps there.
    in_store: bool,
    /// Directories in it that are still to be looked at.
    rest: Vec<OsString>,
}

/// Looks at everything in the work tree; what was left out, when there was too much.
pub(super) fn tree(
    root: &OwnedFd,
    workspace: &Path,
    recorded: &Recorded,
    bounds: Bounds,
    take: Take<'_>,
) -> Unseen {
    let seen = HashMap::new();
    let look = Look { recorded, take, targets: Vec::new(), root: root.as_fd(), workspace, seen };
    let (names, end) = (Names::new(recorded), Instant::now() + bounds.time);
    let mut walk = Walk { look, names: &names, left: bounds.entries, end, levels: Vec::new() };
    let mut unseen = Unseen::default();
    walk.all(&mut unseen);
    unseen
}

struct Walk<'a, 'b> {
    look: Look<'a, 'b>,
    names: &'a Names,
    left: usize,
    end: Instant,
    levels: Vec<Level>,
}

impl Walk<'_, '_> {
    fn all(&mut self, unseen: &mut Unseen) {
        let mut path = PathBuf::new();
        let root = open_anyway(self.look.root, Path::new("."));
        let Ok((root, meta)) = root.and_then(|root| Meta::of(root.as_fd()).map(|meta| (root, meta))) else {
            return unseen.add(PathBuf::new());
        };
        self.enter(OsString::new(), root, meta, &path, unseen);
        while let Some(level) = self.levels.last_mut() {
            let Some(name) = level.rest.pop() else {
                self.leave(&mut path, unseen);
                continue;
            };
            path.push(&name);
            if self.left == 0 || Instant::now() > self.end {
                unseen.add(path.clone());
                path.pop();
                continue;
            }
            let opened = level.directory.as_ref().map(|above| {
                let directory = open_anyway(above.as_fd(), Path::new(&name))?;
                Meta::of(directory.as_fd()).map(|meta| (directory, meta))
            });
            match opened {
                Some(Ok((directory, meta))) => self.enter(name, directory, meta, &path, unseen),
                // It went meanwhile; or it is somebody else's, who lets neither us nor programs that are us in.
                Some(Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EPERM)) => _ = path.pop(),
                _ => {
                    unseen.add(path.clone());
                    path.pop();
                }
            }
        }
    }

    fn enter(&mut self, name: OsString, directory: OwnedFd, meta: Meta, path: &Path, unseen: &mut Unseen) {
        let above = self.levels.last();
        let moved =
            above.is_some_and(|above| above.moved || is_moved(&meta, &above.meta, self.look.recorded));
        let mut in_git = above.is_some_and(|above| above.in_git);
        let is_store = STORES.iter().any(|store| name == *store);
        let in_store = is_store || above.is_some_and(|above| above.in_store);
        let here = Here { path, directory: directory.as_fd() };
        let (table, depth) = (self.names, self.levels.len());
        let keep = |name: &OsStr| is_gits(name) || table.of(depth, name).is_some();
        let (names, mut rest) = match here.read_entries(here.directory, self.left, &keep) {
            Ok((names, rest, count)) => {
                self.left = self.left.saturating_sub(count);
                (names, rest)
            }
            Err(_) => {
                unseen.add(path.to_owned());
                (Vec::new(), Vec::new())
            }
        };
        if self.left == 0 {
            unseen.add(path.to_owned());
        }
        let has =
            |name: &str| rest.iter().any(|known| known == name) || names.iter().any(|known| known == name);
        // Below a git directory are those of worktrees and submodules, whatever is missing of them.
        let is_part = in_git && ["HEAD", "commondir", "config", "hooks"].into_iter().any(has);
        let is_git = path.file_name().is_some_and(is_dot_git) || is_part || is_git_directory(has);
        if is_git {
            in_git = true;
            self.look.git_directory(&here, moved);
        }
        if in_git {
            // What git stores there is not looked for in directories; what leads there is followed.
            rest.retain(|name| !["objects", "refs", "logs"].iter().any(|store| name == store));
        } else if !in_store || self.levels.len() < 2 {
            self.work_tree(&here, moved, &names, &mut rest);
        }
        self.pointers(&here, moved, &names);
        self.look.follow();
        rest.sort_unstable_by(|a, b| b.cmp(a));
        if let Some(far) = self.levels.len().checked_sub(HELD) {
            self.levels[far].directory = None;
        }
        self.levels.push(Level { name, directory: Some(directory), meta, moved, in_git, in_store, rest });
    }

    /// Goes back to the directory above, which must be the one that it was.
    fn leave(&mut self, path: &mut PathBuf, unseen: &mut Unseen) {
        path.pop();
        let Some(level) = self.levels.pop() else { return };
        let Some(above) = self.levels.last_mut() else { return };
        if above.directory.is_none() {
            let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
            let directory = level.directory.as_ref();
            let up = directory
                .and_then(|below| file::open(below.as_fd(), c"..", flags, 0, Resolve::Ordinary).ok());
            let is_it = |up: &OwnedFd| {
                Meta::of(up.as_fd()).is_ok_and(|meta| meta.identity() == above.meta.identity())
            };
            above.directory = up.filter(is_it);
            if above.directory.is_none() {
                // Something moves it while we look: nothing below it is known.
                for name in std::mem::take(&mut above.rest) {
                    unseen.add(path.join(name));
                }
                log::debug!("{}: moved while it was looked at", level.name.display());
            }
        }
    }

    /// Protected names in one directory of the work tree. What is taken as a whole is not looked into.
    fn work_tree(&mut self, here: &Here<'_>, moved: bool, names: &[OsString], rest: &mut Vec<OsString>) {
        let (table, depth) = (self.names, self.levels.len());
        let all = rest.iter().chain(names);
        let found: Vec<_> = all.filter_map(|name| Some((name.clone(), table.of(depth, name)?))).collect();
        for (name, inner) in found {
            let whole = inner.iter().any(|inner| protected(&mut self.look, here, &name, inner, moved));
            if whole {
                rest.retain(|other| *other != name);
            }
        }
        let modules = names.iter().filter(|name| name.eq_ignore_ascii_case(".gitmodules"));
        modules.for_each(|name| submodules(&mut self.look, here, name, moved));
    }

    /// A `.git` that is no directory.
    fn pointers(&mut self, here: &Here<'_>, moved: bool, names: &[OsString]) {
        for name in names.iter().filter(|name| is_dot_git(name)) {
            let Ok(meta) = here.look(name) else { continue };
            let new = moved || meta.changed(self.look.recorded.since);
            let recorded = self.look.recorded;
            if recorded.is_pinned(&here.path.join(name), &meta) || recorded.has_its_content(here, name) {
                continue;
            }
            let target = match () {
                () if meta.is_link() => {
                    here.link(name).and_then(|to| self.look.resolve(here.path, to.as_bytes()))
                }
                () if meta.is_file() => repository::pointer(here, name, &self.look),
                () => None,
            };
            match target {
                // A link is not how git makes one.
                Some(target) if !(new && meta.is_link()) => self.look.targets.push((target, new)),
                _ if new => here.found(name, "leads git to another directory", Remedy::Move, self.look.take),
                _ => {}
            }
        }
    }
}

impl Unseen {
    fn add(&mut self, path: PathBuf) {
        self.directories += 1;
        self.first.get_or_insert(path);
    }
}

/// Looks at the `.git` at the top, where there was none: while programs run, so what it finds may be gone again.
pub(super) fn new_repository(root: &OwnedFd, workspace: &Path, recorded: &Recorded, take: Take<'_>) {
    let seen = HashMap::new();
    let mut look = Look { recorded, take, targets: Vec::new(), root: root.as_fd(), workspace, seen };
    if let Ok(git) = open_directory(root.as_fd(), Path::new(".git")) {
        look.git_directory(&Here { path: Path::new(".git"), directory: git.as_fd() }, true);
        look.follow();
    }
}

/// How many files of a protected directory are looked at; one that has more is taken as a whole.
const PROTECTED: usize = 512;

/// Looks at `name` in `here`, which is the first part of a protected name whose other parts are `inner`; whether all
/// of it was taken.
fn protected(look: &mut Look<'_, '_>, here: &Here<'_>, name: &OsStr, inner: &Path, moved: bool) -> bool {
    let (Ok(meta), Ok(above)) = (here.look(name), Meta::of(here.directory)) else { return false };
    let (path, since) = (here.path.join(name), look.recorded.since);
    if look.recorded.is_pinned(&path, &meta) || look.recorded.has_its_content(here, name) {
        return false;
    }
    let new = moved || meta.changed(since);
    let mut parts = inner.iter();
    let next = parts.next();
    if !meta.is_dir() {
        let why = if next.is_some() { "a link that leads to a protected name" } else { super::APPEARED };
        // A file is in nobody's way.
        let taken = new && (next.is_none() || meta.is_link());
        if taken {
            here.found(name, why, Remedy::Move, look.take);
        }
        return taken;
    }
    let moved = moved || is_moved(&meta, &above, look.recorded);
    if next.is_none() && moved {
        here.found(name, super::APPEARED, Remedy::Move, look.take);
        return true;
    }
    let Ok(directory) = open_anyway(here.directory, Path::new(name)) else {
        here.found(name, "it cannot be looked at", Remedy::Report, look.take);
        return false;
    };
    let below = Here { path: &path, directory: directory.as_fd() };
    if let Some(next) = next {
        let _ = protected(look, &below, next, parts.as_path(), moved);
        return false;
    }
    let mut left = PROTECTED;
    if !new_files(look, &below, &mut left) {
        here.found(name, "more files than are looked at", Remedy::Move, look.take);
        return true;
    }
    false
}

/// Takes the new files of an older protected directory; false when there are too many to look at.
fn new_files(look: &mut Look<'_, '_>, here: &Here<'_>, left: &mut usize) -> bool {
    let Ok((names, directories)) = here.entries(*left) else { return false };
    let Some(rest) = left.checked_sub(names.len() + directories.len() + 1) else { return false };
    *left = rest;
    for name in names {
        if here.look(&name).is_ok_and(|meta| meta.changed(look.recorded.since)) {
            here.found(&name, super::APPEARED, Remedy::Move, look.take);
        }
    }
    directories.iter().all(|name| {
        let path = here.path.join(name);
        let above = Meta::of(here.directory);
        let Ok(directory) = open_anyway(here.directory, Path::new(name)) else { return true };
        let meta = Meta::of(directory.as_fd());
        if let (Ok(meta), Ok(above)) = (meta, above)
            && is_moved(&meta, &above, look.recorded)
        {
            here.found(name, super::APPEARED, Remedy::Move, look.take);
            return true;
        }
        new_files(look, &Here { path: &path, directory: directory.as_fd() }, left)
    })
}

/// The list of submodules of a work tree. One that git writes stays.
fn submodules(look: &mut Look<'_, '_>, here: &Here<'_>, name: &OsStr, moved: bool) {
    let Ok(meta) = here.look(name) else { return };
    let new = moved || meta.changed(look.recorded.since);
    let recorded = look.recorded;
    if !new || recorded.is_pinned(&here.path.join(name), &meta) || recorded.has_its_content(here, name) {
        return;
    }
    let entries =
        super::read(here.directory, Path::new(name), 1 << 20).and_then(|text| config::parse(&text).ok());
    let harmless = |entry: &config::Entry| {
        entry.section.starts_with(b"submodule.") && allowed::is_allowed(entry, &|_| false)
    };
    match entries {
        Some(entries) if entries.iter().all(harmless) && meta.links == 1 => {}
        Some(entries) => {
            let (kept, gone): (Vec<_>, Vec<_>) = entries.into_iter().partition(harmless);
            let why =
                if gone.is_empty() { ANOTHER_NAME.into() } else { format!("says {}", config::names(&gone)) };
            here.found(name, why, Remedy::Replace(config::render(&kept)), look.take);
        }
        None => here.found(name, "submodules that git does not read", Remedy::Move, look.take),
    }
}

/// Whether a name says something about git.
fn is_gits(name: &OsStr) -> bool {
    const PARTS: [&str; 6] = ["HEAD", "objects", "refs", "commondir", "config", "hooks"];
    is_dot_git(name) || name.eq_ignore_ascii_case(".gitmodules") || PARTS.iter().any(|part| name == *part)
}

fn is_dot_git(name: impl AsRef<OsStr>) -> bool {
    name.as_ref().eq_ignore_ascii_case(".git")
}

/// Whether a directory with such names could be a git directory (gitrepository-layout(5)), or become one.
fn is_git_directory(has: impl Fn(&str) -> bool) -> bool {
    has("HEAD") && ["objects", "refs", "commondir", "config"].into_iter().any(&has)
        || has("objects") && has("refs")
}

/// The protected names by their first part, in lower case: those at the top, and those of every directory.
pub(super) struct Names {
    at: [ByFirstPart; 2],
}

type ByFirstPart = HashMap<Vec<u8>, Vec<PathBuf>>;

impl Names {
    /// Those of the table, and those that the policy adds at the top.
    pub(super) fn new(recorded: &Recorded) -> Self {
        let mut at: [ByFirstPart; 2] = Default::default();
        let mut add = |depth: usize, name: &Path| {
            let mut parts = name.iter();
            if let Some(first) = parts.next() {
                let first = first.as_bytes().to_ascii_lowercase();
                at[depth].entry(first).or_default().push(parts.as_path().to_owned());
            }
        };
        for depth in 0..2 {
            // Submodules are judged by what they say.
            let names = WORK_TREE.iter().filter(|name| name.path != ".gitmodules");
            names.for_each(|name| add(depth, Path::new(name)));
        }
        recorded.more.iter().for_each(|name| add(0, name.as_path()));
        Names { at }
    }

    /// What follows `name` in protected names, so many directories down.
    fn of(&self, depth: usize, name: &OsStr) -> Option<&[PathBuf]> {
        let name = name.as_bytes();
        // Most names are ruled out by their length or their first letter.
        let is_likely =
            name.len() < 32 && name.first().is_some_and(|first| b"._abcglmorsABCGLMORS".contains(first));
        let table = &self.at[depth.min(1)];
        if !is_likely && depth > 0 {
            return None;
        }
        table.get(&name.to_ascii_lowercase()).map(Vec::as_slice)
    }
}
