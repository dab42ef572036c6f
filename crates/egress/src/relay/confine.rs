//! The rights that the two processes of the relay drop before they read the first byte from a sandbox or a host.

use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use saggar_sys::confine::{
    ConfineError, LandlockDomain, LandlockSummary, ProcessRights, RetainedRights, drop_rights,
};
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::seccomp::{self, HostProcessFilter};
use saggar_sys::{Errno, caps, process};

/// The rights that the relay keeps.
pub const RELAY_RIGHTS: ProcessRights = ProcessRights {
    name: c"saggar:relay",
    capabilities: 0,
    filter: HostProcessFilter::Relay,
    landlock: Some(LandlockSummary { min_abi: 0, allows: "connections over TCP, and no file" }),
};

/// The rights that the attribution keeps.
pub const ATTRIBUTION_RIGHTS: ProcessRights = ProcessRights {
    name: c"saggar:attrib",
    capabilities: 0,
    filter: HostProcessFilter::Attribution,
    landlock: None,
};

/// Confines the relay irrevocably. If it is root it changes to user and group `id`. It has no capability and can gain
/// none, opens no file, executes no program, listens on no port of the host, and ends with its supervisor. Without
/// Landlock, the seccomp filter still allows no system call that opens a file.
///
/// # Errors
/// [`Code::System`]: the process must not relay.
pub(super) fn confine_relay(id: u32, supervisor: i32) -> Result<()> {
    let named = |failed| confine_error("the relay", failed);
    let domain =
        LandlockDomain::with_tcp_connect(RELAY_RIGHTS.landlock.map_or(0, |landlock| landlock.min_abi))
            .map_err(|errno| named(("make its landlock domain", errno)))?;
    let ids = (caps::effective() != 0).then_some((id, id));
    drop_rights(RetainedRights {
        ids,
        domain: Some(domain),
        capabilities: RELAY_RIGHTS.capabilities,
        ..RetainedRights::default()
    })
    .map_err(named)?;
    // The change of the user id has cleared an earlier parent-death signal (PR_SET_PDEATHSIG).
    process::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64, 0, 0)
        .map_err(|e| Error::system("follow the supervisor", e.desc()))?;
    if nix::unistd::getppid().as_raw() != supervisor {
        return Err(Error::new(Code::State, "the supervisor is gone"));
    }
    load_filter(RELAY_RIGHTS.filter).map_err(named)
}

/// Confines the attribution irrevocably. It keeps the user id of the sandbox's owner, which lets it inspect the owner's
/// processes. If it is root it takes `files` as user and group for file access. It has no capability and can gain none,
/// changes no file, executes no program, and has only the sockets to the relay. It has no Landlock domain: a process in
/// a domain cannot inspect processes outside it (Documentation/userspace-api/landlock.rst).
///
/// # Errors
/// [`Code::System`]: the process must not inspect any process.
pub(super) fn confine_attribution(files: Option<(u32, u32)>) -> Result<()> {
    if let Some((user, group)) = files.filter(|_| caps::effective() != 0) {
        setfsgid(Gid::from_raw(group));
        setfsuid(Uid::from_raw(user));
    }
    drop_rights(RetainedRights { capabilities: ATTRIBUTION_RIGHTS.capabilities, ..RetainedRights::default() })
        .and_then(|()| load_filter(ATTRIBUTION_RIGHTS.filter))
        .map_err(|failed| confine_error("the process that looks into the sandbox", failed))
}

fn confine_error(what: &str, (step, errno): ConfineError) -> Error {
    Error::system(format_args!("confine {what}: {step}"), errno.desc())
}

fn load_filter(filter: HostProcessFilter) -> Result<(), ConfineError> {
    seccomp::load(filter.program()).map_err(|errno| ("load the filter", Errno::from_raw(errno)))
}
