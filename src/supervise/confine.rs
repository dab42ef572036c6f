//! What a supervisor gives up, for good, before it reads the first byte that a sandbox, a server or a terminal sends
//! (DECISIONS 33): what parses has no rights, and what has rights, the launcher, parses nothing.
//!
//! It gives up every capability and the way back to any, root's ids for ids of its own, all files but those of its
//! sandbox, new connections, new processes, and all system calls that its loop does not make. Landlock is what the
//! kernel has of it; without it the rest holds.

use crate::error::{Error, Result};
use crate::state::lent;
use crate::sys::confine::{self, AccessFs, Domain, Failed, Kept};
use crate::sys::seccomp::{self, Outside};
use crate::sys::{Errno, SysResult, file};
use ::landlock::AccessFs as Right;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// What a supervisor keeps.
#[derive(Debug, Default)]
pub(super) struct Rights<'a> {
    /// The user and the group that it becomes, where it is root.
    pub(super) id: Option<u32>,
    /// Directories whose files it reads.
    pub(super) reads: Vec<&'a Path>,
    /// Directories in which it makes, writes and removes files: where it is root they become its id's.
    pub(super) files: Vec<BorrowedFd<'a>>,
    /// The cgroup of its sandbox, where it makes a leaf for each command; becomes its id's as well.
    pub(super) cgroup: Option<&'a Path>,
}

/// Confines this process.
///
/// # Errors
/// [`crate::error::Code::System`]: then it must not go on.
pub(super) fn enter(rights: &Rights<'_>) -> Result<()> {
    give_up(rights)
        .map_err(|(what, errno)| Error::system(format_args!("confine the supervisor: {what}"), errno.desc()))
}

fn give_up(rights: &Rights<'_>) -> Result<(), Failed> {
    let at = |what| move |errno| (what, errno);
    let cgroup = rights.cgroup.map(directory).transpose().map_err(at("open its cgroup"))?.flatten();
    let cgroup = cgroup.as_ref().map(AsFd::as_fd);
    let domain = domain(rights, cgroup).map_err(at("make its landlock domain"))?;
    if let Some(id) = rights.id {
        let mut own = rights.files.iter().copied().chain(cgroup);
        own.try_for_each(|directory| lent::give(directory, id))
            .map_err(|e| ("own its directories", Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO))))?;
    }
    let ids = rights.id.map(|id| (id, id));
    confine::give_up(Kept { ids, capabilities: 0, domain: Some(domain) })?;
    seccomp::load(Outside::Supervisor.program()).map_err(|errno| ("load the filter", Errno::from_raw(errno)))
}

fn domain(rights: &Rights<'_>, cgroup: Option<BorrowedFd<'_>>) -> SysResult<Domain> {
    let read: AccessFs = Right::ReadFile | Right::ReadDir;
    let write = read | Right::WriteFile | Right::Truncate;
    let domain = Domain::new(1)?;
    rights.reads.iter().try_for_each(|path| domain.allow(path, read))?;
    let files = write | Right::MakeReg | Right::RemoveFile;
    rights.files.iter().try_for_each(|place| domain.allow_beneath(*place, files))?;
    let leaves = write | Right::MakeDir | Right::RemoveDir;
    cgroup.map_or(Ok(()), |place| domain.allow_beneath(place, leaves))?;
    Ok(domain)
}

/// Opens a directory, if it is there.
fn directory(path: &Path) -> SysResult<Option<OwnedFd>> {
    let path = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| Errno::EINVAL)?;
    match file::open(file::cwd(), &path, libc::O_RDONLY | libc::O_DIRECTORY, 0, file::Resolve::Ordinary) {
        Ok(place) => Ok(Some(place)),
        Err(Errno::ENOENT | Errno::EACCES) => Ok(None),
        Err(errno) => Err(errno),
    }
}
