//! Drops the rights of a supervisor irrevocably, before it reads the first byte from a sandbox, a server or a terminal
//! (DECISIONS 33): the process that parses has no rights, and the launcher, which has rights, parses nothing.
//!
//! The supervisor drops all capabilities and every way to regain one. As root it changes to user and group ids of its
//! own. It loses access to all files but those of its sandbox, new connections, new processes, and all system calls
//! that its loop does not make. Landlock restricts files as far as the kernel supports it; the other restrictions hold
//! without it.

use crate::cgroup::SandboxCgroups;
use crate::error::{Error, Result};
use crate::state::delegated_directory;
use crate::sys::confine::{self, AccessFs, ConfineError, LandlockDomain, LandlockSummary, RetainedRights};
use crate::sys::seccomp::{self, HostProcessFilter};
use crate::sys::{Errno, SysResult, file};
use ::landlock::AccessFs as Right;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The rights that a supervisor keeps.
pub const SUPERVISOR_RIGHTS: confine::ProcessRights = confine::ProcessRights {
    name: c"saggar",
    capabilities: 0,
    filter: HostProcessFilter::Supervisor,
    landlock: Some(LandlockSummary { min_abi: 1, allows: "its cgroup, a session's log and spool" }),
};

/// The parameters of [`confine_supervisor`].
#[derive(Debug, Default)]
pub(super) struct SupervisorRights<'a> {
    /// The user and group id that it changes to if it is root.
    pub(super) id: Option<u32>,
    /// The capability bounding set, as a bit mask, once the launcher has been forked.
    pub(super) bounding_set: Option<u64>,
    /// Directories whose files it may read.
    pub(super) readable: Vec<&'a Path>,
    /// Directories in which it may create, write and remove files. If it is root, [`Self::id`] becomes their owner.
    pub(super) writable: Vec<BorrowedFd<'a>>,
    /// The cgroups of its sandbox, in which it creates a leaf for each command. [`Self::id`] becomes their owner as well.
    pub(super) cgroups: Option<&'a SandboxCgroups>,
}

/// Confines this process.
///
/// # Errors
/// [`crate::error::Code::System`]: the supervisor must not continue.
pub(super) fn confine_supervisor(rights: &SupervisorRights<'_>) -> Result<()> {
    drop_rights(rights)
        .map_err(|(what, errno)| Error::system(format_args!("confine the supervisor: {what}"), errno.desc()))
}

fn drop_rights(rights: &SupervisorRights<'_>) -> Result<(), ConfineError> {
    let at = |what| move |errno| (what, errno);
    let cgroups = rights.cgroups.into_iter().flat_map(SandboxCgroups::directories).map(open_directory);
    let cgroups: Vec<_> = cgroups.collect::<SysResult<_>>().map_err(at("open its cgroup"))?;
    let cgroups = cgroups.iter().flatten().map(AsFd::as_fd);
    let domain = landlock_domain(rights, cgroups.clone()).map_err(at("make its landlock domain"))?;
    if let Some(id) = rights.id {
        let mut own = rights.writable.iter().copied().chain(cgroups);
        own.try_for_each(|directory| delegated_directory::delegate(directory, id))
            .map_err(|e| ("own its directories", Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO))))?;
    }
    let ids = rights.id.map(|id| (id, id));
    let kept = RetainedRights {
        ids,
        capabilities: SUPERVISOR_RIGHTS.capabilities,
        bounding: rights.bounding_set,
        domain: Some(domain),
    };
    confine::drop_rights(kept)?;
    seccomp::load(SUPERVISOR_RIGHTS.filter.program())
        .map_err(|errno| ("load the filter", Errno::from_raw(errno)))
}

fn landlock_domain<'a>(
    rights: &SupervisorRights<'_>,
    mut cgroups: impl Iterator<Item = BorrowedFd<'a>>,
) -> SysResult<LandlockDomain> {
    let read: AccessFs = Right::ReadFile | Right::ReadDir;
    let write = read | Right::WriteFile | Right::Truncate;
    let domain = LandlockDomain::new(SUPERVISOR_RIGHTS.landlock.map_or(0, |landlock| landlock.min_abi))?;
    rights.readable.iter().try_for_each(|path| domain.allow(path, read))?;
    let files = write | Right::MakeReg | Right::RemoveFile;
    rights.writable.iter().try_for_each(|place| domain.allow_beneath(*place, files))?;
    let leaves = write | Right::MakeDir | Right::RemoveDir;
    cgroups.try_for_each(|place| domain.allow_beneath(place, leaves))?;
    Ok(domain)
}

/// Opens a directory; `None` if it does not exist.
fn open_directory(path: &Path) -> SysResult<Option<OwnedFd>> {
    let path = file::c_path(path)?;
    match file::open(file::cwd(), &path, libc::O_RDONLY | libc::O_DIRECTORY, 0, file::Resolve::Ordinary) {
        Ok(place) => Ok(Some(place)),
        Err(Errno::ENOENT | Errno::EACCES) => Ok(None),
        Err(errno) => Err(errno),
    }
}
