//! Protected files with more than one hard link: a mount over one name leaves the others writable, so such
//! a file is replaced by a copy with its own inode before programs run.

use super::{ProtectedPaths, ProtectionFinder, tree::BoundedTree};
use nix::fcntl::{AtFlags, RenameFlags, renameat2};
use nix::unistd::{AccessFlags, Gid, Uid, setfsgid, setfsuid};
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::file::{self, Resolve};
use saggar_sys::{Errno, SysResult, random};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The largest file that is copied, in bytes.
const SIZE_LIMIT: u64 = 64 << 20;
/// The most names of protected directories that are examined, and the maximum depth.
const MAX_NAMES: usize = 1024;
const MAX_DEPTH: usize = 4;

impl ProtectionFinder<'_> {
    /// The protected files with more than one hard link.
    pub(super) fn find_hard_linked(&self) -> Vec<PathBuf> {
        let (mut linked, mut left) = (Vec::new(), MAX_NAMES);
        for (path, _) in self.pins.iter().filter(|(_, pin)| pin.read_only) {
            self.find_hard_linked_at(path, MAX_DEPTH, &mut left, &mut linked);
        }
        linked.sort();
        linked.dedup();
        linked
    }

    fn find_hard_linked_at(&self, path: &Path, depth: usize, budget: &mut usize, linked: &mut Vec<PathBuf>) {
        let Ok(meta) = self.tree.stat(path) else { return };
        if meta.has_other_names() {
            linked.push(path.to_owned());
        }
        if meta.is_directory() && depth > 0 {
            let (names, _) = self.tree.names(path, *budget);
            *budget = budget.saturating_sub(names.len());
            for name in names {
                self.find_hard_linked_at(&path.join(name), depth - 1, budget, linked);
            }
        }
    }
}

impl ProtectedPaths {
    /// Replaces every protected file that has more than one hard link in `workspace` by a copy with its own
    /// inode.
    ///
    /// # Errors
    /// [`Code::Refused`] for a file that programs could write by its other name and that cannot be copied.
    pub fn separate_hard_links(&self, workspace: &Path) -> Result<()> {
        if self.hard_linked.is_empty() {
            return Ok(());
        }
        let cannot = |path: &Path, why: String| {
            let message =
                format!("protect {}: it has another name, and cannot be copied: {why}", path.display());
            Error::new(Code::Refused, message).hint("replace the file by a copy of itself, and start again")
        };
        let tree = match BoundedTree::open(workspace) {
            Ok(tree) => tree,
            // The workspace is a copy that is still to be made; its files will have one link each.
            Err(Errno::ENOENT) => return Ok(()),
            Err(errno) => return Err(cannot(workspace, errno.desc().to_owned())),
        };
        for path in &self.hard_linked {
            match replace_with_copy(&tree, path) {
                Ok(()) => log::info!("{}: had another name; it is a file of its own now", path.display()),
                // A file that this process cannot write, programs cannot write either.
                Err(Errno::EROFS | Errno::ENOENT) => {}
                Err(errno) => return Err(cannot(&workspace.join(path), errno.desc().to_owned())),
            }
        }
        Ok(())
    }
}

/// Replaces `path` by a copy with the same owner, mode and times.
fn replace_with_copy(tree: &BoundedTree, path: &Path) -> SysResult<()> {
    let (above, name) = (path.parent().unwrap_or(Path::new("")), path.file_name().ok_or(Errno::EINVAL)?);
    let directory = tree.open_at(above, libc::O_RDONLY | libc::O_DIRECTORY)?;
    let name = file::c_path(name)?;
    let owner_uid =
        nix::sys::stat::fstatat(&directory, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW)?.st_uid;
    let may_write = || {
        nix::unistd::faccessat(&directory, name.as_c_str(), AccessFlags::W_OK, AtFlags::AT_EACCESS).is_ok()
    };
    if owner_uid != nix::unistd::geteuid().as_raw() && !may_write() {
        return Ok(());
    }
    let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let original = File::from(file::open(directory.as_fd(), &name, flags, 0, Resolve::BeneathNoLinks)?);
    let meta = original.metadata().map_err(errno_of)?;
    if !meta.is_file() || meta.nlink() < 2 {
        return Ok(());
    }
    if meta.len() > SIZE_LIMIT {
        return Err(Errno::EFBIG);
    }
    let _acting = ActingAs::owner(meta.uid(), meta.gid());
    let copy = create_unnamed_file(&directory)?;
    let mut copy = File::from(copy);
    let copied = io::copy(&mut Read::take(&original, SIZE_LIMIT + 1), &mut copy).map_err(errno_of)?;
    if copied > SIZE_LIMIT {
        return Err(Errno::EFBIG);
    }
    copy.flush().map_err(errno_of)?;
    let mode = nix::sys::stat::Mode::from_bits_truncate(meta.mode() & 0o777);
    nix::sys::stat::fchmod(&copy, mode)?;
    let times = std::fs::FileTimes::new()
        .set_modified(meta.modified().map_err(errno_of)?)
        .set_accessed(meta.accessed().map_err(errno_of)?);
    copy.set_times(times).map_err(errno_of)?;
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

/// Creates an unnamed file on the file system of `directory` (open(2), O_TMPFILE).
fn create_unnamed_file(directory: &OwnedFd) -> SysResult<OwnedFd> {
    file::open(directory.as_fd(), c".", libc::O_TMPFILE | libc::O_WRONLY, 0o600, Resolve::BeneathNoLinks)
}

/// For root: acts with the file system ids of the file's owner, and so without capabilities for files
/// (setfsuid(2)).
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

fn errno_of(error: io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}
