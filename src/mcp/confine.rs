//! The confinement that all servers share.

use crate::error::{Error, Result};
use crate::sys::confine::{self, LandlockDomain, ProcessRights, RetainedRights};
use crate::sys::seccomp;
use crate::sys::{Errno, SysResult, process};
use nix::sys::stat::{Mode, umask};

/// Gives up all rights but those to the files that `allow` adds to the Landlock domain. The process must have one
/// thread.
///
/// # Errors
/// [`crate::error::Code::System`]: the process must not serve a client.
pub(super) fn confine_server(
    rights: &ProcessRights,
    allow: impl FnOnce(&LandlockDomain) -> SysResult<()>,
) -> Result<()> {
    let fail =
        |what: &str, errno: Errno| Error::system(format_args!("confine the server: {what}"), errno.desc());
    let domain = LandlockDomain::new(rights.landlock.map_or(0, |landlock| landlock.min_abi))
        .and_then(|domain| allow(&domain).map(|()| domain))
        .map_err(|errno| fail("make its landlock domain", errno))?;
    // The filters allow no change of the mode of a path.
    umask(Mode::S_IRWXG | Mode::S_IRWXO);
    confine::drop_rights(RetainedRights { domain: Some(domain), ..RetainedRights::default() })
        .map_err(|(what, errno)| fail(what, errno))?;
    // A process of this name has no more rights than the table of processes says.
    let _ = process::set_name(rights.name);
    seccomp::load(rights.filter.program()).map_err(|errno| fail("load the filter", Errno::from_raw(errno)))
}
