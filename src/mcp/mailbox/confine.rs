//! What the server of a mailbox keeps: the files of its run, and no other rights.

use crate::error::{Error, Result};
use crate::sys::confine::{self, LandlockDomain, LandlockSummary, ProcessRights, RetainedRights};
use crate::sys::seccomp::{self, HostProcessFilter};
use crate::sys::{Errno, SysResult};
use ::landlock::AccessFs;
use std::path::Path;

/// The rights of the process that serves the mailbox of a sandbox, after it is confined.
pub const MAILBOX_RIGHTS: ProcessRights = ProcessRights {
    name: c"saggar:mailbox",
    capabilities: 0,
    filter: HostProcessFilter::Api,
    landlock: Some(LandlockSummary { min_abi: 2, allows: "files of its run" }),
};

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
    seccomp::load(MAILBOX_RIGHTS.filter.program())
        .map_err(|errno| fail("load the filter", Errno::from_raw(errno)))
}

fn domain(run: &Path) -> SysResult<LandlockDomain> {
    let domain = LandlockDomain::new(MAILBOX_RIGHTS.landlock.map_or(0, |landlock| landlock.min_abi))?;
    let reads = AccessFs::ReadFile | AccessFs::ReadDir;
    let changes = AccessFs::WriteFile | AccessFs::Truncate | AccessFs::RemoveFile;
    let makes = AccessFs::MakeReg | AccessFs::MakeDir;
    domain.allow(run, reads | changes | makes)?;
    Ok(domain)
}
