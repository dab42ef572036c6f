//! Directories of root that a supervisor with another user id writes (DECISIONS 33). They belong to that id while the
//! supervisor runs, and to root again as soon as root opens them.
//!
//! A supervisor creates no link, device or directory in them: its seccomp filter has no such system call. If one exists
//! all the same, its owner is not changed.

use super::check_private_directory;
use nix::fcntl::{AtFlags, OFlag, open};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::{Gid, Uid, fchown, fchownat, geteuid};
use saggar_sys::error::{Error, Result};
use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Creates or opens the directory `path`, below one that only this user can write. Files that an earlier supervisor
/// owned are given back to this user.
///
/// # Errors
/// As [`check_private_directory`]; [`saggar_sys::error::Code::System`].
pub fn open_delegated(path: &Path) -> Result<OwnedFd> {
    let fails = |e: io::Error| Error::system(format_args!("open the directory {}", path.display()), e);
    match DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(fails(e)),
        _ => {}
    }
    let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let directory = open(path, flags, Mode::empty()).map_err(|e| fails(e.into()))?;
    let owner = fstat(&directory).map_err(|e| fails(e.into()))?.st_uid;
    let is_lent = geteuid().is_root() && owner != 0;
    if is_lent && path.parent().is_some_and(|parent| check_private_directory(parent).is_ok()) {
        delegate(directory.as_fd(), 0).map_err(fails)?;
    }
    check_private_directory(path)?;
    Ok(directory)
}

/// Gives a directory and the files in it to the user and group `id`; requires root.
///
/// # Errors
/// Those of fchown(2) for the directory.
pub fn delegate(directory: BorrowedFd<'_>, id: u32) -> io::Result<()> {
    let (user, group) = (Some(Uid::from_raw(id)), Some(Gid::from_raw(id)));
    // Only root has access to the directory while its owner changes.
    let names = rustix::fs::Dir::read_from(directory)?;
    for entry in names.flatten().filter(|entry| !matches!(entry.file_name().to_bytes(), b"." | b"..")) {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let Ok(file) = nix::fcntl::openat(directory, entry.file_name(), flags, Mode::empty()) else {
            continue;
        };
        let is_one =
            fstat(&file).is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFREG && stat.st_nlink == 1);
        if is_one {
            fchownat(file.as_fd(), c"", user, group, AtFlags::AT_EMPTY_PATH)?;
        }
    }
    Ok(fchown(directory, user, group)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn what_was_lent_comes_back_with_its_files_and_nothing_else() {
        if !geteuid().is_root() {
            return;
        }
        let scratch = tempfile::tempdir().unwrap();
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let (lent, other) = (scratch.path().join("lent"), scratch.path().join("other"));
        let directory = open_delegated(&lent).unwrap();
        fs::write(&other, "").unwrap();
        fs::write(lent.join("file"), "").unwrap();
        fs::hard_link(&other, lent.join("linked")).unwrap();
        std::os::unix::fs::symlink(&other, lent.join("link")).unwrap();
        delegate(directory.as_fd(), 12345).unwrap();
        let owner = |path: &Path| fs::symlink_metadata(path).unwrap().uid();
        assert_eq!((owner(&lent), owner(&lent.join("file")), owner(&other)), (12345, 12345, 0));
        assert_eq!(check_private_directory(&lent).unwrap_err().code(), saggar_sys::error::Code::Refused);
        open_delegated(&lent).unwrap();
        assert_eq!((owner(&lent), owner(&lent.join("file")), owner(&other)), (0, 0, 0));
    }
}
