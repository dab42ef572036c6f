//! Access to files below a directory that another user controls: only by descriptors, one name at a time, without
//! following links and without blocking. The type of a file is read from the opened descriptor. These functions allocate.
//!
//! Their errors are those of openat2(2), ELOOP for a link and EXDEV for a path that leads out among them, and of the call
//! that a function is named after, unless it says more.

use crate::file::set_mode;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, RawDir, ResolveFlags, Statx, StatxFlags, Timespec, Timestamps};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// Any other type: a FIFO, a socket, a device.
    Other(&'static str),
}

impl FileKind {
    /// The type as a word for messages.
    pub fn name(self) -> &'static str {
        match self {
            FileKind::File => "file",
            FileKind::Directory => "directory",
            FileKind::Symlink => "link",
            FileKind::Other(name) => name,
        }
    }
}

/// Metadata of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMeta {
    /// Its type.
    pub kind: FileKind,
    /// Permissions with set-id and sticky bits.
    pub mode: u32,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change of the content, in nanoseconds since the Unix epoch.
    pub mtime: i128,
    /// Time of the last change of the inode, in nanoseconds since the Unix epoch.
    pub ctime: i128,
    /// Inode number.
    pub inode: u64,
    /// Major and minor number of its file system.
    pub device: (u32, u32),
    /// Number of its hard links.
    pub links: u32,
    /// User and group id of the owner.
    pub owner: (u32, u32),
    /// Whether it is the character device 0:0, which marks a deleted name in an overlay.
    pub is_whiteout: bool,
}

impl FileMeta {
    fn from_statx(stat: &Statx) -> Self {
        let mode = u32::from(stat.stx_mode);
        let kind = match mode & libc::S_IFMT {
            libc::S_IFREG => FileKind::File,
            libc::S_IFDIR => FileKind::Directory,
            libc::S_IFLNK => FileKind::Symlink,
            libc::S_IFIFO => FileKind::Other("FIFO"),
            libc::S_IFSOCK => FileKind::Other("socket"),
            _ => FileKind::Other("device"),
        };
        let time = |sec: i64, nsec: u32| i128::from(sec) * 1_000_000_000 + i128::from(nsec);
        let character = mode & libc::S_IFMT == libc::S_IFCHR;
        FileMeta {
            kind,
            mode: mode & 0o7777,
            size: stat.stx_size,
            mtime: time(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
            ctime: time(stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
            inode: stat.stx_ino,
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            links: stat.stx_nlink,
            owner: (stat.stx_uid, stat.stx_gid),
            is_whiteout: character && stat.stx_rdev_major == 0 && stat.stx_rdev_minor == 0,
        }
    }

    /// [`Self::mtime`] in seconds and nanoseconds.
    pub fn mtime_parts(&self) -> (i64, u32) {
        const SECOND: i128 = 1_000_000_000;
        let seconds = i64::try_from(self.mtime.div_euclid(SECOND)).unwrap_or(0);
        (seconds, u32::try_from(self.mtime.rem_euclid(SECOND)).unwrap_or(0))
    }

    /// Whether it has a set-id bit.
    pub fn has_set_id(&self) -> bool {
        self.kind != FileKind::Directory && self.mode & 0o6000 != 0
            || self.kind == FileKind::Directory && self.mode & 0o4000 != 0
    }
}

/// A time in seconds and nanoseconds, as the time of the last access and of the last change of a file.
pub fn timestamps((seconds, nanos): (i64, u32)) -> Timestamps {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanos.into() };
    Timestamps { last_access: time, last_modification: time }
}

/// Opens the directory `path`, which the operator named.
#[expect(
    clippy::disallowed_methods,
    reason = "the directory itself, which the operator named; all else is beneath this descriptor"
)]
pub fn open_root(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Most attempts to open a file that is being moved.
const MAX_TRIES: usize = 1000;

/// Opens a file at a relative path that has no link in it, with flags of open(2), and `mode` with O_CREAT.
pub fn open(at: BorrowedFd<'_>, path: &Path, flags: OFlags, mode: u32) -> io::Result<OwnedFd> {
    open_with_resolve(at, path, flags, mode, ResolveFlags::NO_SYMLINKS)
}

/// Opens the symbolic link `name` in `at` itself (`O_PATH`), or another file of that name.
pub fn open_link(at: BorrowedFd<'_>, name: &Path) -> io::Result<OwnedFd> {
    open(at, name, OFlags::PATH, 0)
}

fn open_with_resolve(
    at: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    mode: u32,
    how: ResolveFlags,
) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | how;
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    // openat2(2) rejects flags that have no effect with O_PATH.
    let terminal = if flags.contains(OFlags::PATH) { OFlags::empty() } else { OFlags::NOCTTY };
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | terminal;
    let mut tries = MAX_TRIES;
    loop {
        // EAGAIN: a rename happened meanwhile, and the kernel cannot tell whether the path stayed beneath; or a program
        // has a lease on the file, which it must release first (fcntl(2)), and may keep for 45 seconds.
        match rustix::fs::openat2(at, path, flags, Mode::from_raw_mode(mode), resolve) {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) if tries > 0 => tries -= 1,
            other => return Ok(other?),
        }
    }
}

/// Opens a directory below `at`, following no link.
pub fn open_directory(at: BorrowedFd<'_>, path: impl AsRef<Path>) -> io::Result<OwnedFd> {
    open(at, path.as_ref(), OFlags::RDONLY | OFlags::DIRECTORY, 0)
}

/// Opens the directory `path` below `at`, following no link, and creates it and those above it that are missing, with
/// this mode less the umask.
pub fn create_directories(at: BorrowedFd<'_>, path: &Path, mode: u32) -> io::Result<OwnedFd> {
    let mut directory = at.try_clone_to_owned()?;
    for name in path {
        match rustix::fs::mkdirat(&directory, name, Mode::from_raw_mode(mode)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        directory = open_directory(directory.as_fd(), name)?;
    }
    Ok(directory)
}

/// Like [`open_directory`], and crosses no mount.
pub fn open_directory_no_mounts(at: BorrowedFd<'_>, path: impl AsRef<Path>) -> io::Result<OwnedFd> {
    let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    open_with_resolve(at, path.as_ref(), OFlags::RDONLY | OFlags::DIRECTORY, 0, how)
}

/// Whether a mount lies at `name` in `at`. A rename from another mount namespace would take it away (rename(2) fails with
/// EBUSY in its own alone).
pub fn is_mount_point(at: BorrowedFd<'_>, name: &Path) -> io::Result<bool> {
    let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match open_with_resolve(at, name, OFlags::PATH, 0, how) {
        Err(error) if error.raw_os_error() == Some(libc::EXDEV) => Ok(true),
        other => other.map(|_| false),
    }
}

/// Opens a regular file below `at` for reading, following no link; returns it with its metadata.
pub fn open_file(at: BorrowedFd<'_>, path: impl AsRef<Path>) -> io::Result<(File, FileMeta)> {
    let file = File::from(open(at, path.as_ref(), OFlags::RDONLY | OFlags::NONBLOCK, 0)?);
    let meta = stat_fd(file.as_fd())?;
    if meta.kind != FileKind::File {
        return Err(io::Error::other(format!("it is a {} now", meta.kind.name())));
    }
    Ok((file, meta))
}

/// A directory or file that was opened although its mode denies access to its owner. Its mode grants the owner access
/// until this is dropped.
#[derive(Debug)]
pub struct ModeOverride<T> {
    /// The opened descriptor.
    pub opened: T,
    original_mode: Option<(OwnedFd, Mode)>,
}

impl<T> Drop for ModeOverride<T> {
    fn drop(&mut self) {
        if let Some((held, own)) = &self.original_mode {
            let _ = set_mode(held.as_fd(), own.as_raw_mode());
        }
    }
}

/// Like [`open_directory`], also if the mode denies access.
pub fn open_directory_overriding_mode(at: BorrowedFd<'_>, name: &Path) -> io::Result<ModeOverride<OwnedFd>> {
    with_mode_override(at, name, Mode::RUSR | Mode::XUSR, || open_directory(at, name))
}

/// Like [`open_file`], also if the mode denies access; the metadata has the original mode.
pub fn open_file_overriding_mode(
    at: BorrowedFd<'_>,
    name: &Path,
) -> io::Result<(ModeOverride<File>, FileMeta)> {
    let lent = with_mode_override(at, name, Mode::RUSR, || Ok(open_file(at, name)?.0))?;
    let mut meta = stat_fd(lent.opened.as_fd())?;
    if let Some((_, own)) = &lent.original_mode {
        meta.mode = own.as_raw_mode();
    }
    Ok((lent, meta))
}

fn with_mode_override<T>(
    at: BorrowedFd<'_>,
    name: &Path,
    mode: Mode,
    open_it: impl Fn() -> io::Result<T>,
) -> io::Result<ModeOverride<T>> {
    match open_it() {
        Err(e) if e.raw_os_error() == Some(libc::EACCES) => {}
        other => return Ok(ModeOverride { opened: other?, original_mode: None }),
    }
    let held = open(at, name, OFlags::PATH, 0)?;
    let own = Mode::from_raw_mode(stat_fd(held.as_fd())?.mode);
    set_mode(held.as_fd(), (own | mode).as_raw_mode())?;
    match open_it() {
        Ok(opened) => Ok(ModeOverride { opened, original_mode: Some((held, own)) }),
        Err(e) => {
            let _ = set_mode(held.as_fd(), own.as_raw_mode());
            Err(e)
        }
    }
}

/// Creates a file below `at`, following no link; the name must not exist.
pub fn create_file(at: BorrowedFd<'_>, path: impl AsRef<Path>, mode: u32) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    Ok(File::from(open(at, path.as_ref(), flags, mode)?))
}

/// Metadata of `name` in `at`; `None` when it does not exist.
pub fn stat_beneath(at: BorrowedFd<'_>, name: impl AsRef<Path>) -> io::Result<Option<FileMeta>> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    match rustix::fs::statx(at, name.as_ref(), flags, StatxFlags::BASIC_STATS) {
        Ok(stat) => Ok(Some(FileMeta::from_statx(&stat))),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Metadata of an open file.
pub fn stat_fd(file: BorrowedFd<'_>) -> io::Result<FileMeta> {
    let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
    Ok(FileMeta::from_statx(&stat))
}

/// The target of the symbolic link `name` in `at`.
pub fn read_link(at: BorrowedFd<'_>, name: impl AsRef<Path>) -> io::Result<PathBuf> {
    let target = rustix::fs::readlinkat(at, name.as_ref(), Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
}

/// The names in a directory, sorted; more than `most` are an error.
pub fn read_names(directory: BorrowedFd<'_>, most: usize) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    // A descriptor of its own, as the read position belongs to the file description.
    let own = open(directory, Path::new("."), OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
    for entry in Dir::new(own)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if names.len() == most {
            return Err(io::Error::other("it has too many entries"));
        }
        names.push(OsStr::from_bytes(name).to_owned());
    }
    names.sort_unstable();
    Ok(names)
}

/// Whether a directory is empty.
pub fn is_empty(directory: BorrowedFd<'_>) -> io::Result<bool> {
    let own = open(directory, Path::new("."), OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
    let mut buffer = [MaybeUninit::uninit(); 1024];
    let mut entries = RawDir::new(own, &mut buffer);
    while let Some(entry) = entries.next() {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// An extended attribute of an open file or directory; `None` when it does not exist or cannot be read.
pub fn read_xattr(file: BorrowedFd<'_>, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 256];
    let len = rustix::fs::fgetxattr(file, name, &mut value[..]).ok()?;
    value.truncate(len);
    Some(value)
}

/// Depth at which [`remove`] moves deeper directories up.
const MAX_DEPTH: usize = 64;

/// Removes `name` in `at` and everything below it, at any depth, following no link. It is not an error if the name does
/// not exist. A mount point is not removed, and is an error.
pub fn remove(at: BorrowedFd<'_>, name: impl AsRef<Path>) -> io::Result<()> {
    let name = name.as_ref();
    match rustix::fs::unlinkat(at, name, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => return Ok(()),
        Err(rustix::io::Errno::ISDIR | rustix::io::Errno::PERM) => {}
        Err(errno) => return Err(errno.into()),
    }
    clear(open_overriding_mode(at, name)?.as_fd())?;
    Ok(rustix::fs::unlinkat(at, name, AtFlags::REMOVEDIR)?)
}

/// Removes everything below the directory `top`, like [`remove`].
pub fn clear(top: BorrowedFd<'_>) -> io::Result<()> {
    let mut deep = Vec::new();
    let mut moved = 0;
    remove_contents(top, top, MAX_DEPTH, &mut moved, &mut deep)?;
    while let Some(next) = deep.pop() {
        let below = open_overriding_mode(top, Path::new(&next))?;
        remove_contents(below.as_fd(), top, MAX_DEPTH, &mut moved, &mut deep)?;
        rustix::fs::unlinkat(top, &next, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

/// Opens a directory even if its mode denies access to its owner; a mount point is an error.
pub fn open_overriding_mode(at: BorrowedFd<'_>, name: &Path) -> io::Result<OwnedFd> {
    let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let itself = open_with_resolve(at, name, OFlags::PATH | OFlags::DIRECTORY, 0, how)?;
    let mode = Mode::from_raw_mode(stat_fd(itself.as_fd())?.mode);
    if !mode.contains(Mode::RWXU) {
        set_mode(itself.as_fd(), (mode | Mode::RWXU).as_raw_mode())?;
    }
    open_directory(itself.as_fd(), ".")
}

fn remove_contents(
    directory: BorrowedFd<'_>,
    top: BorrowedFd<'_>,
    depth: usize,
    moved: &mut usize,
    deep: &mut Vec<OsString>,
) -> io::Result<()> {
    for name in read_names(directory, usize::MAX)? {
        match rustix::fs::unlinkat(directory, &name, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => continue,
            Err(rustix::io::Errno::ISDIR | rustix::io::Errno::PERM) => {}
            Err(errno) => return Err(errno.into()),
        }
        if depth == 0 {
            // Moves it to the top under a free name: no recursion, and a bounded number of descriptors.
            let new = free_name(top, moved)?;
            open_overriding_mode(directory, Path::new(&name))?;
            rustix::fs::renameat(directory, &name, top, &new)?;
            deep.push(new);
            continue;
        }
        let below = open_overriding_mode(directory, Path::new(&name))?;
        remove_contents(below.as_fd(), top, depth - 1, moved, deep)?;
        rustix::fs::unlinkat(directory, &name, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

fn free_name(top: BorrowedFd<'_>, moved: &mut usize) -> io::Result<OsString> {
    loop {
        *moved += 1;
        let name = OsString::from(format!(".saggar-removed-{moved}"));
        if stat_beneath(top, &name)?.is_none() {
            return Ok(name);
        }
    }
}

/// Whether two open files have the same content.
pub fn has_same_content(mut one: &File, mut other: &File) -> io::Result<bool> {
    use std::io::Read;
    let (mut a, mut b) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let count = one.read(&mut a)?;
        if count == 0 {
            return Ok(other.read(&mut b[..1])? == 0);
        }
        match other.read_exact(&mut b[..count]) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            done => done?,
        }
        if a[..count] != b[..count] {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn nothing_is_followed_and_nothing_is_waited_for() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        fs::create_dir(path("top")).unwrap();
        fs::write(path("secret"), "x").unwrap();
        std::os::unix::fs::symlink(path("secret"), path("top/link")).unwrap();
        std::os::unix::fs::symlink(scratch.path(), path("top/up")).unwrap();
        nix::unistd::mkfifo(&path("top/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let top = open_root(&path("top")).unwrap();
        for name in ["link", "up/secret", "../secret", "fifo", "/etc/passwd", "missing"] {
            assert!(open_file(top.as_fd(), name).is_err(), "{name}");
        }
        assert!(open_directory(top.as_fd(), "up").is_err());
        assert!(open_directory(top.as_fd(), "..").is_err());
        assert!(create_file(top.as_fd(), "up/new", 0o600).is_err());
        assert!(create_file(top.as_fd(), "link", 0o600).is_err());
        assert_eq!(read_names(top.as_fd(), 9).unwrap(), ["fifo", "link", "up"]);
        assert!(read_names(top.as_fd(), 2).is_err());
    }

    #[test]
    fn what_is_deep_closed_or_a_link_is_removed_and_nothing_else() {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("stays"), "x").unwrap();
        let top = open_root(scratch.path()).unwrap();
        fs::create_dir(scratch.path().join("tree")).unwrap();
        let mut at = open_directory(top.as_fd(), "tree").unwrap();
        for depth in 0..3000 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            if depth % 50 == 0 {
                rustix::fs::symlinkat(scratch.path(), &at, "link").unwrap();
            }
            at = open_directory(at.as_fd(), "d").unwrap();
        }
        fs::set_permissions(scratch.path().join("tree/d"), fs::Permissions::from_mode(0o000)).unwrap();
        remove(top.as_fd(), "tree").unwrap();
        assert_eq!(read_names(top.as_fd(), 9).unwrap(), ["stays"]);
        remove(top.as_fd(), "tree").unwrap();
    }
}
