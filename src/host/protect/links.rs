//! Protected files that have another name (G3): a mount over one name leaves the other writable, so such a file gets
//! an inode of its own before programs run.

use super::{Found, Protected, tree::Tree};
use crate::error::{Code, Error, Result};
use crate::sys::file::{self, Resolve};
use crate::sys::{Errno, SysResult, random};
use nix::fcntl::{AtFlags, RenameFlags, renameat2};
use nix::unistd::{AccessFlags, Gid, Uid, setfsgid, setfsuid};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A larger one is not copied.
const SIZE_LIMIT: u64 = 64 << 20;
/// How many names of protected directories are looked at, and how deep.
const NAMES: usize = 1024;
const DEPTH: usize = 4;

impl Found<'_> {
    /// The protected files that have another name.
    pub(super) fn linked(&self) -> Vec<PathBuf> {
        let (mut linked, mut left) = (Vec::new(), NAMES);
        for (path, _) in self.pins.iter().filter(|(_, pin)| pin.read_only) {
            self.linked_at(path, DEPTH, &mut left, &mut linked);
        }
        linked.sort();
        linked.dedup();
        linked
    }

    fn linked_at(&self, path: &Path, depth: usize, left: &mut usize, linked: &mut Vec<PathBuf>) {
        let Ok(meta) = self.tree.look(path) else { return };
        if meta.has_other_names() {
            linked.push(path.to_owned());
        }
        if meta.is_directory() && depth > 0 {
            let (names, _) = self.tree.names(path, *left);
            *left = left.saturating_sub(names.len());
            for name in names {
                self.linked_at(&path.join(name), depth - 1, left, linked);
            }
        }
    }
}

impl Protected {
    /// Gives every protected file that has another name an inode of its own, in `workspace`.
    ///
    /// # Errors
    /// [`Code::Refused`] for a file that programs could write by its other name and that cannot be copied.
    pub fn separate(&self, workspace: &Path) -> Result<()> {
        if self.linked.is_empty() {
            return Ok(());
        }
        let cannot = |path: &Path, why: String| {
            let message =
                format!("protect {}: it has another name, and cannot be copied: {why}", path.display());
            Error::new(Code::Refused, message).hint("replace the file by a copy of itself, and start again")
        };
        let tree = match Tree::open(workspace) {
            Ok(tree) => tree,
            // A copy that is still to be made has files of its own.
            Err(Errno::ENOENT) => return Ok(()),
            Err(errno) => return Err(cannot(workspace, errno.desc().to_owned())),
        };
        for path in &self.linked {
            match separate(&tree, path) {
                Ok(()) => log::info!("{}: had another name; it is a file of its own now", path.display()),
                // What cannot be written here, programs cannot write either.
                Err(Errno::EROFS | Errno::ENOENT) => {}
                Err(errno) => return Err(cannot(&workspace.join(path), errno.desc().to_owned())),
            }
        }
        Ok(())
    }
}

/// Puts a copy of `path`, with its owner, mode and times, in its place.
fn separate(tree: &Tree, path: &Path) -> SysResult<()> {
    let (above, name) = (path.parent().unwrap_or(Path::new("")), path.file_name().ok_or(Errno::EINVAL)?);
    let directory = tree.at(above, libc::O_RDONLY | libc::O_DIRECTORY)?;
    let name = CString::new(name.as_bytes()).map_err(|_| Errno::EINVAL)?;
    let theirs = nix::sys::stat::fstatat(&directory, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW)?.st_uid;
    let may_write = || {
        nix::unistd::faccessat(&directory, name.as_c_str(), AccessFlags::W_OK, AtFlags::AT_EACCESS).is_ok()
    };
    if theirs != nix::unistd::geteuid().as_raw() && !may_write() {
        return Ok(());
    }
    let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let original = File::from(file::open(directory.as_fd(), &name, flags, 0, Resolve::BeneathNoLinks)?);
    let meta = original.metadata().map_err(number)?;
    if !meta.is_file() || meta.nlink() < 2 {
        return Ok(());
    }
    if meta.len() > SIZE_LIMIT {
        return Err(Errno::EFBIG);
    }
    let _acting = ActingAs::owner(meta.uid(), meta.gid());
    let copy = unnamed(&directory)?;
    let mut copy = File::from(copy);
    let copied = io::copy(&mut Read::take(&original, SIZE_LIMIT + 1), &mut copy).map_err(number)?;
    if copied > SIZE_LIMIT {
        return Err(Errno::EFBIG);
    }
    copy.flush().map_err(number)?;
    let mode = nix::sys::stat::Mode::from_bits_truncate(meta.mode() & 0o777);
    nix::sys::stat::fchmod(&copy, mode)?;
    let times = std::fs::FileTimes::new()
        .set_modified(meta.modified().map_err(number)?)
        .set_accessed(meta.accessed().map_err(number)?);
    copy.set_times(times).map_err(number)?;
    let mut random = [0; 8];
    random::fill(&mut random)?;
    let new = format!(".saggar-{:016x}", u64::from_ne_bytes(random));
    let by_descriptor = format!("/proc/self/fd/{}", copy.as_raw_fd());
    nix::unistd::linkat(
        file::cwd(),
        by_descriptor.as_str(),
        &directory,
        new.as_str(),
        AtFlags::AT_SYMLINK_FOLLOW,
    )?;
    let renamed = renameat2(&directory, OsStr::new(&new), &directory, name.as_c_str(), RenameFlags::empty());
    if renamed.is_err() {
        let _ = nix::unistd::unlinkat(&directory, new.as_str(), nix::unistd::UnlinkatFlags::NoRemoveDir);
    }
    renamed
}

/// A file without a name, on the file system of `directory` (open(2), O_TMPFILE).
fn unnamed(directory: &OwnedFd) -> SysResult<OwnedFd> {
    file::open(directory.as_fd(), c".", libc::O_TMPFILE | libc::O_WRONLY, 0o600, Resolve::BeneathNoLinks)
}

/// As root, what is done is done as the owner of the file, without the capabilities over files (setfsuid(2)).
struct ActingAs(Option<(Uid, Gid)>);

impl ActingAs {
    fn owner(uid: u32, gid: u32) -> Self {
        if !nix::unistd::geteuid().is_root() {
            return ActingAs(None);
        }
        let gid = setfsgid(Gid::from_raw(gid));
        ActingAs(Some((setfsuid(Uid::from_raw(uid)), gid)))
    }
}

impl Drop for ActingAs {
    fn drop(&mut self) {
        if let Some((uid, gid)) = self.0 {
            setfsuid(uid);
            setfsgid(gid);
        }
    }
}

fn number(error: io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}
