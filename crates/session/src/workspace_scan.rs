//! Finds what a sandbox left in a workspace that ordinary commands of the host would run (DECISIONS 34).
//! Protected paths that exist at the start are pinned. A bind mount needs an existing target, so paths that
//! did not exist can only be searched for afterwards.
//!
//! There are two scans. [`WorkspaceScanner::scan_missing_names`] checks the names that were missing, in a
//! few dozen system calls, while programs run. [`WorkspaceScanner::scan_all`] also walks the work tree for
//! repositories, after all programs have exited. Both use descriptors, follow no link and open only
//! directories and regular files. The state at the start is kept in a [`WorkspaceBaseline`], so that a
//! later process can run the last scan too.
//!
//! | module | what it is |
//! |---|---|
//! | [`baseline`] | the state of the workspace at the start |
//! | [`quick_check`] | whether a walk is needed at all |
//! | [`walk`] | the walk through the work tree |
//! | [`repository`] | one git directory |
//! | [`git_config`], [`git_allow_list`] | a git configuration, and the variables of it that are kept |
//! | [`rebase_todo`] | the todo list of an interrupted rebase |

pub mod baseline;
mod git_allow_list;
mod git_config;
mod quick_check;
mod rebase_todo;
mod repository;
mod walk;

pub use walk::{ScanBounds, UnscannedPaths};

use crate::repository::OutsideGitDirectory;
use baseline::{FileIdentity, GitDirectoryExtent, WorkspaceBaseline};
use rustix::fs::{AtFlags, FileType, RawDir, Statx, StatxFlags};
use saggar_policy::protect::WORK_TREE_NAMES;
use saggar_sandbox::spec::PinnedPath;
use saggar_sandbox::state::base64_bytes::Base64Bytes;
use saggar_sys::file::{self, Resolve};
use saggar_sys::{Errno, SysResult};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A file or directory that is dangerous for the host.
#[derive(Debug)]
pub struct QuarantineFinding {
    /// Its parent directory.
    pub directory: OwnedFd,
    /// Its name in the parent directory.
    pub name: OsString,
    /// Its path, relative to the workspace.
    pub path: PathBuf,
    /// The reason, for people.
    pub reason: String,
    /// The action to take.
    pub action: QuarantineAction,
}

/// The action to take on a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuarantineAction {
    /// Move it out of the workspace.
    Move,
    /// Move it out of the workspace and create a file with this content in its place.
    Replace(Vec<u8>),
    /// Move it out of the workspace and create an empty directory in its place.
    EmptyDirectory,
    /// Report it to the user.
    Report,
}

/// Receives the findings.
pub(crate) type FindingFn<'a> = &'a mut dyn FnMut(QuarantineFinding);

/// Scans one workspace.
#[derive(Debug)]
pub struct WorkspaceScanner {
    root: OwnedFd,
    workspace: PathBuf,
    baseline: WorkspaceBaseline,
}

const APPEARED_REASON: &str = "appeared under a protected name";

impl AsFd for WorkspaceScanner {
    /// The workspace directory.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

impl WorkspaceScanner {
    /// Records the state of `workspace`. `policy_paths` are protected paths of the policy, `pins` the paths
    /// that programs cannot write. Must be called before any program runs, and after the start has created
    /// missing paths.
    ///
    /// # Errors
    /// Those of open(2) for the workspace.
    pub fn new(
        workspace: &Path,
        git_config: bool,
        policy_paths: &[&Path],
        pins: &[PinnedPath],
    ) -> SysResult<Self> {
        let more_bytes = policy_paths.iter().map(|path| Base64Bytes::from_path(path)).collect();
        let expected =
            WorkspaceBaseline { git_config, policy_paths: more_bytes, ..WorkspaceBaseline::default() };
        let mut it = Self::open(workspace, expected)?;
        let there = it.top_level_names();
        for name in top_protected_names(policy_paths) {
            // Most names are missing; one read of the directory finds all of them.
            match &there {
                Some(there) if !first_part_is_in(there, name) => {
                    it.baseline.missing.push(Base64Bytes::from_path(name))
                }
                _ => it.record_missing(name),
            }
        }
        it.baseline.record(&it.root, workspace, pins);
        Ok(it)
    }

    /// As [`Self::new`], for the git directory of a workspace, which is outside of it. `unresolved` are missing paths that its
    /// configuration names.
    ///
    /// # Errors
    /// Those of open(2) for the directory.
    pub fn of_git_directory(
        git: &OutsideGitDirectory,
        git_config: bool,
        unresolved: &[PathBuf],
        pins: &[PinnedPath],
    ) -> SysResult<Self> {
        let bytes = |paths: &[PathBuf]| paths.iter().map(|path| Base64Bytes::from_path(path)).collect();
        let expected = WorkspaceBaseline {
            git_config,
            git_directory: Some(GitDirectoryExtent {
                worktree: git.worktree.as_deref().map(Base64Bytes::from_path),
                foreign: bytes(&git.foreign),
            }),
            policy_paths: bytes(unresolved),
            missing: bytes(unresolved),
            ..WorkspaceBaseline::default()
        };
        let mut it = Self::open(&git.common, expected)?;
        it.baseline.record(&it.root, &git.common, pins);
        Ok(it)
    }

    fn open(workspace: &Path, expected: WorkspaceBaseline) -> SysResult<Self> {
        let root = baseline::open_workspace(workspace)?;
        // The clock of time stamps: files created from now on have a later time stamp, or an equal one.
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_REALTIME_COARSE)?;
        let since = nanoseconds(now.tv_sec(), now.tv_nsec());
        let baseline = WorkspaceBaseline { since_ns: since, ..expected };
        Ok(WorkspaceScanner { root, workspace: workspace.to_owned(), baseline })
    }

    /// The path of the tree.
    pub fn path(&self) -> &Path {
        &self.workspace
    }

    /// As [`Self::new`], for a workspace whose sandbox has lost its supervisor.
    ///
    /// # Errors
    /// Those of open(2) for the workspace.
    pub fn resume(workspace: &Path, baseline: WorkspaceBaseline) -> SysResult<Self> {
        Ok(WorkspaceScanner {
            root: baseline::open_workspace(workspace)?,
            workspace: workspace.to_owned(),
            baseline,
        })
    }

    /// The recorded state, for a scan by a later process.
    pub fn baseline(&self) -> &WorkspaceBaseline {
        &self.baseline
    }

    /// Records `name` if it is missing. A dangling link is pinned, and its target is recorded as missing.
    #[expect(
        clippy::disallowed_methods,
        reason = "what comes of it is a name, which is walked beneath the descriptor before anything is done with it"
    )]
    fn record_missing(&mut self, name: &Path) {
        let workspace = &self.workspace;
        let (parent, last) = (name.parent().unwrap_or(Path::new("")), name.file_name().unwrap_or_default());
        let relative = if parent.as_os_str().is_empty() || workspace.join(parent).symlink_metadata().is_err()
        {
            Some(name.to_owned())
        } else {
            resolve_in_workspace(workspace, parent).map(|parent| parent.join(last))
        };
        let Some(place) = relative else { return };
        if workspace.join(&place).symlink_metadata().is_err() {
            self.baseline.missing.push(Base64Bytes::from_path(&place));
        } else if let Ok(target) = workspace.join(&place).read_link()
            && !workspace.join(&place).exists()
            && let (Some(above), Some(last)) = (place.parent(), target.file_name())
            && let Some(directory) =
                resolve_in_workspace(workspace, &above.join(target.parent().unwrap_or(Path::new(""))))
        {
            self.baseline.missing.push(Base64Bytes::from_path(&directory.join(last)));
        }
    }

    /// The names at the top level; `None` if there are too many.
    fn top_level_names(&self) -> Option<HashSet<OsString>> {
        let here = OpenDirectory { path: Path::new(""), directory: self.root.as_fd() };
        let (files, directories) = here.entries(MAX_TOP_NAMES).ok()?;
        (files.len() + directories.len() < MAX_TOP_NAMES)
            .then(|| files.into_iter().chain(directories).collect())
    }

    /// Scans for the names that were missing, and for a repository at the top level if there was none.
    pub fn scan_missing_names(&self, on_finding: FindingFn<'_>) {
        let here = OpenDirectory { path: Path::new(""), directory: self.root.as_fd() };
        let there = self.top_level_names();
        let is_there = |name: &Path| there.as_ref().is_none_or(|there| first_part_is_in(there, name));
        for name in self.baseline.missing.iter().map(Base64Bytes::as_path).filter(|name| is_there(name)) {
            if name == Path::new(".git") {
                walk::scan_new_repository(&self.root, &self.workspace, &self.baseline, on_finding);
            } else {
                scan_name(&here, name, on_finding);
            }
        }
    }

    /// Whether a scan cannot find anything: the work tree is small and has no name that is scanned. Does
    /// not allocate.
    pub fn is_trivially_clean(&self) -> bool {
        quick_check::is_trivially_clean(self.root.as_fd(), &self.baseline)
    }

    /// As [`Self::scan_missing_names`]. Also finds everything in the work tree that was created or changed
    /// since the start and that git, shells and editors of the host would run or obey, and pinned paths
    /// that are another file now. Returns the paths that exceeded `bounds`.
    pub fn scan_all(&self, bounds: ScanBounds, on_finding: FindingFn<'_>) -> UnscannedPaths {
        self.scan_missing_names(on_finding);
        self.scan_replaced_pins(on_finding);
        walk::scan_tree(&self.root, &self.workspace, &self.baseline, bounds, on_finding)
    }

    /// Protected paths that lost their protection, because the host replaced them while programs could
    /// write there: their content may come from the sandbox. Git configurations are checked by the walk.
    fn scan_replaced_pins(&self, on_finding: FindingFn<'_>) {
        const WHY: &str = "was replaced while the sandbox ran, and could be written by it";
        for pin in &self.baseline.pins {
            let path = pin.path.as_path();
            let (Some(name), Some(above)) = (path.file_name(), path.parent()) else { continue };
            let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
            let Ok(directory) = open_directory(self.root.as_fd(), above) else { continue };
            let here = OpenDirectory { path: path.parent().unwrap_or(above), directory: directory.as_fd() };
            let Ok(meta) = here.stat(name) else { continue };
            // Files of a git directory, and directories outside of one, are checked by the walk.
            let in_git = self.baseline.git_directory.is_some() || above.iter().any(|part| part == ".git");
            let is_judged = in_git != pin.is_directory;
            if meta.identity() == pin.identity || !meta.changed(self.baseline.since_ns) || is_judged {
                continue;
            }
            let remedy = match &pin.content {
                Some(_) if self.baseline.has_pinned_content(&here, name) => continue,
                Some(before) => QuarantineAction::Replace(before.0.clone()),
                None if pin.is_directory => QuarantineAction::EmptyDirectory,
                None => QuarantineAction::Move,
            };
            here.report(name, WHY, remedy, on_finding);
        }
    }
}

/// The most names at the top level that are read at once.
const MAX_TOP_NAMES: usize = 2048;

/// The protected names at the top level of a workspace, except `.gitmodules`, which is checked by content.
fn top_protected_names<'a>(policy_paths: &'a [&Path]) -> impl Iterator<Item = &'a Path> {
    let table = WORK_TREE_NAMES.iter().map(Path::new).chain([Path::new(".git")]);
    table.chain(policy_paths.iter().copied()).filter(|name| *name != Path::new(".gitmodules"))
}

fn first_part_is_in(there: &HashSet<OsString>, name: &Path) -> bool {
    name.iter().next().is_some_and(|first| there.contains(first))
}

/// An open directory of the workspace and its path there.
#[derive(Debug, Clone, Copy)]
struct OpenDirectory<'a> {
    path: &'a Path,
    directory: BorrowedFd<'a>,
}

impl OpenDirectory<'_> {
    /// Reports an entry of this directory. It is skipped if the directory's descriptor cannot be
    /// duplicated.
    fn report(
        &self,
        name: &OsStr,
        reason: impl Into<String>,
        action: QuarantineAction,
        on_finding: &mut dyn FnMut(QuarantineFinding),
    ) {
        if let Ok(directory) = self.directory.try_clone_to_owned() {
            let path = self.path.join(name);
            on_finding(QuarantineFinding {
                directory,
                name: name.to_owned(),
                path,
                reason: reason.into(),
                action,
            });
        }
    }

    /// Reports an entry below this directory.
    fn report_below(
        &self,
        path: &Path,
        reason: impl Into<String>,
        action: QuarantineAction,
        on_finding: &mut dyn FnMut(QuarantineFinding),
    ) {
        let (Some(name), Some(above)) = (path.file_name(), path.parent()) else { return };
        if above.as_os_str().is_empty() {
            return self.report(name, reason, action, on_finding);
        }
        if let Ok(directory) = open_directory(self.directory, above) {
            let at = self.path.join(above);
            OpenDirectory { path: &at, directory: directory.as_fd() }
                .report(name, reason, action, on_finding);
        }
    }

    /// The metadata of `name`; links are not followed.
    fn stat(&self, name: &OsStr) -> SysResult<ScanMeta> {
        let file = file::open(self.directory, &file::c_path(name)?, OPEN_PATH, 0, Resolve::BeneathNoLinks)?;
        ScanMeta::of(file.as_fd())
    }

    /// The target of the link `name`.
    fn read_link(&self, name: &OsStr) -> Option<OsString> {
        let target = rustix::fs::readlinkat(self.directory, name, Vec::new()).ok()?;
        Some(OsString::from_vec(target.into_bytes()))
    }

    /// The names in it: of files and other non-directories, and of directories. Stops after `limit` names,
    /// when the current buffer is consumed.
    fn entries(&self, limit: usize) -> SysResult<(Vec<OsString>, Vec<OsString>)> {
        let own = self.open_again()?;
        let (files, directories, _) = self.read_entries(own.as_fd(), limit, &|_, _| true)?;
        Ok((files, directories))
    }

    /// A new open file description, with its own directory offset.
    fn open_again(&self) -> SysResult<OwnedFd> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        file::open(self.directory, c".", flags, 0, Resolve::BeneathNoLinks)
    }

    /// Reads names through `own`, an unread descriptor of the directory. Files are filtered by `keep`. The
    /// third value is the number of names read.
    fn read_entries(
        &self,
        own: BorrowedFd<'_>,
        limit: usize,
        keep: &dyn Fn(&OsStr, FileType) -> bool,
    ) -> SysResult<(Vec<OsString>, Vec<OsString>, usize)> {
        // On the heap: for a stack frame of this size every page is touched (stack probes), in this buffer
        // only the used part.
        let mut buffer = Vec::with_capacity(1 << 15);
        let mut entries = RawDir::new(own, buffer.spare_capacity_mut());
        let (mut files, mut directories, mut count) = (Vec::new(), Vec::new(), 0);
        while count < limit
            && let Some(entry) = entries.next()
        {
            let entry = entry.map_err(|e| Errno::from_raw(e.raw_os_error()))?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            count += 1;
            let is_directory = match entry.file_type() {
                FileType::Directory => true,
                FileType::Unknown => self.stat(name).is_ok_and(|meta| meta.is_dir()),
                _ => false,
            };
            if is_directory {
                directories.push(name.to_owned());
            } else if keep(name, entry.file_type()) {
                files.push(name.to_owned());
            }
        }
        Ok((files, directories, count))
    }

    /// The names of the links and of the directories in it. Stops after `limit` names, when the current buffer is consumed.
    fn links(&self, limit: usize) -> SysResult<(Vec<OsString>, Vec<OsString>, usize)> {
        let own = self.open_again()?;
        let is_link = |name: &OsStr, kind: FileType| match kind {
            FileType::Unknown => self.stat(name).is_ok_and(|meta| meta.is_link()),
            kind => kind == FileType::Symlink,
        };
        self.read_entries(own.as_fd(), limit, &is_link)
    }

    /// All names in it, unless there are more than `limit`.
    fn names(&self, limit: usize) -> SysResult<Vec<OsString>> {
        let (mut names, directories) = self.entries(limit + 1)?;
        names.extend(directories);
        names.sort_unstable();
        if names.len() > limit { Err(Errno::E2BIG) } else { Ok(names) }
    }

    /// Removes all execute bits of the regular file `name`.
    fn remove_execute_bits(&self, name: &OsStr, meta: &ScanMeta) {
        let Ok(path) = file::c_path(name) else { return };
        let Ok(file) = file::open(self.directory, &path, OPEN_PATH, 0, Resolve::BeneathNoLinks) else {
            return;
        };
        if meta.mode & 0o111 != 0 && ScanMeta::of(file.as_fd()).is_ok_and(|now| now.is_file()) {
            let _ = file::set_mode(file.as_fd(), meta.mode & 0o666);
        }
    }
}

/// Metadata of a file that was not opened.
#[derive(Debug, Clone, Copy)]
struct ScanMeta {
    mode: u32,
    links: u32,
    /// The change time in nanoseconds, which programs cannot set (inode(7)).
    ctime: i128,
    device: u64,
    inode: u64,
}

impl ScanMeta {
    /// The metadata of an open file, O_PATH or not.
    fn of(file: BorrowedFd<'_>) -> SysResult<Self> {
        let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
        stat.map(|stat| ScanMeta::from(&stat)).map_err(|e| Errno::from_raw(e.raw_os_error()))
    }

    fn kind(&self) -> u32 {
        self.mode & libc::S_IFMT
    }

    fn is_file(&self) -> bool {
        self.kind() == libc::S_IFREG
    }

    fn is_dir(&self) -> bool {
        self.kind() == libc::S_IFDIR
    }

    fn is_link(&self) -> bool {
        self.kind() == libc::S_IFLNK
    }

    fn identity(&self) -> FileIdentity {
        FileIdentity(self.device, self.inode)
    }

    /// Whether it was changed at or after `since`, in nanoseconds.
    fn changed(&self, since: i128) -> bool {
        self.ctime >= since
    }
}

impl From<&Statx> for ScanMeta {
    fn from(stat: &Statx) -> Self {
        ScanMeta {
            mode: u32::from(stat.stx_mode),
            links: stat.stx_nlink,
            ctime: nanoseconds(stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec.into()),
            device: u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor),
            inode: stat.stx_ino,
        }
    }
}

pub(crate) fn nanoseconds(seconds: i64, nanos: i64) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(nanos)
}

const OPEN_PATH: i32 = libc::O_PATH | libc::O_NOFOLLOW;

/// Checks one name that was missing. A link on the way is new, and is treated like the name itself.
fn scan_name(root: &OpenDirectory<'_>, name: &Path, on_finding: FindingFn<'_>) {
    let mut parts = name.iter().peekable();
    let (mut directory, mut path) = (None::<OwnedFd>, PathBuf::new());
    while let Some(part) = parts.next() {
        let here =
            OpenDirectory { path: &path, directory: directory.as_ref().map_or(root.directory, AsFd::as_fd) };
        let is_last = parts.peek().is_none();
        match here.stat(part) {
            Ok(_) if is_last => {
                return here.report(part, APPEARED_REASON, QuarantineAction::Move, on_finding);
            }
            Ok(meta) if meta.is_link() => {
                return here.report(
                    part,
                    "a link that leads to a protected name",
                    QuarantineAction::Move,
                    on_finding,
                );
            }
            Ok(meta) if meta.is_dir() => {}
            Err(Errno::EACCES) => {
                return here.report(part, "it cannot be looked at", QuarantineAction::Report, on_finding);
            }
            _ => return,
        }
        match open_directory(here.directory, Path::new(part)) {
            Ok(next) => directory = Some(next),
            Err(_) => return,
        }
        path.push(part);
    }
}

fn open_directory(above: BorrowedFd<'_>, path: &Path) -> SysResult<OwnedFd> {
    file::open(above, &file::c_path(path)?, OPEN_PATH | libc::O_DIRECTORY, 0, Resolve::BeneathNoLinks)
}

/// Opens a directory for reading, even if a program removed its owner's permissions: git on the host might
/// still read it.
fn open_readable(above: BorrowedFd<'_>, path: &Path) -> SysResult<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let open = || file::open(above, &file::c_path(path)?, flags, 0, Resolve::BeneathNoLinks);
    match open() {
        Err(Errno::EACCES) => {
            let itself = open_directory(above, path)?;
            let mode = ScanMeta::of(itself.as_fd())?.mode & 0o7777 | 0o700;
            file::set_mode(itself.as_fd(), mode)?;
            open()
        }
        other => other,
    }
}

/// Reads a regular file of a bounded size. The type is checked on an O_PATH descriptor, which opens
/// nothing; then that same file is opened.
fn read_bounded(at: BorrowedFd<'_>, path: &Path, limit: u64) -> Option<Vec<u8>> {
    let named = file::open(at, &file::c_path(path).ok()?, OPEN_PATH, 0, Resolve::BeneathNoLinks).ok()?;
    if !ScanMeta::of(named.as_fd()).ok()?.is_file() {
        return None;
    }
    let file = File::from(file::reopen(named.as_fd(), libc::O_RDONLY | libc::O_NONBLOCK).ok()?);
    if file.metadata().ok()?.len() > limit {
        return None;
    }
    let mut text = Vec::new();
    file.take(limit + 1).read_to_end(&mut text).ok()?;
    (text.len() as u64 <= limit).then_some(text)
}

/// Canonicalizes `path`, if it exists and is in the workspace.
#[expect(
    clippy::disallowed_methods,
    reason = "what comes of it is a name, which is walked beneath the descriptor before anything is done with it"
)]
fn resolve_in_workspace(workspace: &Path, path: &Path) -> Option<PathBuf> {
    let real = workspace.join(path).canonicalize().ok()?;
    real.strip_prefix(workspace).ok().map(Path::to_owned)
}
