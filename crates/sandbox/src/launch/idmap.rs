//! Makes user namespaces for idmapped mounts.

use super::{hint, write_maps};
use crate::plan::ids::UserNamespaceMaps;
use saggar_sys::clone;
use saggar_sys::error::{Error, Result};
use std::os::fd::{AsFd, OwnedFd};

/// User namespaces that exist only for their id maps; one for each pair of owners.
#[derive(Default)]
pub(super) struct IdmapNamespaces(Vec<(UserNamespaceMaps, OwnedFd)>);

impl IdmapNamespaces {
    pub(super) fn userns(&mut self, maps: UserNamespaceMaps) -> Result<std::os::fd::BorrowedFd<'_>> {
        let index = match self.0.iter().position(|(known, _)| *known == maps) {
            Some(index) => index,
            None => {
                let userns = make_userns(&maps)?;
                self.0.push((maps, userns));
                self.0.len() - 1
            }
        };
        Ok(self.0[index].1.as_fd())
    }
}

/// Makes a user namespace with these maps. Its only process exits when this function returns; the file descriptor keeps
/// the namespace alive.
fn make_userns(maps: &UserNamespaceMaps) -> Result<OwnedFd> {
    let holder = clone::UserNamespaceHolder::new().map_err(hint::clone_failed)?;
    write_maps(holder.pid(), maps)?;
    let path = format!("/proc/{}/ns/user", holder.pid());
    let flags = nix::fcntl::OFlag::O_RDONLY | nix::fcntl::OFlag::O_CLOEXEC;
    nix::fcntl::open(path.as_str(), flags, nix::sys::stat::Mode::empty())
        .map_err(|e| Error::system("open the user namespace that maps owners", e))
}
