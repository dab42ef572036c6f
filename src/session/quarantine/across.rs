//! From one file system to another: a bounded copy, by descriptors, of something that may be changed meanwhile
//! by whoever made it. Regular files, directories and links; a FIFO, a socket or a device has no content.

use super::{by_descriptor, c_name, create};
use crate::session::beneath;
use crate::sys::file::{self, Resolve};
use crate::sys::{Errno, SysResult};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;

/// What one thing may have; more stays where it is.
const ENTRIES: usize = 10_000;
const DEPTH: usize = 32;
/// What all that is copied to one quarantine may take from the disk, since it is outside of the sandbox's own limit.
const BYTES: u64 = 16 << 20;

/// What may still be copied.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    bytes: u64,
}

impl Budget {
    /// What is left after so many bytes.
    pub(super) fn after(bytes: u64) -> Self {
        Budget { bytes: BYTES.saturating_sub(bytes) }
    }

    /// For what its owner asked for.
    pub(super) fn unbounded() -> Self {
        Budget { bytes: u64::MAX >> 1 }
    }

    /// How much less `later` is.
    pub(super) fn bytes_until(self, later: &Budget) -> u64 {
        self.bytes.saturating_sub(later.bytes)
    }
}

/// Copies `name` in `from` to `new` in `to`, which must not be there. What is copied in part is removed again.
pub(super) fn copy(
    from: BorrowedFd<'_>,
    name: &OsStr,
    to: BorrowedFd<'_>,
    new: &OsStr,
    budget: &mut Budget,
) -> SysResult<()> {
    let mut copy = Copy { entries: ENTRIES, bytes: budget.bytes };
    let done = copy.entry(from, name, to, new, DEPTH);
    budget.bytes = copy.bytes;
    if !matches!(done, Ok(()) | Err(Errno::EEXIST)) {
        remove(to, new);
    }
    done
}

/// Removes `name` and everything below it, following no link and nothing that is mounted there. What cannot be removed
/// stays.
pub(super) fn remove(directory: BorrowedFd<'_>, name: &OsStr) {
    let _ = beneath::remove(directory, name);
}

/// Gives `name` and everything below it to `owner`: what this process has made, which another program may have exchanged
/// since. What cannot be given stays root's.
#[expect(
    clippy::disallowed_methods,
    reason = "by a descriptor: the link in /proc leads to exactly what was opened"
)]
pub(super) fn give(directory: BorrowedFd<'_>, name: &OsStr, owner: (u32, u32)) {
    let flags = libc::O_PATH | libc::O_NOFOLLOW;
    let opened =
        c_name(name).and_then(|name| file::open(directory, &name, flags, 0, Resolve::BeneathNoLinks));
    let Ok(itself) = opened else { return };
    let is_ours = beneath::itself(itself.as_fd()).is_ok_and(|is| {
        let ours = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        is.owner == ours && (is.kind == beneath::Kind::Directory || is.links == 1)
    });
    if !is_ours {
        return;
    }
    let _ = file::set_owner(itself.as_fd(), owner.0, owner.1);
    for entry in fs::read_dir(by_descriptor(itself.as_fd(), "")).into_iter().flatten().flatten() {
        give(itself.as_fd(), &entry.file_name(), owner);
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
        // An entry takes some too.
        self.bytes = self.bytes.checked_sub(512).ok_or(Errno::EFBIG)?;
        let flags = libc::O_PATH | libc::O_NOFOLLOW;
        let itself = File::from(file::open(from, &c_name(name)?, flags, 0, Resolve::BeneathNoLinks)?);
        let meta = itself.metadata().map_err(number)?;
        if meta.is_dir() {
            return self.directory(itself.as_fd(), to, new, depth);
        }
        if meta.file_type().is_symlink() {
            let target = rustix::fs::readlinkat(&itself, c"", Vec::new());
            let target = target.map_err(|e| Errno::from_raw(e.raw_os_error()))?;
            return nix::unistd::symlinkat(target.as_c_str(), to, new);
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

    #[expect(
        clippy::disallowed_methods,
        reason = "by a descriptor: the link in /proc leads to exactly what was opened"
    )]
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
