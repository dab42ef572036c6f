//! What a sandbox left in a workspace that the host's next ordinary commands would run (DECISIONS 34). What was there at
//! the start is pinned; a bind needs something to lie on, so what was not there can only be looked for afterwards.
//!
//! Two looks: [`Watched::names`] asks for the names that were missing, a few dozen calls, and is made while
//! programs run; [`Watched::everything`] walks the work tree for repositories too, and is made when all of
//! them are dead. Both go by descriptors, follow no link and open no file but a regular one. What they need to know of
//! the start is [`recorded::Recorded`], so a later process can make the last look as well.
//!
//! | module | what it is |
//! |---|---|
//! | [`recorded`] | what there was at the start |
//! | [`walk`] | the walk through the work tree |
//! | [`repository`] | one git directory |
//! | [`config`], [`allowed`] | a git configuration, and the variables of it that stay |
//! | [`todo`] | the list of an interrupted rebase |

mod allowed;
mod config;
pub mod recorded;
mod repository;
mod todo;
mod walk;

pub use walk::{Bounds, Unseen};

use crate::spec::Pin;
use crate::spec::protect::WORK_TREE;
use crate::sys::file::{self, Resolve};
use crate::sys::{Errno, SysResult};
use recorded::{Bytes, Identity, Recorded};
use rustix::fs::{AtFlags, FileType, RawDir, Statx, StatxFlags};
use std::collections::HashSet;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Something that the host should not find where it is.
#[derive(Debug)]
pub struct Found {
    /// The directory that it is in.
    pub directory: OwnedFd,
    /// Its name there.
    pub name: OsString,
    /// Its path in the workspace.
    pub path: PathBuf,
    /// What it is, for people.
    pub why: String,
    /// What is to be done about it.
    pub remedy: Remedy,
}

/// What is to be done about something that appeared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// Out of the workspace with it.
    Move,
    /// The same, and a new file with this content takes its place.
    Replace(Vec<u8>),
    /// The same, and an empty directory takes its place.
    Empty,
    /// The user is told.
    Report,
}

/// Takes what is found.
pub type Take<'a> = &'a mut dyn FnMut(Found);

/// What to look for in one workspace.
#[derive(Debug)]
pub struct Watched {
    root: OwnedFd,
    workspace: PathBuf,
    recorded: Recorded,
}

const APPEARED: &str = "appeared under a protected name";

impl AsFd for Watched {
    /// The workspace.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

impl Watched {
    /// Remembers what `workspace` has and has not; `more` are protected paths of the policy, `pins` what programs cannot
    /// write. Call it before any program runs, and after a start made what is missing.
    ///
    /// # Errors
    /// Those of open(2) for the workspace.
    pub fn new(workspace: &Path, git_config: bool, more: &[&Path], pins: &[Pin]) -> SysResult<Self> {
        let root = recorded::open_root(workspace)?;
        // The clock of time stamps: what is made from now on has a later one, or the same.
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_REALTIME_COARSE)?;
        let since = nanoseconds(now.tv_sec(), now.tv_nsec());
        let more_bytes = more.iter().map(|path| Bytes::of(path)).collect();
        let recorded = Recorded { since, git_config, more: more_bytes, ..Recorded::default() };
        let mut it = Watched { root, workspace: workspace.to_owned(), recorded };
        let there = it.top();
        for name in names_at_top(more) {
            // Most are not there, and one look at the directory says so for all.
            match &there {
                Some(there) if !starts_with_one_of(there, name) => it.recorded.missing.push(Bytes::of(name)),
                _ => it.note(name),
            }
        }
        it.recorded.note(&it.root, workspace, pins);
        Ok(it)
    }

    /// The same for a workspace whose sandbox has lost its supervisor.
    ///
    /// # Errors
    /// Those of open(2) for the workspace.
    pub fn again(workspace: &Path, recorded: Recorded) -> SysResult<Self> {
        Ok(Watched { root: recorded::open_root(workspace)?, workspace: workspace.to_owned(), recorded })
    }

    /// What a later process needs to know.
    pub fn recorded(&self) -> &Recorded {
        &self.recorded
    }

    /// Notes `name` when it is missing. A link that leads to nothing is pinned, and what it leads to missing.
    #[expect(
        clippy::disallowed_methods,
        reason = "what comes of it is a name, which is walked beneath the descriptor before anything is done with it"
    )]
    fn note(&mut self, name: &Path) {
        let workspace = &self.workspace;
        let (parent, last) = (name.parent().unwrap_or(Path::new("")), name.file_name().unwrap_or_default());
        let place = if parent.as_os_str().is_empty() || workspace.join(parent).symlink_metadata().is_err() {
            Some(name.to_owned())
        } else {
            real(workspace, parent).map(|parent| parent.join(last))
        };
        let Some(place) = place else { return };
        if workspace.join(&place).symlink_metadata().is_err() {
            self.recorded.missing.push(Bytes::of(&place));
        } else if let Ok(target) = workspace.join(&place).read_link()
            && !workspace.join(&place).exists()
            && let (Some(above), Some(last)) = (place.parent(), target.file_name())
            && let Some(directory) = real(workspace, &above.join(target.parent().unwrap_or(Path::new(""))))
        {
            self.recorded.missing.push(Bytes::of(&directory.join(last)));
        }
    }

    /// The names at the top, unless they are very many.
    fn top(&self) -> Option<HashSet<OsString>> {
        let here = Here { path: Path::new(""), directory: self.root.as_fd() };
        let (files, directories) = here.entries(TOP).ok()?;
        (files.len() + directories.len() < TOP).then(|| files.into_iter().chain(directories).collect())
    }

    /// Looks for the names that were missing, and for a repository at the top when there was none.
    pub fn names(&self, take: Take<'_>) {
        let here = Here { path: Path::new(""), directory: self.root.as_fd() };
        let there = self.top();
        let is_there = |name: &Path| there.as_ref().is_none_or(|there| starts_with_one_of(there, name));
        for name in self.recorded.missing.iter().map(Bytes::as_path).filter(|name| is_there(name)) {
            if name == Path::new(".git") {
                walk::new_repository(&self.root, &self.workspace, &self.recorded, take);
            } else {
                look_for(&here, name, take);
            }
        }
    }

    /// The same, and everything in the work tree that was made or changed since the start and that the host's git,
    /// shells and editors would run or obey; and what was pinned and is another file now. What was too much to look at
    /// is returned.
    pub fn everything(&self, bounds: Bounds, take: Take<'_>) -> Unseen {
        self.names(take);
        self.replaced(take);
        walk::tree(&self.root, &self.workspace, &self.recorded, bounds, take)
    }

    /// Protected paths that lost their protection, as the host replaced them while programs could write there: what is
    /// there now may be the sandbox's. A git configuration is judged by the walk.
    fn replaced(&self, take: Take<'_>) {
        const WHY: &str = "was replaced while the sandbox ran, and could be written by it";
        for pin in &self.recorded.pins {
            let path = pin.path.as_path();
            let (Some(name), Some(above)) = (path.file_name(), path.parent()) else { continue };
            let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
            let Ok(directory) = open_directory(self.root.as_fd(), above) else { continue };
            let here = Here { path: path.parent().unwrap_or(above), directory: directory.as_fd() };
            let Ok(meta) = here.look(name) else { continue };
            // Files of git's, and directories that are not, are judged by the walk.
            let is_judged = above.iter().any(|part| part == ".git") != pin.is_directory;
            if meta.identity() == pin.is || !meta.changed(self.recorded.since) || is_judged {
                continue;
            }
            let remedy = match &pin.content {
                Some(_) if self.recorded.has_its_content(&here, name) => continue,
                Some(before) => Remedy::Replace(before.0.clone()),
                None if pin.is_directory => Remedy::Empty,
                None => Remedy::Move,
            };
            here.found(name, WHY, remedy, take);
        }
    }
}

/// How many names at the top are read at once.
const TOP: usize = 2048;

/// The protected names of the top of a workspace. A list of submodules is judged by what it says.
fn names_at_top<'a>(more: &'a [&Path]) -> impl Iterator<Item = &'a Path> {
    let table = WORK_TREE.iter().map(Path::new).chain([Path::new(".git")]);
    table.chain(more.iter().copied()).filter(|name| *name != Path::new(".gitmodules"))
}

fn starts_with_one_of(there: &HashSet<OsString>, name: &Path) -> bool {
    name.iter().next().is_some_and(|first| there.contains(first))
}

/// An open directory of the workspace and its path there.
#[derive(Debug, Clone, Copy)]
struct Here<'a> {
    path: &'a Path,
    directory: BorrowedFd<'a>,
}

impl Here<'_> {
    /// Something in it. A directory that cannot be held open any more is not looked at.
    fn found(&self, name: &OsStr, why: impl Into<String>, remedy: Remedy, take: &mut dyn FnMut(Found)) {
        if let Ok(directory) = self.directory.try_clone_to_owned() {
            let path = self.path.join(name);
            take(Found { directory, name: name.to_owned(), path, why: why.into(), remedy });
        }
    }

    /// Something below it.
    fn found_below(&self, path: &Path, why: impl Into<String>, remedy: Remedy, take: &mut dyn FnMut(Found)) {
        let (Some(name), Some(above)) = (path.file_name(), path.parent()) else { return };
        if above.as_os_str().is_empty() {
            return self.found(name, why, remedy, take);
        }
        if let Ok(directory) = open_directory(self.directory, above) {
            let at = self.path.join(above);
            Here { path: &at, directory: directory.as_fd() }.found(name, why, remedy, take);
        }
    }

    /// What `name` is, itself and not what it leads to.
    fn look(&self, name: &OsStr) -> SysResult<Meta> {
        let file = file::open(self.directory, &c_path(name)?, OPEN_PATH, 0, Resolve::BeneathNoLinks)?;
        Meta::of(file.as_fd())
    }

    /// What the link `name` says.
    fn link(&self, name: &OsStr) -> Option<OsString> {
        let target = rustix::fs::readlinkat(self.directory, name, Vec::new()).ok()?;
        Some(OsString::from_vec(target.into_bytes()))
    }

    /// The names in it: of files and others, and of directories. At most `limit` of them, and then some.
    fn entries(&self, limit: usize) -> SysResult<(Vec<OsString>, Vec<OsString>)> {
        // A descriptor of its own: the place in the directory belongs to it.
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let own = file::open(self.directory, c".", flags, 0, Resolve::BeneathNoLinks)?;
        let (files, directories, _) = self.read_entries(own.as_fd(), limit, &|_| true)?;
        Ok((files, directories))
    }

    /// The same by `own`, a descriptor of the directory that was not read yet; of files those that `keep` wants, and how
    /// many names there were.
    fn read_entries(
        &self,
        own: BorrowedFd<'_>,
        limit: usize,
        keep: &dyn Fn(&OsStr) -> bool,
    ) -> SysResult<(Vec<OsString>, Vec<OsString>, usize)> {
        let mut buffer = [MaybeUninit::uninit(); 1 << 15];
        let mut entries = RawDir::new(own, &mut buffer);
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
                FileType::Unknown => self.look(name).is_ok_and(|meta| meta.is_dir()),
                _ => false,
            };
            if is_directory {
                directories.push(name.to_owned());
            } else if keep(name) {
                files.push(name.to_owned());
            }
        }
        Ok((files, directories, count))
    }

    /// All names in it, unless there are more than `limit`.
    fn names(&self, limit: usize) -> SysResult<Vec<OsString>> {
        let (mut names, directories) = self.entries(limit + 1)?;
        names.extend(directories);
        names.sort_unstable();
        if names.len() > limit { Err(Errno::E2BIG) } else { Ok(names) }
    }

    /// Lets nobody execute the regular file `name`.
    fn take_execute_bits(&self, name: &OsStr, meta: &Meta) {
        let Ok(path) = c_path(name) else { return };
        let Ok(file) = file::open(self.directory, &path, OPEN_PATH, 0, Resolve::BeneathNoLinks) else {
            return;
        };
        if meta.mode & 0o111 != 0 && Meta::of(file.as_fd()).is_ok_and(|now| now.is_file()) {
            let _ = file::set_mode(file.as_fd(), meta.mode & 0o666);
        }
    }
}

/// What is known of a file without opening it.
#[derive(Debug, Clone, Copy)]
struct Meta {
    mode: u32,
    links: u32,
    /// When anything of it was changed, in nanoseconds: this cannot be set (inode(7)).
    ctime: i128,
    device: u64,
    inode: u64,
}

impl Meta {
    /// That of an open file, O_PATH or not.
    fn of(file: BorrowedFd<'_>) -> SysResult<Self> {
        let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
        stat.map(|stat| Meta::from(&stat)).map_err(|e| Errno::from_raw(e.raw_os_error()))
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

    fn identity(&self) -> Identity {
        Identity(self.device, self.inode)
    }

    /// Whether it was changed since `since`, in nanoseconds.
    fn changed(&self, since: i128) -> bool {
        self.ctime >= since
    }
}

impl From<&Statx> for Meta {
    fn from(stat: &Statx) -> Self {
        Meta {
            mode: u32::from(stat.stx_mode),
            links: stat.stx_nlink,
            ctime: nanoseconds(stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec.into()),
            device: u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor),
            inode: stat.stx_ino,
        }
    }
}

fn nanoseconds(seconds: i64, nanos: i64) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(nanos)
}

const OPEN_PATH: i32 = libc::O_PATH | libc::O_NOFOLLOW;

/// Asks for one name that was missing. A link on its way is new, and as good as the name itself.
fn look_for(root: &Here<'_>, name: &Path, take: Take<'_>) {
    let mut parts = name.iter().peekable();
    let (mut directory, mut path) = (None::<OwnedFd>, PathBuf::new());
    while let Some(part) = parts.next() {
        let here = Here { path: &path, directory: directory.as_ref().map_or(root.directory, AsFd::as_fd) };
        let is_last = parts.peek().is_none();
        match here.look(part) {
            Ok(_) if is_last => return here.found(part, APPEARED, Remedy::Move, take),
            Ok(meta) if meta.is_link() => {
                return here.found(part, "a link that leads to a protected name", Remedy::Move, take);
            }
            Ok(meta) if meta.is_dir() => {}
            Err(Errno::EACCES) => return here.found(part, "it cannot be looked at", Remedy::Report, take),
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
    file::open(above, &c_path(path)?, OPEN_PATH | libc::O_DIRECTORY, 0, Resolve::BeneathNoLinks)
}

/// Opens a directory to read it, also one that a program closed to its owner: git would find what is in it.
fn open_anyway(above: BorrowedFd<'_>, path: &Path) -> SysResult<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let open = || file::open(above, &c_path(path)?, flags, 0, Resolve::BeneathNoLinks);
    match open() {
        Err(Errno::EACCES) => {
            let itself = open_directory(above, path)?;
            let mode = Meta::of(itself.as_fd())?.mode & 0o7777 | 0o700;
            file::set_mode(itself.as_fd(), mode)?;
            open()
        }
        other => other,
    }
}

/// The content of a regular file of a bounded size. Nothing else is ever opened: what it is, is asked of a descriptor
/// that only names it (O_PATH), and that very file is opened then.
fn read(at: BorrowedFd<'_>, path: &Path, limit: u64) -> Option<Vec<u8>> {
    let named = file::open(at, &c_path(path).ok()?, OPEN_PATH, 0, Resolve::BeneathNoLinks).ok()?;
    if !Meta::of(named.as_fd()).ok()?.is_file() {
        return None;
    }
    let file = File::from(file::open_again(named.as_fd(), libc::O_RDONLY | libc::O_NONBLOCK).ok()?);
    if file.metadata().ok()?.len() > limit {
        return None;
    }
    let mut text = Vec::new();
    file.take(limit + 1).read_to_end(&mut text).ok()?;
    (text.len() as u64 <= limit).then_some(text)
}

fn c_path(path: impl AsRef<OsStr>) -> SysResult<CString> {
    CString::new(path.as_ref().as_bytes()).map_err(|_| Errno::EINVAL)
}

/// The place of `path` without links, when it is there and in the workspace.
#[expect(
    clippy::disallowed_methods,
    reason = "what comes of it is a name, which is walked beneath the descriptor before anything is done with it"
)]
fn real(workspace: &Path, path: &Path) -> Option<PathBuf> {
    let real = workspace.join(path).canonicalize().ok()?;
    real.strip_prefix(workspace).ok().map(Path::to_owned)
}
