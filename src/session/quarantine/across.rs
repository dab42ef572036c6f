//! From one file system to another: a bounded copy, by descriptors, of something that may be changed meanwhile
//! by whoever made it. Regular files, directories and links; a FIFO, a socket or a device has no content.

use super::{by_descriptor, c_name, create};
use crate::sys::file::{self, Resolve};
use crate::sys::{Errno, SysResult};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;

/// What one thing may have; more stays where it is.
const ENTRIES: usize = 10_000;
const BYTES: u64 = 64 << 20;
const DEPTH: usize = 32;

/// Copies `name` in `from` to `new` in `to`, which must not be there. What is copied in part is removed again.
pub(super) fn copy(from: BorrowedFd<'_>, name: &OsStr, to: BorrowedFd<'_>, new: &OsStr) -> SysResult<()> {
    let mut copy = Copy { entries: ENTRIES, bytes: BYTES };
    let done = copy.entry(from, name, to, new, DEPTH);
    if !matches!(done, Ok(()) | Err(Errno::EEXIST)) {
        remove(to, new);
    }
    done
}

/// Removes `name` and everything below it, following no link.
pub(super) fn remove(directory: BorrowedFd<'_>, name: &OsStr) {
    let path = by_descriptor(directory, name);
    if fs::remove_file(&path).is_err() {
        let _ = fs::remove_dir_all(&path);
    }
}

struct Copy {
    entries: usize,
    bytes: u64,
}

impl Copy {
    fn entry(
        &mut self,
        from: BorrowedFd<'_>,
        name: &OsStr,
        to: BorrowedFd<'_>,
        new: &OsStr,
        depth: usize,
    ) -> SysResult<()> {
        self.entries = self.entries.checked_sub(1).ok_or(Errno::EFBIG)?;
        let flags = libc::O_PATH | libc::O_NOFOLLOW;
        let itself = File::from(file::open(from, &c_name(name)?, flags, 0, Resolve::BeneathNoLinks)?);
        let meta = itself.metadata().map_err(number)?;
        if meta.is_dir() {
            return self.directory(itself.as_fd(), to, new, depth);
        }
        if meta.file_type().is_symlink() {
            let target = fs::read_link(by_descriptor(from, name)).map_err(number)?;
            return nix::unistd::symlinkat(&target, to, new);
        }
        let mut target = File::from(create(to, new, 0o600)?);
        if !meta.is_file() {
            return Ok(());
        }
        // It may be something else by now: O_NONBLOCK does not wait for the other end of a FIFO.
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let source = File::from(file::open(from, &c_name(name)?, flags, 0, Resolve::BeneathNoLinks)?);
        if !source.metadata().map_err(number)?.is_file() {
            return Ok(());
        }
        let copied = std::io::copy(&mut source.take(self.bytes + 1), &mut target).map_err(number)?;
        self.bytes = self.bytes.checked_sub(copied).ok_or(Errno::EFBIG)?;
        target.set_permissions(Permissions::from_mode(meta.permissions().mode() & 0o777)).map_err(number)
    }

    fn directory(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        new: &OsStr,
        depth: usize,
    ) -> SysResult<()> {
        let depth = depth.checked_sub(1).ok_or(Errno::EFBIG)?;
        nix::sys::stat::mkdirat(to, new, nix::sys::stat::Mode::S_IRWXU)?;
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let to = file::open(to, &c_name(new)?, flags, 0, Resolve::BeneathNoLinks)?;
        for entry in fs::read_dir(by_descriptor(from, "")).map_err(number)? {
            let name = entry.map_err(number)?.file_name();
            self.entry(from, &name, to.as_fd(), &name, depth)?;
        }
        Ok(())
    }
}

fn number(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}
