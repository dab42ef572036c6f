//! Creates files, directories and links in a tree that other programs change at the same time.
//!
//! Owner, mode and content are set on descriptors, never on names: a program that replaces a name between two system
//! calls cannot redirect a change. A file has no name until it is complete (open(2), `O_TMPFILE`). A directory or link
//! is opened as soon as it is created, and refused if the opened one is not the one that was created.

use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Uid};
use saggar_sys::beneath::{self, FileKind, FileMeta};
use saggar_sys::{file as raw, random};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// User and group id of a new file; `None` leaves the owner to the kernel.
pub(super) type FileOwner = Option<(u32, u32)>;

/// A file that is being written.
#[derive(Debug)]
pub(super) struct NewFile {
    /// Descriptor for writing the content.
    pub file: File,
    /// Its directory and temporary name, on a file system without `O_TMPFILE`.
    temporary: Option<(OwnedFd, OsString)>,
}

/// Creates an empty file, mode 0600, on the file system of the directory `at`.
pub(super) fn create_unnamed(at: BorrowedFd<'_>) -> io::Result<NewFile> {
    match beneath::open(at, Path::new("."), OFlags::WRONLY | OFlags::TMPFILE, 0o600) {
        Ok(file) => Ok(NewFile { file: file.into(), temporary: None }),
        // Network file systems, and FUSE before Linux 6.2.
        Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL)) => {
            let name = random_name()?;
            let file = beneath::create_file(at, &name, 0o600)?;
            let is = beneath::stat_fd(file.as_fd())?;
            if is.kind != FileKind::File || is.links != 1 || is.size != 0 {
                return Err(exchanged_error());
            }
            Ok(NewFile { file, temporary: Some((at.try_clone_to_owned()?, name)) })
        }
        Err(e) => Err(e),
    }
}

impl NewFile {
    /// Sets its owner, then its mode.
    pub(super) fn set_owner_and_mode(&self, owner: FileOwner, mode: u32) -> io::Result<()> {
        set_owner(self.file.as_fd(), owner)?;
        Ok(rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode))?)
    }

    /// Gives it a name, which must not exist yet.
    pub(super) fn link_into(mut self, parent: BorrowedFd<'_>, name: &Path) -> io::Result<FileMeta> {
        match self.temporary.take() {
            // linkat(2) documents this as the way to name a file without a name.
            None => {
                let magic = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                rustix::fs::linkat(rustix::fs::CWD, magic, parent, name, AtFlags::SYMLINK_FOLLOW)?;
            }
            Some((at, old)) => {
                let moved = rustix::fs::renameat_with(&at, &old, parent, name, RenameFlags::NOREPLACE);
                if moved.is_err() {
                    let _ = rustix::fs::unlinkat(&at, &old, AtFlags::empty());
                }
                moved?;
            }
        }
        stat_if_same(parent, name, self.file.as_fd())
    }

    /// Replaces the file `name`; meanwhile the new file has the name `step` in the directory `stage`.
    pub(super) fn rename_over(
        self,
        (stage, step): (BorrowedFd<'_>, &Path),
        parent: BorrowedFd<'_>,
        name: &Path,
    ) -> io::Result<FileMeta> {
        let file = self.file.try_clone()?;
        self.link_into(stage, step)?;
        rustix::fs::renameat(stage, step, parent, name)?;
        stat_if_same(parent, name, file.as_fd())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some((at, name)) = &self.temporary {
            let _ = rustix::fs::unlinkat(at, name, AtFlags::empty());
        }
    }
}

/// Creates a directory, mode 0700, whose name must not exist. It is verified to be empty and the one that was created.
pub(super) fn create_directory(at: BorrowedFd<'_>, name: &Path, owner: FileOwner) -> io::Result<OwnedFd> {
    rustix::fs::mkdirat(at, name, Mode::RWXU)?;
    let opened = beneath::open(at, name, OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
    let (is, above) = (beneath::stat_fd(opened.as_fd())?, beneath::stat_fd(at)?);
    // A program of another user cannot create one like it; a program of the same user could only substitute its own.
    let fresh = is.device == above.device && is.mode & 0o7777 & !0o2000 == is.mode & 0o700;
    if !fresh || is.owner.0 != effective_uid() || !beneath::is_empty(opened.as_fd())? {
        return Err(exchanged_error());
    }
    set_owner(opened.as_fd(), owner)?;
    Ok(opened)
}

/// Creates a symbolic link, whose name must not exist, and opens it (`O_PATH`).
pub(super) fn create_symlink(
    at: BorrowedFd<'_>,
    name: &Path,
    target: &Path,
    owner: FileOwner,
) -> io::Result<OwnedFd> {
    rustix::fs::symlinkat(target, at, name)?;
    let opened = beneath::open_link(at, name)?;
    let is = beneath::stat_fd(opened.as_fd())?;
    let says = rustix::fs::readlinkat(&opened, c"", Vec::new())?;
    let wanted = std::os::unix::ffi::OsStrExt::as_bytes(target.as_os_str());
    if is.kind != FileKind::Symlink
        || is.links != 1
        || is.owner.0 != effective_uid()
        || says.to_bytes() != wanted
    {
        return Err(exchanged_error());
    }
    if let Some((uid, gid)) = owner {
        raw::set_owner(opened.as_fd(), uid, gid).map_err(io::Error::from)?;
    }
    Ok(opened)
}

/// Sets the owner of an open file or directory.
pub(super) fn set_owner(file: BorrowedFd<'_>, owner: FileOwner) -> io::Result<()> {
    let Some((uid, gid)) = owner else { return Ok(()) };
    Ok(rustix::fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?)
}

/// Metadata of `name`, if it is the file that is open.
pub(super) fn stat_if_same(
    parent: BorrowedFd<'_>,
    name: &Path,
    opened: BorrowedFd<'_>,
) -> io::Result<FileMeta> {
    let ours = beneath::stat_fd(opened)?;
    match beneath::stat_beneath(parent, name)? {
        Some(is) if (is.device, is.inode) == (ours.device, ours.inode) => Ok(ours),
        _ => Err(exchanged_error()),
    }
}

/// A random name that cannot exist by accident.
pub(super) fn random_name() -> io::Result<OsString> {
    let mut number = [0; 8];
    random::fill(&mut number).map_err(io::Error::from)?;
    Ok(format!(".saggar-{:016x}", u64::from_ne_bytes(number)).into())
}

/// User id of files that this process creates.
fn effective_uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

fn exchanged_error() -> io::Error {
    io::Error::other("another program put something else in its place")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;

    fn place() -> (tempfile::TempDir, OwnedFd) {
        let scratch = tempfile::tempdir().unwrap();
        let opened = beneath::open_root(scratch.path()).unwrap();
        (scratch, opened)
    }

    #[test]
    fn a_file_has_a_name_only_when_it_is_complete() {
        let (scratch, at) = place();
        let mut new = create_unnamed(at.as_fd()).unwrap();
        new.file.write_all(b"text").unwrap();
        new.set_owner_and_mode(None, 0o640).unwrap();
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
        let meta = new.link_into(at.as_fd(), Path::new("f")).unwrap();
        assert_eq!((meta.mode, meta.size), (0o640, 4));
        assert!(create_unnamed(at.as_fd()).unwrap().link_into(at.as_fd(), Path::new("f")).is_err());
        assert_eq!(fs::read(scratch.path().join("f")).unwrap(), b"text");
    }

    #[test]
    fn what_is_in_the_place_of_a_new_name_is_never_changed() {
        let (scratch, at) = place();
        fs::write(scratch.path().join("victim"), "x").unwrap();
        std::os::unix::fs::symlink("victim", scratch.path().join("name")).unwrap();
        let name = Path::new("name");
        assert!(create_directory(at.as_fd(), name, None).is_err());
        assert!(create_symlink(at.as_fd(), name, Path::new("other"), None).is_err());
        assert!(create_unnamed(at.as_fd()).unwrap().link_into(at.as_fd(), name).is_err());
        let new = create_unnamed(at.as_fd()).unwrap();
        new.rename_over((at.as_fd(), Path::new("step")), at.as_fd(), name).unwrap();
        assert!(scratch.path().join("name").symlink_metadata().unwrap().is_file());
        assert_eq!(fs::read(scratch.path().join("victim")).unwrap(), b"x");
    }
}
