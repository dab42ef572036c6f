//! The walk through a whole work tree of any depth. It uses descriptors, visits one directory after the
//! other, and holds only a few of them open. It stops early only after very many entries or a long time,
//! and then returns the paths that it skipped.

use super::baseline::{FileIdentity, WorkspaceBaseline};
use super::repository::{self, GitDirectory, HARD_LINK_REASON};
use super::{
    FindingFn, OpenDirectory, QuarantineAction, ScanMeta, git_allow_list, git_config, open_directory,
    open_readable,
};
use crate::repository::plain_path;
use saggar_policy::protect::WORK_TREE_NAMES;
use saggar_sys::Errno;
use saggar_sys::file::{self, Resolve};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The most directories on the current path that are held open; `..` leads back to those above.
const MAX_OPEN_LEVELS: usize = 64;

/// Directories in which package managers keep third-party files. They are searched for repositories but not
/// for protected names: packages contain many of these, and people do not work there.
const PACKAGE_DIRECTORIES: [&str; 3] = ["node_modules", "site-packages", "vendor"];

/// The bounds of a scan.
#[derive(Debug, Clone, Copy)]
pub struct ScanBounds {
    /// Number of directory entries.
    pub max_entries: usize,
    /// Time.
    pub max_time: Duration,
}

/// The paths that a scan skipped.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UnscannedPaths {
    /// Number of directories, each with everything in it.
    pub directories: usize,
    /// The first of them, relative to the workspace.
    pub first_path: Option<PathBuf>,
}

/// The state of a scan of one workspace, independent of its position.
pub(super) struct WorkspaceScan<'a, 'b> {
    pub(super) baseline: &'a WorkspaceBaseline,
    pub(super) on_finding: FindingFn<'b>,
    /// Git directories that others point to, and whether the pointer is new.
    pub(super) targets: Vec<(PathBuf, bool)>,
    root: BorrowedFd<'a>,
    workspace: &'a Path,
    /// Git directories that were scanned, and whether everything in them was treated as new.
    scanned: HashMap<FileIdentity, bool>,
}

impl WorkspaceScan<'_, '_> {
    /// Resolves `target` from the directory `at` to a path relative to the workspace. `None` if it does not
    /// exist, is not a directory, or is reached through a link or from outside.
    pub(super) fn resolve(&self, at: &Path, target: &[u8]) -> Option<PathBuf> {
        let target = Path::new(OsStr::from_bytes(target));
        let path = match target.strip_prefix(self.workspace) {
            Ok(inner) => inner.to_owned(),
            Err(_) if target.is_absolute() => return None,
            Err(_) => at.join(target),
        };
        let path = if path.as_os_str().is_empty() { PathBuf::from(".") } else { path };
        open_directory(self.root, &path).ok()?;
        // The path contains no link.
        Some(plain_path(Path::new(""), &path))
    }

    /// Scans the git directories that others point to, and those that they point to in turn.
    fn scan_targets(&mut self) {
        while let Some((path, new)) = self.targets.pop() {
            if let Some((directory, moved)) = self.open_tracking_moves(&path) {
                self.scan_git_directory(
                    &OpenDirectory { path: &path, directory: directory.as_fd() },
                    new || moved,
                );
            }
        }
    }

    /// Opens a directory, and returns whether the sandbox may have moved it to its path.
    fn open_tracking_moves(&self, path: &Path) -> Option<(OwnedFd, bool)> {
        let mut at = open_directory(self.root, Path::new(".")).ok()?;
        let (mut above, mut moved) = (ScanMeta::of(at.as_fd()).ok()?, false);
        for part in path.iter() {
            at = open_directory(at.as_fd(), Path::new(part)).ok()?;
            let meta = ScanMeta::of(at.as_fd()).ok()?;
            moved |= is_moved(&meta, &above, self.baseline);
            above = meta;
        }
        Some((at, moved))
    }

    fn scan_git_directory(&mut self, here: &OpenDirectory<'_>, moved: bool) {
        let Ok(meta) = ScanMeta::of(here.directory) else { return };
        let recorded = self.baseline;
        let known = recorded.repository_at(here.path, &meta);
        let moved = moved && known.is_none();
        match self.scanned.insert(meta.identity(), moved) {
            Some(true) => _ = self.scanned.insert(meta.identity(), true),
            Some(false) if !moved => {}
            _ => GitDirectory { here: *here, moved, known }.scan(self),
        }
    }
}

/// Whether the sandbox may have moved a directory to its path. A rename updates the change time of the
/// directory and of its new parent; so can other operations.
fn is_moved(meta: &ScanMeta, above: &ScanMeta, baseline: &WorkspaceBaseline) -> bool {
    meta.changed(baseline.since_ns) && above.changed(baseline.since_ns)
}

/// A directory on the path to the current one.
struct WalkLevel {
    name: OsString,
    /// `None` while it is not held open.
    directory: Option<OwnedFd>,
    meta: ScanMeta,
    moved: bool,
    /// Whether it is a git directory or in one.
    in_git: bool,
    /// Whether it is in a directory of a package manager.
    in_store: bool,
    /// Its subdirectories that are still to be visited.
    rest: Vec<OsString>,
}

/// Scans everything in the work tree. Returns the paths that exceeded the bounds.
pub(super) fn scan_tree(
    root: &OwnedFd,
    workspace: &Path,
    baseline: &WorkspaceBaseline,
    bounds: ScanBounds,
    on_finding: FindingFn<'_>,
) -> UnscannedPaths {
    let seen = HashMap::new();
    let scan = WorkspaceScan {
        baseline,
        on_finding,
        targets: Vec::new(),
        root: root.as_fd(),
        workspace,
        scanned: seen,
    };
    let (names, end) = (ProtectedNameTable::new(baseline), Instant::now() + bounds.max_time);
    let mut walk =
        WorkTreeWalk { scan, names: &names, budget: bounds.max_entries, deadline: end, levels: Vec::new() };
    let mut unseen = UnscannedPaths::default();
    walk.run(&mut unseen);
    unseen
}

struct WorkTreeWalk<'a, 'b> {
    scan: WorkspaceScan<'a, 'b>,
    names: &'a ProtectedNameTable,
    budget: usize,
    deadline: Instant,
    levels: Vec<WalkLevel>,
}

impl WorkTreeWalk<'_, '_> {
    fn run(&mut self, unscanned: &mut UnscannedPaths) {
        let mut path = PathBuf::new();
        let root = open_readable(self.scan.root, Path::new("."));
        let Ok((root, meta)) = root.and_then(|root| ScanMeta::of(root.as_fd()).map(|meta| (root, meta)))
        else {
            return unscanned.add(PathBuf::new());
        };
        self.enter(OsString::new(), root, meta, &path, unscanned);
        while let Some(level) = self.levels.last_mut() {
            let Some(name) = level.rest.pop() else {
                self.leave(&mut path, unscanned);
                continue;
            };
            path.push(&name);
            if self.budget == 0 || Instant::now() > self.deadline {
                unscanned.add(path.clone());
                path.pop();
                continue;
            }
            let opened = level.directory.as_ref().map(|above| {
                let directory = open_readable(above.as_fd(), Path::new(&name))?;
                ScanMeta::of(directory.as_fd()).map(|meta| (directory, meta))
            });
            match opened {
                Some(Ok((directory, meta))) => self.enter(name, directory, meta, &path, unscanned),
                // It disappeared meanwhile, or belongs to another user and is accessible neither to this
                // process nor to programs of this user.
                Some(Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EPERM)) => _ = path.pop(),
                _ => {
                    unscanned.add(path.clone());
                    path.pop();
                }
            }
        }
    }

    fn enter(
        &mut self,
        name: OsString,
        directory: OwnedFd,
        meta: ScanMeta,
        path: &Path,
        unscanned: &mut UnscannedPaths,
    ) {
        let above = self.levels.last();
        let moved =
            above.is_some_and(|above| above.moved || is_moved(&meta, &above.meta, self.scan.baseline));
        let mut in_git = above.is_some_and(|above| above.in_git);
        let is_store = PACKAGE_DIRECTORIES.iter().any(|store| name == *store);
        let in_store = is_store || above.is_some_and(|above| above.in_store);
        let here = OpenDirectory { path, directory: directory.as_fd() };
        let (table, depth) = (self.names, self.levels.len());
        let keep = |name: &OsStr, _| is_git_name(name) || table.rest_of(depth, name).is_some();
        let (names, mut rest) = match here.read_entries(here.directory, self.budget, &keep) {
            Ok((names, rest, count)) => {
                self.budget = self.budget.saturating_sub(count);
                (names, rest)
            }
            Err(_) => {
                unscanned.add(path.to_owned());
                (Vec::new(), Vec::new())
            }
        };
        if self.budget == 0 {
            unscanned.add(path.to_owned());
        }
        let has =
            |name: &str| rest.iter().any(|known| known == name) || names.iter().any(|known| known == name);
        // Below a git directory, those of worktrees and submodules count even if they are incomplete.
        let is_part = in_git && ["HEAD", "commondir", "config", "hooks"].into_iter().any(has);
        // A program can have removed the files by which git knows it.
        let extent = self.scan.baseline.git_directory.as_ref();
        let is_known = extent.is_some_and(|extent| extent.is_part(path));
        let is_git =
            path.file_name().is_some_and(is_dot_git) || is_known || is_part || could_be_git_directory(has);
        if is_git {
            in_git = true;
            self.scan.scan_git_directory(&here, moved);
        }
        if in_git {
            // Git's own stores are not searched for directories; pointers to them are followed.
            rest.retain(|name| !["objects", "refs", "logs"].iter().any(|store| name == store));
            if let Some(extent) = extent {
                extent.retain_scanned(path, &mut rest);
            }
        } else if !in_store || self.levels.len() < 2 {
            self.scan_work_tree(&here, moved, &names, &mut rest);
        }
        self.scan_git_pointers(&here, moved, &names);
        self.scan.scan_targets();
        rest.sort_unstable_by(|a, b| b.cmp(a));
        if let Some(far) = self.levels.len().checked_sub(MAX_OPEN_LEVELS) {
            self.levels[far].directory = None;
        }
        self.levels.push(WalkLevel { name, directory: Some(directory), meta, moved, in_git, in_store, rest });
    }

    /// Returns to the parent directory, which must still be the same directory.
    fn leave(&mut self, path: &mut PathBuf, unscanned: &mut UnscannedPaths) {
        path.pop();
        let Some(level) = self.levels.pop() else { return };
        let Some(above) = self.levels.last_mut() else { return };
        if above.directory.is_none() {
            let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
            let directory = level.directory.as_ref();
            let up = directory
                .and_then(|below| file::open(below.as_fd(), c"..", flags, 0, Resolve::Ordinary).ok());
            let is_it = |up: &OwnedFd| {
                ScanMeta::of(up.as_fd()).is_ok_and(|meta| meta.identity() == above.meta.identity())
            };
            above.directory = up.filter(is_it);
            if above.directory.is_none() {
                // A process moves it during the scan: everything below the parent is unknown.
                for name in std::mem::take(&mut above.rest) {
                    unscanned.add(path.join(name));
                }
                log::debug!("{}: moved while it was looked at", level.name.display());
            }
        }
    }

    /// Scans one directory of the work tree for protected names. An entry that is moved as a whole is not
    /// descended into.
    fn scan_work_tree(
        &mut self,
        here: &OpenDirectory<'_>,
        moved: bool,
        names: &[OsString],
        rest: &mut Vec<OsString>,
    ) {
        let (table, depth) = (self.names, self.levels.len());
        let all = rest.iter().chain(names);
        let found: Vec<_> =
            all.filter_map(|name| Some((name.clone(), table.rest_of(depth, name)?))).collect();
        for (name, inner) in found {
            let whole = inner.iter().any(|inner| scan_protected(&mut self.scan, here, &name, inner, moved));
            if whole {
                rest.retain(|other| *other != name);
            }
        }
        let modules = names.iter().filter(|name| name.eq_ignore_ascii_case(".gitmodules"));
        modules.for_each(|name| scan_gitmodules(&mut self.scan, here, name, moved));
    }

    /// Scans a `.git` that is not a directory.
    fn scan_git_pointers(&mut self, here: &OpenDirectory<'_>, moved: bool, names: &[OsString]) {
        for name in names.iter().filter(|name| is_dot_git(name)) {
            let Ok(meta) = here.stat(name) else { continue };
            let new = moved || meta.changed(self.scan.baseline.since_ns);
            let recorded = self.scan.baseline;
            if recorded.is_pinned(&here.path.join(name), &meta) || recorded.has_pinned_content(here, name) {
                continue;
            }
            let target = match () {
                () if meta.is_link() => {
                    here.read_link(name).and_then(|to| self.scan.resolve(here.path, to.as_bytes()))
                }
                () if meta.is_file() => repository::read_git_pointer(here, name, &self.scan),
                () => None,
            };
            match target {
                // Git itself never creates a link here.
                Some(target) if !(new && meta.is_link()) => self.scan.targets.push((target, new)),
                _ if new => here.report(
                    name,
                    "leads git to another directory",
                    QuarantineAction::Move,
                    self.scan.on_finding,
                ),
                _ => {}
            }
        }
    }
}

impl UnscannedPaths {
    fn add(&mut self, path: PathBuf) {
        self.directories += 1;
        self.first_path.get_or_insert(path);
    }
}

/// Scans the `.git` at the top level, if there was none at the start. Programs are still running, so a
/// finding may disappear again.
pub(super) fn scan_new_repository(
    root: &OwnedFd,
    workspace: &Path,
    baseline: &WorkspaceBaseline,
    on_finding: FindingFn<'_>,
) {
    let seen = HashMap::new();
    let mut scan = WorkspaceScan {
        baseline,
        on_finding,
        targets: Vec::new(),
        root: root.as_fd(),
        workspace,
        scanned: seen,
    };
    if let Ok(git) = open_directory(root.as_fd(), Path::new(".git")) {
        scan.scan_git_directory(&OpenDirectory { path: Path::new(".git"), directory: git.as_fd() }, true);
        scan.scan_targets();
    }
}

/// The most files of a protected directory that are examined; one with more is moved as a whole.
const MAX_PROTECTED_FILES: usize = 512;

/// Scans `name` in `here`, the first component of a protected name whose other components are `inner`.
/// Returns whether the whole entry was reported.
fn scan_protected(
    scan: &mut WorkspaceScan<'_, '_>,
    here: &OpenDirectory<'_>,
    name: &OsStr,
    inner: &Path,
    moved: bool,
) -> bool {
    let (Ok(meta), Ok(above)) = (here.stat(name), ScanMeta::of(here.directory)) else { return false };
    let (path, since) = (here.path.join(name), scan.baseline.since_ns);
    if scan.baseline.is_pinned(&path, &meta) || scan.baseline.has_pinned_content(here, name) {
        return false;
    }
    let new = moved || meta.changed(since);
    let mut parts = inner.iter();
    let next = parts.next();
    if !meta.is_dir() {
        let why =
            if next.is_some() { "a link that leads to a protected name" } else { super::APPEARED_REASON };
        // A file cannot contain the rest of a protected name.
        let taken = new && (next.is_none() || meta.is_link());
        if taken {
            here.report(name, why, QuarantineAction::Move, scan.on_finding);
        }
        return taken;
    }
    let moved = moved || is_moved(&meta, &above, scan.baseline);
    if next.is_none() && moved {
        here.report(name, super::APPEARED_REASON, QuarantineAction::Move, scan.on_finding);
        return true;
    }
    let Ok(directory) = open_readable(here.directory, Path::new(name)) else {
        here.report(name, "it cannot be looked at", QuarantineAction::Report, scan.on_finding);
        return false;
    };
    let below = OpenDirectory { path: &path, directory: directory.as_fd() };
    if let Some(next) = next {
        let _ = scan_protected(scan, &below, next, parts.as_path(), moved);
        return false;
    }
    let mut left = MAX_PROTECTED_FILES;
    if !scan_new_files(scan, &below, &mut left) {
        here.report(name, "more files than are looked at", QuarantineAction::Move, scan.on_finding);
        return true;
    }
    false
}

/// Reports the new files of a protected directory that existed at the start. Returns false if there are too
/// many to examine.
fn scan_new_files(scan: &mut WorkspaceScan<'_, '_>, here: &OpenDirectory<'_>, budget: &mut usize) -> bool {
    let Ok((names, directories)) = here.entries(*budget) else { return false };
    let Some(rest) = budget.checked_sub(names.len() + directories.len() + 1) else { return false };
    *budget = rest;
    for name in names {
        if here.stat(&name).is_ok_and(|meta| meta.changed(scan.baseline.since_ns)) {
            here.report(&name, super::APPEARED_REASON, QuarantineAction::Move, scan.on_finding);
        }
    }
    directories.iter().all(|name| {
        let path = here.path.join(name);
        let above = ScanMeta::of(here.directory);
        let Ok(directory) = open_readable(here.directory, Path::new(name)) else { return true };
        let meta = ScanMeta::of(directory.as_fd());
        if let (Ok(meta), Ok(above)) = (meta, above)
            && is_moved(&meta, &above, scan.baseline)
        {
            here.report(name, super::APPEARED_REASON, QuarantineAction::Move, scan.on_finding);
            return true;
        }
        scan_new_files(scan, &OpenDirectory { path: &path, directory: directory.as_fd() }, budget)
    })
}

/// Scans the `.gitmodules` of a work tree. One with only allowed variables is kept.
fn scan_gitmodules(scan: &mut WorkspaceScan<'_, '_>, here: &OpenDirectory<'_>, name: &OsStr, moved: bool) {
    let Ok(meta) = here.stat(name) else { return };
    let new = moved || meta.changed(scan.baseline.since_ns);
    let recorded = scan.baseline;
    if !new || recorded.is_pinned(&here.path.join(name), &meta) || recorded.has_pinned_content(here, name) {
        return;
    }
    let entries = super::read_bounded(here.directory, Path::new(name), 1 << 20)
        .and_then(|text| git_config::parse(&text).ok());
    let harmless = |entry: &git_config::ConfigEntry| {
        entry.section.starts_with(b"submodule.") && git_allow_list::is_allowed(entry, &|_| false)
    };
    match entries {
        Some(entries) if entries.iter().all(harmless) && meta.links == 1 => {}
        Some(entries) => {
            let (kept, gone): (Vec<_>, Vec<_>) = entries.into_iter().partition(harmless);
            let why = if gone.is_empty() {
                HARD_LINK_REASON.into()
            } else {
                format!("sets {}", git_config::summarize_names(&gone))
            };
            here.report(name, why, QuarantineAction::Replace(git_config::render(&kept)), scan.on_finding);
        }
        None => {
            here.report(name, "submodules that git does not read", QuarantineAction::Move, scan.on_finding)
        }
    }
}

/// Whether a name is significant to git.
pub(super) fn is_git_name(name: &OsStr) -> bool {
    const PARTS: [&str; 6] = ["HEAD", "objects", "refs", "commondir", "config", "hooks"];
    is_dot_git(name) || name.eq_ignore_ascii_case(".gitmodules") || PARTS.iter().any(|part| name == *part)
}

fn is_dot_git(name: impl AsRef<OsStr>) -> bool {
    name.as_ref().eq_ignore_ascii_case(".git")
}

/// Whether a directory with these names can be a git directory (gitrepository-layout(5)), or become one.
fn could_be_git_directory(has: impl Fn(&str) -> bool) -> bool {
    has("HEAD") && ["objects", "refs", "commondir", "config"].into_iter().any(&has)
        || has("objects") && has("refs")
}

/// The protected names by their first component, in lower case: those at the top level, and those of every
/// directory.
pub(super) struct ProtectedNameTable {
    by_depth: [ByFirstPart; 2],
}

type ByFirstPart = HashMap<Vec<u8>, Vec<PathBuf>>;

impl ProtectedNameTable {
    /// The names of the table, and those that the policy adds at the top level.
    pub(super) fn new(baseline: &WorkspaceBaseline) -> Self {
        let mut at: [ByFirstPart; 2] = Default::default();
        let mut add = |depth: usize, name: &Path| {
            let mut parts = name.iter();
            if let Some(first) = parts.next() {
                let first = first.as_bytes().to_ascii_lowercase();
                at[depth].entry(first).or_default().push(parts.as_path().to_owned());
            }
        };
        for depth in 0..2 {
            // `.gitmodules` is checked by content.
            let names = WORK_TREE_NAMES.iter().filter(|name| name.path != ".gitmodules");
            names.for_each(|name| add(depth, Path::new(name)));
        }
        baseline.policy_paths.iter().for_each(|name| add(0, name.as_path()));
        ProtectedNameTable { by_depth: at }
    }

    /// The rest of the protected names that begin with `name`, at this depth.
    fn rest_of(&self, depth: usize, name: &OsStr) -> Option<&[PathBuf]> {
        let name = name.as_bytes();
        // Most names are excluded by their length or first letter.
        let is_likely =
            name.len() < 32 && name.first().is_some_and(|first| b"._abcglmorsABCGLMORS".contains(first));
        let table = &self.by_depth[depth.min(1)];
        if !is_likely && depth > 0 {
            return None;
        }
        table.get(&name.to_ascii_lowercase()).map(Vec::as_slice)
    }
}
