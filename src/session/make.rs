//! New files, directories and links in a tree in which other programs are at work at the same time.
//!
//! An owner, a mode and content are given to what was opened, never to a name: whatever a program puts in the place of
//! a name between two system calls, it is not what is changed. A file has no name at all until it is complete
//! (open(2), `O_TMPFILE`); a directory and a link are opened as soon as they are made, and refused when what was opened
//! is not the one that was made.

use super::beneath::{self, Kind, Meta};
use crate::sys::{file as raw, random};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Uid};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Who is to own what is made (uid, gid); `None` leaves that to the kernel.
pub(super) type Owner = Option<(u32, u32)>;

/// A file that is being written.
#[derive(Debug)]
pub(super) struct NewFile {
    /// For its content.
    pub file: File,
    /// Its directory and its name there, on a file system that has no files without a name.
    named: Option<(OwnedFd, OsString)>,
}

/// A new empty file, mode 0600, for a place on the file system of the directory `at`.
pub(super) fn file(at: BorrowedFd<'_>) -> io::Result<NewFile> {
    match beneath::open(at, Path::new("."), OFlags::WRONLY | OFlags::TMPFILE, 0o600) {
        Ok(file) => Ok(NewFile { file: file.into(), named: None }),
        // Network file systems, and FUSE before Linux 6.2.
        Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL)) => {
            let name = random_name()?;
            let file = beneath::create(at, &name, 0o600)?;
            let is = beneath::itself(file.as_fd())?;
            if is.kind != Kind::File || is.links != 1 || is.size != 0 {
                return Err(exchanged());
            }
            Ok(NewFile { file, named: Some((at.try_clone_to_owned()?, name)) })
        }
        Err(e) => Err(e),
    }
}

impl NewFile {
    /// Gives it its owner and then its mode.
    pub(super) fn finish(&self, owner: Owner, mode: u32) -> io::Result<()> {
        own(self.file.as_fd(), owner)?;
        Ok(rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode))?)
    }

    /// Gives it a name that must not be there yet.
    pub(super) fn put(mut self, parent: BorrowedFd<'_>, name: &Path) -> io::Result<Meta> {
        match self.named.take() {
            // linkat(2) describes this as the way to name a file without a name.
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
        is_at(parent, name, self.file.as_fd())
    }

    /// Puts it in the place of the file `name`; on its way there it has the name `step` in the directory `stage`.
    pub(super) fn replace(
        self,
        (stage, step): (BorrowedFd<'_>, &Path),
        parent: BorrowedFd<'_>,
        name: &Path,
    ) -> io::Result<Meta> {
        let file = self.file.try_clone()?;
        self.put(stage, step)?;
        rustix::fs::renameat(stage, step, parent, name)?;
        is_at(parent, name, file.as_fd())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some((at, name)) = &self.named {
            let _ = rustix::fs::unlinkat(at, name, AtFlags::empty());
        }
    }
}

/// A new directory, mode 0700, where nothing of this name may be. It is empty and it is the one that was made.
pub(super) fn directory(at: BorrowedFd<'_>, name: &Path, owner: Owner) -> io::Result<OwnedFd> {
    rustix::fs::mkdirat(at, name, Mode::RWXU)?;
    let opened = beneath::open(at, name, OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
    let (is, above) = (beneath::itself(opened.as_fd())?, beneath::itself(at)?);
    // A program of another user has none like it; one of the same user has only what is its own.
    let fresh = is.device == above.device && is.mode & 0o7777 & !0o2000 == is.mode & 0o700;
    if !fresh || is.owner.0 != ours() || !beneath::is_empty(opened.as_fd())? {
        return Err(exchanged());
    }
    own(opened.as_fd(), owner)?;
    Ok(opened)
}

/// A new symbolic link where nothing of this name may be, opened (`O_PATH`).
pub(super) fn link(at: BorrowedFd<'_>, name: &Path, target: &Path, owner: Owner) -> io::Result<OwnedFd> {
    rustix::fs::symlinkat(target, at, name)?;
    let opened = beneath::open_link(at, name)?;
    let is = beneath::itself(opened.as_fd())?;
    let says = rustix::fs::readlinkat(&opened, c"", Vec::new())?;
    let wanted = std::os::unix::ffi::OsStrExt::as_bytes(target.as_os_str());
    if is.kind != Kind::Link || is.links != 1 || is.owner.0 != ours() || says.to_bytes() != wanted {
        return Err(exchanged());
    }
    if let Some((uid, gid)) = owner {
        raw::set_owner(opened.as_fd(), uid, gid).map_err(io::Error::from)?;
    }
    Ok(opened)
}

/// Gives an open file or directory an owner.
pub(super) fn own(file: BorrowedFd<'_>, owner: Owner) -> io::Result<()> {
    let Some((uid, gid)) = owner else { return Ok(()) };
    Ok(rustix::fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?)
}

/// What `name` is, when it is the very thing that is open.
pub(super) fn is_at(parent: BorrowedFd<'_>, name: &Path, opened: BorrowedFd<'_>) -> io::Result<Meta> {
    let ours = beneath::itself(opened)?;
    match beneath::look(parent, name)? {
        Some(is) if (is.device, is.inode) == (ours.device, ours.inode) => Ok(ours),
        _ => Err(exchanged()),
    }
}

/// A name that is not there by any accident.
pub(super) fn random_name() -> io::Result<OsString> {
    let mut number = [0; 8];
    random::fill(&mut number).map_err(io::Error::from)?;
    Ok(format!(".saggar-{:016x}", u64::from_ne_bytes(number)).into())
}

/// Who makes files here.
fn ours() -> u32 {
    nix::unistd::geteuid().as_raw()
}

fn exchanged() -> io::Error {
    io::Error::other("another program put something else in its place")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;

    fn place() -> (tempfile::TempDir, OwnedFd) {
        let scratch = tempfile::tempdir().unwrap();
        let opened = beneath::root(scratch.path()).unwrap();
        (scratch, opened)
    }

    #[test]
    fn a_file_has_a_name_only_when_it_is_complete() {
        let (scratch, at) = place();
        let mut new = file(at.as_fd()).unwrap();
        new.file.write_all(b"text").unwrap();
        new.finish(None, 0o640).unwrap();
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
        let meta = new.put(at.as_fd(), Path::new("f")).unwrap();
        assert_eq!((meta.mode, meta.size), (0o640, 4));
        assert!(file(at.as_fd()).unwrap().put(at.as_fd(), Path::new("f")).is_err());
        assert_eq!(fs::read(scratch.path().join("f")).unwrap(), b"text");
    }

    #[test]
    fn what_is_in_the_place_of_a_new_name_is_never_changed() {
        let (scratch, at) = place();
        fs::write(scratch.path().join("victim"), "x").unwrap();
        std::os::unix::fs::symlink("victim", scratch.path().join("name")).unwrap();
        let name = Path::new("name");
        assert!(directory(at.as_fd(), name, None).is_err());
        assert!(link(at.as_fd(), name, Path::new("other"), None).is_err());
        assert!(file(at.as_fd()).unwrap().put(at.as_fd(), name).is_err());
        let new = file(at.as_fd()).unwrap();
        new.replace((at.as_fd(), Path::new("step")), at.as_fd(), name).unwrap();
        assert!(scratch.path().join("name").symlink_metadata().unwrap().is_file());
        assert_eq!(fs::read(scratch.path().join("victim")).unwrap(), b"x");
    }
}
