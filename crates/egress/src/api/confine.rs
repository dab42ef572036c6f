//! Confines the API process before it takes the first request.
//!
//! The process parses input from a hostile program and holds a key. It therefore runs as uid and gid 65534 if it was
//! root. It has no capabilities, gains none and executes nothing. It reads only the files that name lookups need and
//! connects only to the ports of the upstream and of DNS. It uses the system call filter of agents. It is not dumpable
//! (PR_SET_DUMPABLE in prctl(2)), so that no unprivileged process can read its memory. Landlock applies where the kernel
//! supports it. The other controls do not depend on it.

use crate::service::end_with_parent;
use landlock::AccessFs;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use saggar_policy::hosts::DNS_PORT;
use saggar_sys::confine::{self, LandlockDomain, LandlockSummary, ProcessRights, RetainedRights};
use saggar_sys::error::{Error, Result};
use saggar_sys::seccomp::{self, HostProcessFilter};
use saggar_sys::{Errno, SysResult, caps};
use std::path::Path;

/// The rights of the process after it is confined.
pub const API_RIGHTS: ProcessRights = ProcessRights {
    name: c"saggar:api",
    capabilities: 0,
    filter: HostProcessFilter::Api,
    landlock: Some(LandlockSummary { min_abi: 1, allows: "files of /etc, ports of the upstream and DNS" }),
};

/// The user and group id `nobody`, which own no files.
pub const NOBODY: u32 = 65534;
/// The list of resolvers. It can change and is read again for each lookup.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Confines this process permanently to one upstream port and one supervisor.
///
/// # Errors
/// [`saggar_sys::error::Code::System`]. The process must then not serve requests.
pub(super) fn confine(port: u16, supervisor: i32) -> Result<()> {
    // Each connection needs two descriptors, so the soft limit is raised to the hard limit.
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
    let fails =
        |what: &str, errno: Errno| Error::system(format_args!("confine the model API: {what}"), errno.desc());
    let domain = landlock_domain(port).map_err(|errno| fails("make its landlock domain", errno))?;
    let is_root = caps::effective() != 0;
    let kept = RetainedRights {
        ids: is_root.then_some((NOBODY, NOBODY)),
        capabilities: API_RIGHTS.capabilities,
        domain: Some(domain),
        ..RetainedRights::default()
    };
    confine::drop_rights(kept).map_err(|(what, errno)| fails(what, errno))?;
    end_with_parent(supervisor)?;
    seccomp::load(API_RIGHTS.filter.program())
        .map_err(|errno| fails("load the filter", Errno::from_raw(errno)))
}

fn landlock_domain(port: u16) -> SysResult<LandlockDomain> {
    let domain = LandlockDomain::new(API_RIGHTS.landlock.map_or(0, |landlock| landlock.min_abi))?;
    // The file is often a link to a file that a network service writes and replaces.
    let kept = Path::new(RESOLV_CONF).canonicalize().ok();
    let places = kept.as_deref().and_then(Path::parent).into_iter().chain([Path::new("/etc")]);
    places.into_iter().try_for_each(|place| domain.allow(place, AccessFs::ReadFile.into()))?;
    [port, DNS_PORT].into_iter().try_for_each(|port| domain.allow_connect(port))?;
    Ok(domain)
}

#[cfg(test)]
mod tests;
