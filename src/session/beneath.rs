//! Files below a directory that somebody else made: everything by descriptors, one name at a time, no link followed
//! and nothing waited for. What a name is, is asked of what was opened.

use crate::sys::file::set_mode;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, RawDir, ResolveFlags, Statx, StatxFlags};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// Anything else: a FIFO, a socket, a device.
    Other(&'static str),
}

impl Kind {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Directory => "directory",
            Kind::Link => "link",
            Kind::Other(name) => name,
        }
    }
}

/// What is known of a name without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// What it is.
    pub kind: Kind,
    /// Permissions with set-id and sticky bits.
    pub mode: u32,
    /// Bytes of a file.
    pub size: u64,
    /// When its content was changed, in nanoseconds of the clock.
    pub mtime: i128,
    /// When anything of it was changed.
    pub ctime: i128,
    /// Its inode.
    pub inode: u64,
    /// Its file system.
    pub device: (u32, u32),
    /// How many names it has.
    pub links: u32,
    /// The owner.
    pub owner: (u32, u32),
    /// Whether it is the character device 0:0, with which an overlay says that a name is gone.
    pub is_whiteout: bool,
}

impl Meta {
    fn of(stat: &Statx) -> Self {
        let mode = u32::from(stat.stx_mode);
        let kind = match mode & libc::S_IFMT {
            libc::S_IFREG => Kind::File,
            libc::S_IFDIR => Kind::Directory,
            libc::S_IFLNK => Kind::Link,
            libc::S_IFIFO => Kind::Other("FIFO"),
            libc::S_IFSOCK => Kind::Other("socket"),
            _ => Kind::Other("device"),
        };
        let time = |sec: i64, nsec: u32| i128::from(sec) * 1_000_000_000 + i128::from(nsec);
        let character = mode & libc::S_IFMT == libc::S_IFCHR;
        Meta {
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

    /// Whether it has a set-id bit.
    pub fn has_set_id(&self) -> bool {
        self.kind != Kind::Directory && self.mode & 0o6000 != 0
            || self.kind == Kind::Directory && self.mode & 0o4000 != 0
    }
}

/// The directory `path` that the operator named.
#[expect(
    clippy::disallowed_methods,
    reason = "the directory itself, which the operator named; all else is beneath this descriptor"
)]
pub(super) fn root(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// How often something is opened that is being moved about.
const TRIES: usize = 1000;

pub(super) fn open(at: BorrowedFd<'_>, path: &Path, flags: OFlags, mode: u32) -> io::Result<OwnedFd> {
    resolved(at, path, flags, mode, ResolveFlags::NO_SYMLINKS)
}

/// A symbolic link in `at` itself (`O_PATH`), or what is there in its place.
pub(super) fn open_link(at: BorrowedFd<'_>, name: &Path) -> io::Result<OwnedFd> {
    open(at, name, OFlags::PATH, 0)
}

fn resolved(
    at: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    mode: u32,
    how: ResolveFlags,
) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | how;
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    // openat2(2) takes no flag beside O_PATH that would mean nothing.
    let terminal = if flags.contains(OFlags::PATH) { OFlags::empty() } else { OFlags::NOCTTY };
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | terminal;
    let mut tries = TRIES;
    loop {
        // EAGAIN: something was renamed meanwhile, and the kernel cannot say that nothing has left; or a program has a
        // lease on the file, which it would have to give back first (fcntl(2)), and may keep for 45 seconds.
        match rustix::fs::openat2(at, path, flags, Mode::from_raw_mode(mode), resolve) {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) if tries > 0 => tries -= 1,
            other => return Ok(other?),
        }
    }
}

/// A directory below `at`, over no link.
pub(super) fn directory(at: BorrowedFd<'_>, path: impl AsRef<Path>) -> io::Result<OwnedFd> {
    open(at, path.as_ref(), OFlags::RDONLY | OFlags::DIRECTORY, 0)
}

/// As [`directory`], over no mount either.
pub(super) fn directory_here(at: BorrowedFd<'_>, path: impl AsRef<Path>) -> io::Result<OwnedFd> {
    let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    resolved(at, path.as_ref(), OFlags::RDONLY | OFlags::DIRECTORY, 0, how)
}

/// A regular file below `at`, over no link, for reading, with what it is now.
pub(super) fn file(at: BorrowedFd<'_>, path: impl AsRef<Path>) -> io::Result<(File, Meta)> {
    let file = File::from(open(at, path.as_ref(), OFlags::RDONLY | OFlags::NONBLOCK, 0)?);
    let meta = itself(file.as_fd())?;
    if meta.kind != Kind::File {
        return Err(io::Error::other(format!("it is a {} now", meta.kind.name())));
    }
    Ok((file, meta))
}

/// A directory or a file that its owner has closed to itself, open all the same: as long as this is there, its mode lets
/// the owner in.
#[derive(Debug)]
pub(super) struct Lent<T> {
    /// What was opened.
    pub opened: T,
    held: Option<(OwnedFd, Mode)>,
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        if let Some((held, own)) = &self.held {
            let _ = set_mode(held.as_fd(), own.as_raw_mode());
        }
    }
}

/// As [`directory`], also of one that is closed.
pub(super) fn directory_anyway(at: BorrowedFd<'_>, name: &Path) -> io::Result<Lent<OwnedFd>> {
    anyway(at, name, Mode::RUSR | Mode::XUSR, || directory(at, name))
}

/// As [`file`], also of one that is closed; what it is, with the mode of its own.
pub(super) fn file_anyway(at: BorrowedFd<'_>, name: &Path) -> io::Result<(Lent<File>, Meta)> {
    let lent = anyway(at, name, Mode::RUSR, || Ok(file(at, name)?.0))?;
    let mut meta = itself(lent.opened.as_fd())?;
    if let Some((_, own)) = &lent.held {
        meta.mode = own.as_raw_mode();
    }
    Ok((lent, meta))
}

fn anyway<T>(
    at: BorrowedFd<'_>,
    name: &Path,
    mode: Mode,
    open_it: impl Fn() -> io::Result<T>,
) -> io::Result<Lent<T>> {
    match open_it() {
        Err(e) if e.raw_os_error() == Some(libc::EACCES) => {}
        other => return Ok(Lent { opened: other?, held: None }),
    }
    let held = open(at, name, OFlags::PATH, 0)?;
    let own = Mode::from_raw_mode(itself(held.as_fd())?.mode);
    set_mode(held.as_fd(), (own | mode).as_raw_mode())?;
    match open_it() {
        Ok(opened) => Ok(Lent { opened, held: Some((held, own)) }),
        Err(e) => {
            let _ = set_mode(held.as_fd(), own.as_raw_mode());
            Err(e)
        }
    }
}

/// A new file below `at`, over no link; there must be nothing.
pub(super) fn create(at: BorrowedFd<'_>, path: impl AsRef<Path>, mode: u32) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    Ok(File::from(open(at, path.as_ref(), flags, mode)?))
}

/// What `name` in `at` is; `None` when it is not there.
pub(super) fn look(at: BorrowedFd<'_>, name: impl AsRef<Path>) -> io::Result<Option<Meta>> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    match rustix::fs::statx(at, name.as_ref(), flags, StatxFlags::BASIC_STATS) {
        Ok(stat) => Ok(Some(Meta::of(&stat))),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// What an open file is.
pub(super) fn itself(file: BorrowedFd<'_>) -> io::Result<Meta> {
    let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
    Ok(Meta::of(&stat))
}

/// What the link `name` in `at` says.
pub(super) fn link(at: BorrowedFd<'_>, name: impl AsRef<Path>) -> io::Result<PathBuf> {
    let target = rustix::fs::readlinkat(at, name.as_ref(), Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
}

/// The names in a directory, in order; more than `most` are an error.
pub(super) fn names(directory: BorrowedFd<'_>, most: usize) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    // A descriptor of its own: the place in the directory belongs to it.
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

/// Whether a directory has no entry.
pub(super) fn is_empty(directory: BorrowedFd<'_>) -> io::Result<bool> {
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

/// The attribute of an open file or directory; `None` when there is none of this name, or none at all.
pub(super) fn attribute(file: BorrowedFd<'_>, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 256];
    let len = rustix::fs::fgetxattr(file, name, &mut value[..]).ok()?;
    value.truncate(len);
    Some(value)
}

/// How deep [`remove`] goes before it moves what is deeper up.
const DEEP: usize = 64;

/// Removes `name` in `at` and everything below it, following no link, however deep it is. What is not there is
/// removed already; what is mounted there stays, and is an error.
pub(super) fn remove(at: BorrowedFd<'_>, name: impl AsRef<Path>) -> io::Result<()> {
    let name = name.as_ref();
    match rustix::fs::unlinkat(at, name, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => return Ok(()),
        Err(rustix::io::Errno::ISDIR | rustix::io::Errno::PERM) => {}
        Err(errno) => return Err(errno.into()),
    }
    clear(open_to_change(at, name)?.as_fd())?;
    Ok(rustix::fs::unlinkat(at, name, AtFlags::REMOVEDIR)?)
}

/// Removes everything below the directory `top`, as [`remove`] does.
pub(super) fn clear(top: BorrowedFd<'_>) -> io::Result<()> {
    let mut deep = Vec::new();
    let mut moved = 0;
    empty(top, top, DEEP, &mut moved, &mut deep)?;
    while let Some(next) = deep.pop() {
        let below = open_to_change(top, Path::new(&next))?;
        empty(below.as_fd(), top, DEEP, &mut moved, &mut deep)?;
        rustix::fs::unlinkat(top, &next, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

/// A directory whose mode may let nobody in, which its owner can change; not one that is mounted there.
pub(super) fn open_to_change(at: BorrowedFd<'_>, name: &Path) -> io::Result<OwnedFd> {
    let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let itself = resolved(at, name, OFlags::PATH | OFlags::DIRECTORY, 0, how)?;
    let mode = Mode::from_raw_mode(self::itself(itself.as_fd())?.mode);
    if !mode.contains(Mode::RWXU) {
        set_mode(itself.as_fd(), (mode | Mode::RWXU).as_raw_mode())?;
    }
    directory(itself.as_fd(), ".")
}

fn empty(
    directory: BorrowedFd<'_>,
    top: BorrowedFd<'_>,
    depth: usize,
    moved: &mut usize,
    deep: &mut Vec<OsString>,
) -> io::Result<()> {
    for name in names(directory, usize::MAX)? {
        match rustix::fs::unlinkat(directory, &name, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => continue,
            Err(rustix::io::Errno::ISDIR | rustix::io::Errno::PERM) => {}
            Err(errno) => return Err(errno.into()),
        }
        if depth == 0 {
            // To the top, under a name that is free there: no recursion and no descriptors without end.
            let new = free_name(top, moved)?;
            open_to_change(directory, Path::new(&name))?;
            rustix::fs::renameat(directory, &name, top, &new)?;
            deep.push(new);
            continue;
        }
        let below = open_to_change(directory, Path::new(&name))?;
        empty(below.as_fd(), top, depth - 1, moved, deep)?;
        rustix::fs::unlinkat(directory, &name, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

fn free_name(top: BorrowedFd<'_>, moved: &mut usize) -> io::Result<OsString> {
    loop {
        *moved += 1;
        let name = OsString::from(format!(".saggar-removed-{moved}"));
        if look(top, &name)?.is_none() {
            return Ok(name);
        }
    }
}

/// Whether two open files have the same content.
pub(super) fn is_same(mut one: &File, mut other: &File) -> io::Result<bool> {
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
        let top = root(&path("top")).unwrap();
        for name in ["link", "up/secret", "../secret", "fifo", "/etc/passwd", "missing"] {
            assert!(file(top.as_fd(), name).is_err(), "{name}");
        }
        assert!(directory(top.as_fd(), "up").is_err());
        assert!(directory(top.as_fd(), "..").is_err());
        assert!(create(top.as_fd(), "up/new", 0o600).is_err());
        assert!(create(top.as_fd(), "link", 0o600).is_err());
        assert_eq!(names(top.as_fd(), 9).unwrap(), ["fifo", "link", "up"]);
        assert!(names(top.as_fd(), 2).is_err());
    }

    #[test]
    fn what_is_deep_closed_or_a_link_is_removed_and_nothing_else() {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("stays"), "x").unwrap();
        let top = root(scratch.path()).unwrap();
        fs::create_dir(scratch.path().join("tree")).unwrap();
        let mut at = directory(top.as_fd(), "tree").unwrap();
        for depth in 0..3000 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            if depth % 50 == 0 {
                rustix::fs::symlinkat(scratch.path(), &at, "link").unwrap();
            }
            at = directory(at.as_fd(), "d").unwrap();
        }
        fs::set_permissions(scratch.path().join("tree/d"), fs::Permissions::from_mode(0o000)).unwrap();
        remove(top.as_fd(), "tree").unwrap();
        assert_eq!(names(top.as_fd(), 9).unwrap(), ["stays"]);
        remove(top.as_fd(), "tree").unwrap();
    }
}
