//! What the server of a mailbox keeps: the files of its run, and no other rights.

use crate::error::{Error, Result};
use crate::sys::confine::{self, LandlockDomain, RetainedRights};
use crate::sys::seccomp::{self, HostProcessFilter};
use crate::sys::{Errno, SysResult};
use ::landlock::AccessFs;
use std::path::Path;

/// The least Landlock ABI that is used.
const MIN_LANDLOCK_ABI: u32 = 2;

/// Gives up all rights but those to the files in `run`. The process must have one thread.
///
/// # Errors
/// [`crate::error::Code::System`]: the process must not serve an agent.
pub(super) fn confine(run: &Path) -> Result<()> {
    let fail =
        |what: &str, errno: Errno| Error::system(format_args!("confine the server: {what}"), errno.desc());
    let domain = domain(run).map_err(|errno| fail("make its landlock domain", errno))?;
    confine::drop_rights(RetainedRights { domain: Some(domain), ..RetainedRights::default() })
        .map_err(|(what, errno)| fail(what, errno))?;
    seccomp::load(HostProcessFilter::Api.program())
        .map_err(|errno| fail("load the filter", Errno::from_raw(errno)))
}

fn domain(run: &Path) -> SysResult<LandlockDomain> {
    let domain = LandlockDomain::new(MIN_LANDLOCK_ABI)?;
    let reads = AccessFs::ReadFile | AccessFs::ReadDir;
    let changes = AccessFs::WriteFile | AccessFs::Truncate | AccessFs::RemoveFile;
    let makes = AccessFs::MakeReg | AccessFs::MakeDir;
    domain.allow(run, reads | changes | makes)?;
    Ok(domain)
}
