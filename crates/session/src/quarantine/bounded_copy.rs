//! Copies between file systems: bounded, by descriptors, of files that their creator may change meanwhile. Regular
//! files, directories and links are copied; a FIFO, a socket or a device has no content.

use super::{create_placeholder_file, proc_path};
use saggar_sys::beneath;
use saggar_sys::file::{self, Resolve};
use saggar_sys::{Errno, SysResult};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;

/// Most entries of one finding; one with more stays in place.
const MAX_ENTRIES: usize = 10_000;
const MAX_DEPTH: usize = 32;
/// Most bytes of all copies in one quarantine, which is outside the sandbox's own disk limit.
const MAX_TOTAL_BYTES: u64 = 16 << 20;

/// The remaining budget of a quarantine.
#[derive(Debug, Clone, Copy)]
pub(super) struct CopyBudget {
    bytes: u64,
}

impl CopyBudget {
    /// The budget that remains after this many bytes.
    pub(super) fn remaining_after(bytes: u64) -> Self {
        CopyBudget { bytes: MAX_TOTAL_BYTES.saturating_sub(bytes) }
    }

    /// No limit, for a copy that the owner requested.
    pub(super) fn unbounded() -> Self {
        CopyBudget { bytes: u64::MAX >> 1 }
    }

    /// Bytes used between two budgets.
    pub(super) fn bytes_used_until(self, later: &CopyBudget) -> u64 {
        self.bytes.saturating_sub(later.bytes)
    }
}

/// Copies `name` in `from` to `new` in `to`, which must not exist. A partial copy is removed again.
pub(super) fn copy_bounded(
    from: BorrowedFd<'_>,
    name: &OsStr,
    to: BorrowedFd<'_>,
    new: &OsStr,
    budget: &mut CopyBudget,
) -> SysResult<()> {
    let mut copy = BoundedCopy { entries: MAX_ENTRIES, bytes: budget.bytes };
    let done = copy.copy_entry(from, name, to, new, MAX_DEPTH);
    budget.bytes = copy.bytes;
    if !matches!(done, Ok(()) | Err(Errno::EEXIST)) {
        remove_tree(to, new);
    }
    done
}

/// Removes `name` and everything below it, following no link and crossing no mount. Files that cannot be removed stay.
pub(super) fn remove_tree(directory: BorrowedFd<'_>, name: &OsStr) {
    let _ = beneath::remove(directory, name);
}

/// Gives `name` and everything below it to `owner`. This process has created the files, but another program may have
/// exchanged them since. Files whose owner cannot be changed stay root's.
#[expect(
    clippy::disallowed_methods,
    reason = "by a descriptor: the link in /proc leads to exactly what was opened"
)]
pub(super) fn set_owner_of_tree(directory: BorrowedFd<'_>, name: &OsStr, owner: (u32, u32)) {
    let flags = libc::O_PATH | libc::O_NOFOLLOW;
    let opened =
        file::c_path(name).and_then(|name| file::open(directory, &name, flags, 0, Resolve::BeneathNoLinks));
    let Ok(itself) = opened else { return };
    let is_ours = beneath::stat_fd(itself.as_fd()).is_ok_and(|is| {
        let ours = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        is.owner == ours && (is.kind == beneath::FileKind::Directory || is.links == 1)
    });
    if !is_ours {
        return;
    }
    let _ = file::set_owner(itself.as_fd(), owner.0, owner.1);
    for entry in fs::read_dir(proc_path(itself.as_fd(), "")).into_iter().flatten().flatten() {
        set_owner_of_tree(itself.as_fd(), &entry.file_name(), owner);
    }
}

struct BoundedCopy {
    entries: usize,
    bytes: u64,
}

impl BoundedCopy {
    fn copy_entry(
        &mut self,
        from: BorrowedFd<'_>,
        name: &OsStr,
        to: BorrowedFd<'_>,
        new: &OsStr,
        depth: usize,
    ) -> SysResult<()> {
        self.entries = self.entries.checked_sub(1).ok_or(Errno::EFBIG)?;
        // An entry itself takes some bytes too.
        self.bytes = self.bytes.checked_sub(512).ok_or(Errno::EFBIG)?;
        let flags = libc::O_PATH | libc::O_NOFOLLOW;
        let itself = File::from(file::open(from, &file::c_path(name)?, flags, 0, Resolve::BeneathNoLinks)?);
        let meta = itself.metadata().map_err(to_errno)?;
        if meta.is_dir() {
            return self.copy_directory(itself.as_fd(), to, new, depth);
        }
        if meta.file_type().is_symlink() {
            let target = rustix::fs::readlinkat(&itself, c"", Vec::new());
            let target = target.map_err(|e| Errno::from_raw(e.raw_os_error()))?;
            return nix::unistd::symlinkat(target.as_c_str(), to, new);
        }
        let mut target = File::from(create_placeholder_file(to, new, 0o600)?);
        if !meta.is_file() {
            return Ok(());
        }
        // It may have been replaced meanwhile: O_NONBLOCK does not wait for the other end of a FIFO.
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let source = File::from(file::open(from, &file::c_path(name)?, flags, 0, Resolve::BeneathNoLinks)?);
        if !source.metadata().map_err(to_errno)?.is_file() {
            return Ok(());
        }
        let copied = std::io::copy(&mut source.take(self.bytes + 1), &mut target).map_err(to_errno)?;
        self.bytes = self.bytes.checked_sub(copied).ok_or(Errno::EFBIG)?;
        target.set_permissions(Permissions::from_mode(meta.permissions().mode() & 0o777)).map_err(to_errno)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "by a descriptor: the link in /proc leads to exactly what was opened"
    )]
    fn copy_directory(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        new: &OsStr,
        depth: usize,
    ) -> SysResult<()> {
        let depth = depth.checked_sub(1).ok_or(Errno::EFBIG)?;
        nix::sys::stat::mkdirat(to, new, nix::sys::stat::Mode::S_IRWXU)?;
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let to = file::open(to, &file::c_path(new)?, flags, 0, Resolve::BeneathNoLinks)?;
        for entry in fs::read_dir(proc_path(from, "")).map_err(to_errno)? {
            let name = entry.map_err(to_errno)?.file_name();
            self.copy_entry(from, &name, to.as_fd(), &name, depth)?;
        }
        Ok(())
    }
}

fn to_errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}
