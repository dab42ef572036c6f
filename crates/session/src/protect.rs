//! Finds the protected paths of a workspace (DECISIONS 34): files through which an agent could run code on
//! the host later. Each is bound over itself read-only. Every directory above it is pinned, because a bind
//! can be circumvented by renaming its parent.

mod git;
pub(crate) mod git_variables;
mod links;
mod nested;
mod outside;
mod tree;

pub use outside::{find_protected_below_git_directory, find_protected_git_directory};
pub(crate) use tree::BoundedTree;

use crate::repository::{OutsideGitDirectory, is_git_directory};
use saggar_policy::PolicyLayer;
use saggar_policy::protect::HOME_NAMES;
use saggar_sandbox::spec::{Origin, PinnedPath, agent};
use saggar_sys::Errno;
use saggar_sys::error::{Error, Result};
use saggar_sys::file::{self, Resolve};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

/// The most links that a path may follow, as in the kernel (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// How long another start may take to write a file that it has made, and how often to look.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
const WRITE_POLL: Duration = Duration::from_millis(1);

/// The protected paths of a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProtectedPaths {
    /// The paths to pin, parents before children, including those that do not exist yet.
    pub pins: Vec<PinnedPath>,
    /// Paths to create before the start, because a bind mount needs an existing target: a missing `hooks`,
    /// `info` or `commondir` in an existing `.git`.
    pub paths_to_create: Vec<MissingPath>,
    /// Paths that git's configuration names and that do not exist, relative to the workspace. The scan at
    /// the end looks for them.
    pub unresolved_paths: Vec<PathBuf>,
    /// Protected files with more than one hard link ([`ProtectedPaths::separate_hard_links`]), relative to
    /// the workspace.
    hard_linked: Vec<PathBuf>,
}

/// A protected path that does not exist yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingPath {
    /// The path to create.
    pub path: PathBuf,
    /// The content of the file to create; `None` for an empty directory.
    pub content: Option<&'static str>,
    /// The owner (uid, gid) of its parent directory.
    owner: (u32, u32),
}

/// Finds the protected paths of `workspace`; changes nothing. `outside` is its git directory, if that is not in it, and
/// `policy_paths` are further paths of the policy, relative to the workspace.
pub fn find_protected(
    workspace: &Path,
    git_config: bool,
    outside: Option<&OutsideGitDirectory>,
    policy_paths: &[(&Path, &PolicyLayer)],
) -> ProtectedPaths {
    let Some(mut found) = ProtectionFinder::open(workspace) else { return ProtectedPaths::default() };
    let top = Path::new("");
    found.protect_repository(top, git_config);
    if is_git_directory(&found.tree, top) {
        found.protect_git_directory_tree(top, top, git_config);
    }
    if let Some(outside) = outside {
        found.protect_paths_named_outside(outside);
    }
    found.protect_home_names();
    found.protect_work_tree_names(git_config);
    for (path, layer) in policy_paths {
        found.protect(path, "named by the policy", agent::layer_origin(layer));
    }
    found.finish()
}

/// The caller's home directory.
fn home_directory() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute())
}

impl ProtectedPaths {
    /// Those of `workspace` that are at or below `path`, an absolute path. If `path` is in a protected directory, that is
    /// `path` itself.
    fn below(mut self, path: &Path, workspace: &Path) -> Self {
        if let Some(pin) = self.pins.iter_mut().find(|pin| pin.read_only && path.starts_with(&pin.path)) {
            pin.path = path.to_owned();
        }
        self.pins.retain(|pin| pin.path.starts_with(path));
        self.paths_to_create.retain(|missing| missing.path.starts_with(path));
        self.hard_linked.retain(|linked| workspace.join(linked).starts_with(path));
        self
    }

    /// Drops the paths that a start would create, where creating is not allowed.
    pub fn drop_missing(&mut self) {
        let missing = std::mem::take(&mut self.paths_to_create);
        self.pins.retain(|pin| missing.iter().all(|missing| missing.path != pin.path));
    }

    /// Creates the missing paths in `workspace`.
    ///
    /// # Errors
    /// [`saggar_sys::error::Code::System`] if the git directory cannot be written.
    pub fn create_missing(&self, workspace: &Path) -> Result<()> {
        self.paths_to_create.iter().try_for_each(|missing| {
            let created = missing.create(workspace);
            created.map_err(|e| {
                let path = missing.path.display();
                Error::system(format_args!("make {path}, which is to be protected"), e)
            })
        })
    }
}

impl MissingPath {
    /// Uses descriptors and follows no link: another sandbox of this work tree may be running, and files
    /// are created and chowned here with the caller's privileges.
    #[expect(
        clippy::disallowed_methods,
        reason = "the workspace itself; all else is beneath this descriptor"
    )]
    fn create(&self, workspace: &Path) -> std::io::Result<()> {
        let relative = self.path.strip_prefix(workspace).map_err(std::io::Error::other)?;
        let (Some(above), Some(name)) = (relative.parent(), relative.file_name()) else {
            return Err(Errno::EINVAL.into());
        };
        let (above, name) = (file::c_path(Path::new(".").join(above))?, file::c_path(name)?);
        let root = fs::File::open(workspace)?;
        let beneath = |at: BorrowedFd<'_>, path: &CStr, flags: i32| {
            file::open(at, path, flags | libc::O_NOFOLLOW, 0o644, Resolve::BeneathNoLinks)
        };
        let above = beneath(root.as_fd(), &above, libc::O_RDONLY | libc::O_DIRECTORY)?;
        let made = match self.content {
            None => {
                let mode = nix::sys::stat::Mode::from_bits_truncate(0o755);
                match nix::sys::stat::mkdirat(&above, name.as_c_str(), mode) {
                    Err(Errno::EEXIST) if is_empty_directory(above.as_fd(), &name) => return Ok(()),
                    made => made?,
                }
                beneath(above.as_fd(), &name, libc::O_PATH | libc::O_DIRECTORY)?
            }
            Some(content) => {
                let made = match beneath(above.as_fd(), &name, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL)
                {
                    Err(Errno::EEXIST) if will_contain(above.as_fd(), &name, content) => return Ok(()),
                    made => made?,
                };
                file::write_all(made.as_fd(), content.as_bytes())?;
                made
            }
        };
        // If the caller is root, a file in another user's repository is given to that user.
        if nix::unistd::geteuid().is_root() {
            let _ = file::set_owner(made.as_fd(), self.owner.0, self.owner.1);
        }
        Ok(())
    }
}

/// Whether another start has made this directory: it is empty.
fn is_empty_directory(above: BorrowedFd<'_>, name: &CStr) -> bool {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let opened = file::open(above, name, flags, 0, Resolve::BeneathNoLinks);
    opened.and_then(nix::dir::Dir::from_fd).is_ok_and(|mut directory| {
        directory.iter().flatten().all(|entry| matches!(entry.file_name().to_bytes(), b"." | b".."))
    })
}

/// Whether another start has made this file, or is about to write its content.
fn will_contain(above: BorrowedFd<'_>, name: &CStr, content: &str) -> bool {
    let until = Instant::now() + WRITE_TIMEOUT;
    loop {
        match read_regular_file(above, name, content.len() + 1) {
            Ok(found) if found == content.as_bytes() => return true,
            Ok(found) if content.as_bytes().starts_with(&found) && Instant::now() < until => {}
            _ => return false,
        }
        std::thread::sleep(WRITE_POLL);
    }
}

/// Reads at most `limit` bytes of a file without another name.
fn read_regular_file(above: BorrowedFd<'_>, name: &CStr, limit: usize) -> std::io::Result<Vec<u8>> {
    let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = fs::File::from(file::open(above, name, flags, 0, Resolve::BeneathNoLinks)?);
    let meta = file.metadata()?;
    if !meta.is_file() || meta.nlink() != 1 {
        return Err(Errno::EEXIST.into());
    }
    let mut bytes = Vec::new();
    file.take(limit as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The results so far. Paths are relative to the workspace.
struct ProtectionFinder<'a> {
    workspace: &'a Path,
    tree: BoundedTree,
    // Sorted by path: a parent precedes its children.
    pins: BTreeMap<PathBuf, PinnedPath>,
    paths_to_create: Vec<MissingPath>,
    unresolved_paths: Vec<PathBuf>,
    /// Git directories that were examined.
    repositories: BTreeSet<PathBuf>,
    /// Configurations that were read, each with the work tree that its paths are relative to.
    configurations: BTreeSet<(PathBuf, PathBuf)>,
    /// Number of submodules with their own pins.
    submodule_count: usize,
    /// Number of words of commands that were looked up.
    word_count: usize,
}

impl<'a> ProtectionFinder<'a> {
    /// Returns `None` if the workspace cannot be opened.
    fn open(workspace: &'a Path) -> Option<Self> {
        Some(ProtectionFinder {
            workspace,
            tree: BoundedTree::open(workspace).ok()?,
            pins: BTreeMap::new(),
            paths_to_create: Vec::new(),
            unresolved_paths: Vec::new(),
            repositories: BTreeSet::new(),
            configurations: BTreeSet::new(),
            submodule_count: 0,
            word_count: 0,
        })
    }

    fn finish(self) -> ProtectedPaths {
        let hard_linked = self.find_hard_linked();
        ProtectedPaths {
            pins: self.pins.into_values().collect(),
            paths_to_create: self.paths_to_create,
            unresolved_paths: self.unresolved_paths,
            hard_linked,
        }
    }

    /// Pins `relative` read-only if it exists.
    fn protect(&mut self, relative: &Path, reason: &'static str, origin: Origin) {
        self.protect_with_reason(relative, Cow::Borrowed(reason), origin);
    }

    fn protect_with_reason(&mut self, relative: &Path, reason: Cow<'static, str>, origin: Origin) {
        if let Some(real) = self.resolve(relative) {
            self.pin_with_reason(&real, reason, origin);
        }
    }

    /// The protected names of a home directory that is the workspace or in it, and saggar's own
    /// directories.
    fn protect_home_names(&mut self) {
        let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let home = home_directory();
        let names = home.iter().flat_map(|home| HOME_NAMES.iter().map(|name| home.join(name.path)));
        let own = ["XDG_CONFIG_HOME", "XDG_STATE_HOME"].into_iter().filter_map(variable);
        for path in names.chain(own.map(|path| path.join("saggar"))).collect::<Vec<_>>() {
            if let Ok(relative) = path.strip_prefix(self.workspace)
                && !relative.as_os_str().is_empty()
            {
                self.protect(relative, "obeyed by the host's programs in a home directory", Origin::BUILT_IN);
            }
        }
    }

    /// Resolves `relative` in the workspace, if it exists. Every link on the way is pinned, because
    /// replacing a link redirects the path. Paths outside of the workspace are not protected.
    fn resolve(&mut self, relative: &Path) -> Option<PathBuf> {
        let mut links = Vec::new();
        let real = self.follow_links(relative, &mut links);
        for link in links {
            self.pin(&link, "leads to a protected path", Origin::BUILT_IN);
        }
        let real = real?;
        (!real.as_os_str().is_empty()).then_some(real)
    }

    /// As [`ProtectionFinder::resolve`], without pins.
    fn resolve_without_pins(&self, relative: &Path) -> Option<PathBuf> {
        self.follow_links(relative, &mut Vec::new())
    }

    fn follow_links(&self, relative: &Path, followed: &mut Vec<PathBuf>) -> Option<PathBuf> {
        let is_plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
        match self.tree.stat(relative) {
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
            if !self.tree.stat(&name).ok()?.is_link() {
                real = name;
                continue;
            }
            if followed.len() >= MAX_LINKS {
                return None;
            }
            let mut target = self.tree.read_link(&name).ok()?;
            followed.push(name);
            if target.is_absolute() {
                target = target.strip_prefix(self.workspace).ok()?.to_owned();
                real.clear();
            }
            push(&mut rest, &target);
        }
        Some(real)
    }

    fn pin(&mut self, real: &Path, reason: &'static str, origin: Origin) {
        self.pin_with_reason(real, Cow::Borrowed(reason), origin);
    }

    /// Pins `real` read-only, and pins every directory above it.
    fn pin_with_reason(&mut self, real: &Path, reason: Cow<'static, str>, origin: Origin) {
        // A read-only directory protects its content.
        if real.ancestors().skip(1).any(|above| self.pins.get(above).is_some_and(|pin| pin.read_only)) {
            return;
        }
        for parent in real.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
            self.pins.entry(parent.to_owned()).or_insert_with(|| PinnedPath {
                path: self.workspace.join(parent),
                read_only: false,
                reason: "holds a protected path in its place".into(),
                origin: Origin::BUILT_IN,
            });
        }
        let pin = PinnedPath { path: self.workspace.join(real), read_only: true, reason, origin };
        self.pins.insert(real.to_owned(), pin);
    }

    /// Pins `relative` even if it does not exist: the start creates it. If the caller cannot write to the
    /// parent directory, neither can programs: for an unprivileged user, programs have the caller's rights,
    /// and they cannot make other users' files writable.
    fn pin_or_create(&mut self, relative: &Path, content: Option<&'static str>, reason: &'static str) {
        let path = self.workspace.join(relative);
        if self.tree.stat(relative).is_ok() || self.paths_to_create.iter().any(|missing| missing.path == path)
        {
            return;
        }
        let above = relative.parent().unwrap_or(Path::new(""));
        let Ok(meta) = self.tree.stat(above) else { return };
        let is_foreign = meta.owner().0 != nix::unistd::geteuid().as_raw();
        match self.tree.check_writable(above) {
            Err(Errno::EROFS) => return,
            Err(_) if is_foreign => return,
            _ => {}
        }
        self.paths_to_create.push(MissingPath { path, content, owner: meta.owner() });
        self.pin(relative, reason, Origin::BUILT_IN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another sandbox may replace a parent directory after the search.
    #[test]
    fn nothing_is_made_over_a_link() {
        let scratch = tempfile::tempdir().unwrap();
        let (work, outside) = (scratch.path().join("work"), scratch.path().join("outside"));
        for directory in [&work, &outside, &work.join(".git")] {
            fs::create_dir(directory).unwrap();
        }
        let found = find_protected(&work, true, None, &[]);
        assert_eq!(found.paths_to_create.len(), 3);
        fs::rename(work.join(".git"), work.join("moved")).unwrap();
        std::os::unix::fs::symlink(&outside, work.join(".git")).unwrap();
        assert!(found.create_missing(&work).is_err());
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        fs::remove_file(work.join(".git")).unwrap();
        fs::rename(work.join("moved"), work.join(".git")).unwrap();
        found.create_missing(&work).unwrap();
        assert_eq!(fs::read_to_string(work.join(".git/commondir")).unwrap(), ".\n");
        assert!(work.join(".git/hooks").is_dir() && work.join(".git/info").is_dir());
    }
}
