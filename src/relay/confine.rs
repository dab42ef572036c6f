//! What the two processes of the relay give up before they read the first byte of a sandbox or of a host.

use crate::error::{Code, Error, Result};
use crate::sys::confine::{Domain, Failed, Kept, give_up};
use crate::sys::seccomp::{self, Outside};
use crate::sys::{Errno, caps, process};
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

/// Confines the relay, for good: it takes this id where it is root, has no capability and gains none, opens no file,
/// starts no program, listens on no port of the host, and ends with its supervisor. Without landlock the filter still
/// has no call that opens a file.
///
/// # Errors
/// [`Code::System`]: then it must not relay.
pub(super) fn relay(id: u32, supervisor: i32) -> Result<()> {
    let named = |failed| named("the relay", failed);
    let domain = Domain::that_connects(0).map_err(|errno| named(("make its landlock domain", errno)))?;
    let ids = (caps::effective() != 0).then_some((id, id));
    give_up(Kept { ids, domain: Some(domain), ..Kept::default() }).map_err(named)?;
    // The change of the user has cleared a bond that was made before.
    process::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64, 0, 0)
        .map_err(|e| Error::system("follow the supervisor", e.desc()))?;
    if nix::unistd::getppid().as_raw() != supervisor {
        return Err(Error::new(Code::State, "the supervisor is gone"));
    }
    load(Outside::Relay).map_err(named)
}

/// Confines the attribution, for good: it keeps the id of the sandbox's owner, by which it looks into its processes,
/// takes `files` for its user and group at files where it is root, has no capability and gains none, changes no file,
/// starts no program, and has no socket but those to the relay. There is no landlock domain: a process in one looks into
/// none outside it (Documentation/userspace-api/landlock.rst).
///
/// # Errors
/// [`Code::System`]: then it must not look.
pub(super) fn attribution(files: Option<(u32, u32)>) -> Result<()> {
    if let Some((user, group)) = files.filter(|_| caps::effective() != 0) {
        setfsgid(Gid::from_raw(group));
        setfsuid(Uid::from_raw(user));
    }
    give_up(Kept::default())
        .and_then(|()| load(Outside::Attribution))
        .map_err(|failed| named("the process that looks into the sandbox", failed))
}

fn named(what: &str, (step, errno): Failed) -> Error {
    Error::system(format_args!("confine {what}: {step}"), errno.desc())
}

fn load(filter: Outside) -> Result<(), Failed> {
    seccomp::load(filter.program()).map_err(|errno| ("load the filter", Errno::from_raw(errno)))
}
