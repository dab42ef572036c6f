//! Which directories of the host programs inside reach. A socket of the sandbox's own does not belong there: programs of
//! this sandbox and of every other one on the same tree find it, and can take it away and listen in its place.

use crate::error::{Code, Error, Result};
use crate::plan::agent::AgentPlan;
use crate::spec::policy::EffectivePolicy;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, fstat};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Deeper directories are taken for reached ones: a path of the kernel has 4096 bytes, two a name.
const MAX_DEPTH: usize = 2048;

const DIRECTORY: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// The directories of the host that a sandbox shares, by device and inode: whatever names they go by.
#[derive(Debug)]
pub(crate) struct SharedDirectories(Vec<(u64, u64)>);

impl SharedDirectories {
    pub(crate) fn of(plan: &AgentPlan) -> Self {
        let directories =
            plan.slots.iter().filter_map(|slot| open(&slot.path, DIRECTORY, Mode::empty()).ok());
        SharedDirectories(directories.filter_map(|directory| identity(directory.as_fd()).ok()).collect())
    }

    /// Whether a directory is one of them or lies below one. What cannot be found out counts as yes.
    pub(crate) fn contains(&self, directory: BorrowedFd<'_>) -> bool {
        self.is_below_shared(directory).unwrap_or(true)
    }

    fn is_below_shared(&self, directory: BorrowedFd<'_>) -> nix::Result<bool> {
        let mut at = identity(directory)?;
        let mut above: Option<OwnedFd> = None;
        for _ in 0..MAX_DEPTH {
            if self.0.contains(&at) {
                return Ok(true);
            }
            let from = above.as_ref().map_or(directory, AsFd::as_fd);
            let next = openat(from, "..", DIRECTORY, Mode::empty())?;
            let is = identity(next.as_fd())?;
            if is == at {
                return Ok(false);
            }
            (at, above) = (is, Some(next));
        }
        Ok(true)
    }
}

fn identity(directory: BorrowedFd<'_>) -> nix::Result<(u64, u64)> {
    fstat(directory).map(|found| (found.st_dev, found.st_ino))
}

/// Refuses the socket of the model API where programs reach its directory, unless the policy insists.
///
/// # Errors
/// [`Code::Refused`].
pub(crate) fn check_api_socket(plan: &AgentPlan, policy: &EffectivePolicy) -> Result<()> {
    let Some(socket) = policy.api_socket.as_ref().filter(|_| !policy.allow_reachable.value) else {
        return Ok(());
    };
    let socket = super::sockets::resolve_socket(socket.value.as_path())?;
    let directory = socket.parent().and_then(|parent| open(parent, DIRECTORY, Mode::empty()).ok());
    match directory.is_some_and(|directory| !SharedDirectories::of(plan).contains(directory.as_fd())) {
        true => Ok(()),
        false => Err(reachable_socket_error("api.socket", &socket)),
    }
}

/// The refusal of a socket, by the key that names it.
pub(crate) fn reachable_socket_error(key: &str, socket: &Path) -> Error {
    let message = format!("{key}: {} is in a directory that programs of the sandbox reach", socket.display());
    Error::new(Code::Refused, message).hint(
        "let it be in a directory of its own outside of the workspace, the home and what is bound, or accept that \
         programs can remove or replace it with --allow-reachable-sockets",
    )
}
