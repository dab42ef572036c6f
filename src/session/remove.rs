//! The removal of trees that agents filled, of any depth and any modes, in a worker ([`worker`]). A removal of a session
//! that fails on its way leaves a session, which can be removed again.

use super::beneath;
use super::worker::{self, Access, Confinement, Limits};
use crate::error::{Error, Result};
use rustix::fs::AtFlags;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// By this name in it a directory is a session.
const LOCK: &str = "lock";

/// Removes `directory` and all below it, following no link and nothing that is mounted there.
///
/// # Errors
/// [`crate::error::Code::System`].
pub fn directory(directory: &Path) -> Result<()> {
    let fail = |e: io::Error| Error::system(format_args!("remove {}", directory.display()), e);
    let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
        return Err(fail(io::ErrorKind::InvalidInput.into()));
    };
    let parent = beneath::root(parent).map_err(fail)?;
    let opened = match beneath::open_to_change(parent.as_fd(), Path::new(name)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(fail)?,
    };
    empty(opened.as_fd(), &format!("remove {}", directory.display()))?;
    beneath::remove(parent.as_fd(), name).map_err(fail)
}

/// Removes `name` in `at` and all below it. What is not there is removed already.
///
/// # Errors
/// [`crate::error::Code::System`].
pub(super) fn tree(at: BorrowedFd<'_>, name: &Path) -> Result<()> {
    let task = format!("remove {}", super::diff::text::path(name));
    let fail = |e: io::Error| Error::system(&task, e);
    match rustix::fs::unlinkat(at, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(fail(errno.into())),
    }
    let top = beneath::open_to_change(at, name).map_err(fail)?;
    empty(top.as_fd(), &task)?;
    rustix::fs::unlinkat(at, name, AtFlags::REMOVEDIR).map_err(|errno| fail(errno.into()))
}

/// Removes all that is in `top`, in a worker; the lock of a session last.
fn empty(top: BorrowedFd<'_>, task: &str) -> Result<()> {
    let fail = |e: io::Error| Error::system(task, e);
    let owner = worker::owner(top).map_err(fail)?;
    let clear = |capabilities| {
        let directories = &[(top, Access::Write)];
        let limits = Limits::default();
        let confinement = Confinement { task, owner, capabilities, directories, files: &[], limits };
        worker::run(&confinement, || {
            for name in beneath::names(top, usize::MAX).map_err(fail)? {
                if name != LOCK {
                    beneath::remove(top, &name).map_err(fail)?;
                }
            }
            beneath::remove(top, LOCK).map_err(fail)
        })
    };
    // Below the session of a root there can be trees of another owner, as that of an overlay's changes is.
    match clear(0) {
        Err(_) if owner.is_some() => clear(worker::SEVERAL_OWNERS),
        other => other,
    }
}
