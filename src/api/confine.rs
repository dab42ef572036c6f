//! What the process of the model API gives up before it takes the first request.
//!
//! It reads what a hostile program sends, and holds a key. So it is nobody where it was root, has no capability, gains
//! none, executes nothing, reads what looking a name up takes, connects to the upstream's port and that of DNS, and
//! makes the system calls of agents alone; and nobody looks into its memory. Landlock is what it is where it is:
//! without it the rest holds.

use crate::error::{Code, Error, Result};
use crate::sys::confine::{self, Domain, Kept};
use crate::sys::seccomp::{self, Profile};
use crate::sys::{Errno, SysResult, caps, process};
use landlock::AccessFs;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::path::Path;

/// The user and the group that own nothing, on every system.
const NOBODY: u32 = 65534;
const DNS: u16 = 53;
/// What says where names are looked up; read again each time, since it changes.
const RESOLVING: &str = "/etc/resolv.conf";

/// Confines this process, for good, to serving an upstream at this port for this supervisor.
///
/// # Errors
/// [`Code::System`]: then it must not serve.
pub(super) fn confine(port: u16, supervisor: i32) -> Result<()> {
    // Two descriptors for each connection: as many as the host lets it have.
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
    let fails =
        |what: &str, errno: Errno| Error::system(format_args!("confine the model API: {what}"), errno.desc());
    let domain = domain(port).map_err(|errno| fails("make its landlock domain", errno))?;
    let is_root = caps::effective() != 0;
    let kept = Kept { ids: is_root.then_some((NOBODY, NOBODY)), capabilities: 0, domain: Some(domain) };
    confine::give_up(kept).map_err(|(what, errno)| fails(what, errno))?;
    // The change of the user has cleared a bond that was made before.
    process::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64, 0, 0)
        .map_err(|errno| fails("follow the supervisor", errno))?;
    if nix::unistd::getppid().as_raw() != supervisor {
        return Err(Error::new(Code::State, "the supervisor is gone"));
    }
    seccomp::load(seccomp::program(Profile::Agent))
        .map_err(|errno| fails("load the filter", Errno::from_raw(errno)))
}

fn domain(port: u16) -> SysResult<Domain> {
    let domain = Domain::new(1)?;
    // The file is often a link to one that a program of the network keeps, and replaces.
    let kept = Path::new(RESOLVING).canonicalize().ok();
    let places = kept.as_deref().and_then(Path::parent).into_iter().chain([Path::new("/etc")]);
    places.into_iter().try_for_each(|place| domain.allow(place, AccessFs::ReadFile.into()))?;
    [port, DNS].into_iter().try_for_each(|port| domain.allow_connecting(port))?;
    Ok(domain)
}

#[cfg(test)]
mod tests;
