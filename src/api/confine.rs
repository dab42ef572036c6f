//! What the process of the model API gives up before it takes the first request.
//!
//! It reads what a hostile program sends, and holds a key. So it is nobody where it was root, has no capability, gains
//! none, executes nothing, reads what looking a name up takes, connects to the upstream's port and that of DNS, and
//! makes the system calls of agents alone; and nobody looks into its memory. Landlock is what it is where it is:
//! without it the rest holds.

use crate::error::{Code, Error, Result};
use crate::sys::landlock::{self, RulesetAttr};
use crate::sys::seccomp::{self, Profile};
use crate::sys::{Errno, SysResult, caps, file, process};
use ::landlock::{ABI, Access, AccessFs, AccessNet};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// The user and the group that own nothing, on every system.
const NOBODY: u32 = 65534;
/// The newest ABI that this module knows the rights of.
const NEWEST: u32 = 6;
/// Scopes of abstract sockets and of signals (ABI 6).
const SCOPES: u64 = 0b11;
const DNS: u16 = 53;
/// CAP_SETPCAP
const SETPCAP: u32 = 8;
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
    give_up(port).map_err(|(what, errno)| {
        Error::system(format_args!("confine the model API: {what}"), errno.desc())
    })?;
    // The change of the user has cleared a bond that was made before.
    process::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64, 0, 0)
        .map_err(|e| Error::system("follow the supervisor", e.desc()))?;
    if nix::unistd::getppid().as_raw() != supervisor {
        return Err(Error::new(Code::State, "the supervisor is gone"));
    }
    seccomp::load(seccomp::program(Profile::Agent)).map_err(|errno| {
        Error::system("confine the model API: load the filter", Errno::from_raw(errno).desc())
    })
}

fn give_up(port: u16) -> Result<(), (&'static str, Errno)> {
    let at = |what| move |errno| (what, errno);
    if caps::effective() != 0 {
        if caps::has(SETPCAP) {
            caps::bound(0).map_err(at("drop capabilities"))?;
        }
        match process::become_user(NOBODY, NOBODY, true) {
            // A container whose root is not mapped to more than itself.
            Err(Errno::EINVAL | Errno::EPERM) => {}
            other => other.map_err(at("become nobody"))?,
        }
    }
    caps::set(0, 0, 0, 0).map_err(at("drop capabilities"))?;
    process::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0).map_err(at("set no_new_privs"))?;
    process::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0).map_err(at("hide its memory"))?;
    match landlock::abi().min(NEWEST) {
        0 => Ok(()),
        abi => enter_domain(abi, port).map_err(at("enter its landlock domain")),
    }
}

fn enter_domain(abi: u32, port: u16) -> SysResult<()> {
    let known = ABI::from(i32::try_from(abi).unwrap_or(i32::MAX));
    let attr = RulesetAttr {
        access_fs: AccessFs::from_all(known).bits(),
        access_net: if abi >= 4 { AccessNet::from_all(known).bits() } else { 0 },
        scoped: if abi >= 6 { SCOPES } else { 0 },
    };
    let ruleset = landlock::create_ruleset(&attr, abi)?;
    // The file is often a link to one that a program of the network keeps, and replaces.
    let kept = Path::new(RESOLVING).canonicalize().ok();
    let places = kept.as_deref().and_then(Path::parent).into_iter().chain([Path::new("/etc")]);
    places.into_iter().try_for_each(|place| allow_reading(ruleset.as_fd(), place))?;
    if abi >= 4 {
        for port in [port, DNS] {
            landlock::allow_connecting(ruleset.as_fd(), port)?;
        }
    }
    landlock::restrict_self(ruleset.as_fd())
}

/// What is not there needs no rule.
fn allow_reading(ruleset: BorrowedFd<'_>, path: &Path) -> SysResult<()> {
    let path = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| Errno::EINVAL)?;
    match file::open(file::cwd(), &path, libc::O_PATH, 0, file::Resolve::Ordinary) {
        Ok(path) => landlock::allow_beneath(ruleset, path.as_fd(), landlock::READ_FILE),
        Err(Errno::ENOENT | Errno::EACCES) => Ok(()),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests;
