//! Removes trees that agents filled, of any depth and any modes, in a worker ([`saggar_sys::file_worker`]). A removal
//! of a session that fails leaves a session that can be removed again.

use rustix::fs::AtFlags;
use rustix::io::Errno;
use saggar_sys::beneath;
use saggar_sys::error::{Error, Result};
use saggar_sys::file_worker::{self, Confinement, FileAccess, WorkerLimits};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// A directory with a file of this name is a session.
const LOCK_NAME: &str = "lock";

/// Removes `directory` and everything below it, following no link and crossing no mount.
///
/// # Errors
/// [`saggar_sys::error::Code::System`].
pub fn remove_directory(directory: &Path) -> Result<()> {
    let fail = |e: io::Error| Error::system(format_args!("remove {}", directory.display()), e);
    let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
        return Err(fail(io::ErrorKind::InvalidInput.into()));
    };
    let parent = beneath::open_root(parent).map_err(fail)?;
    let opened = match beneath::open_overriding_mode(parent.as_fd(), Path::new(name)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(fail)?,
    };
    empty_in_worker(opened.as_fd(), &format!("remove {}", directory.display()))?;
    beneath::remove(parent.as_fd(), name).map_err(fail)
}

/// Removes `name` in `at` and everything below it. It is not an error if the name does not exist.
///
/// # Errors
/// [`saggar_sys::error::Code::System`].
pub(super) fn remove_tree(at: BorrowedFd<'_>, name: &Path) -> Result<()> {
    let task = format!("remove {}", super::diff::text::show_path(name));
    let fail = |e: io::Error| Error::system(&task, e);
    match rustix::fs::unlinkat(at, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(fail(errno.into())),
    }
    let top = beneath::open_overriding_mode(at, name).map_err(fail)?;
    empty_in_worker(top.as_fd(), &task)?;
    rustix::fs::unlinkat(at, name, AtFlags::REMOVEDIR).map_err(|errno| fail(errno.into()))
}

/// Removes the content of `top` in a worker; the lock of a session last.
fn empty_in_worker(top: BorrowedFd<'_>, task: &str) -> Result<()> {
    let fail = |e: io::Error| Error::system(task, e);
    let owner = file_worker::worker_owner(top).map_err(fail)?;
    let clear = |capabilities| {
        let directories = &[(top, FileAccess::Write)];
        let limits = WorkerLimits::default();
        let confinement = Confinement { task, owner, capabilities, directories, files: &[], limits };
        file_worker::run_worker(&confinement, || {
            for name in beneath::read_names(top, usize::MAX).map_err(fail)? {
                if name != LOCK_NAME {
                    beneath::remove(top, &name).map_err(fail)?;
                }
            }
            beneath::remove(top, LOCK_NAME).map_err(fail)
        })
    };
    // A session of root can contain trees of another owner, such as the changes of an overlay.
    match clear(0) {
        Err(_) if owner.is_some() => clear(file_worker::MULTI_OWNER_CAPABILITIES),
        other => other,
    }
}
