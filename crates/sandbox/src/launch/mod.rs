//! The parent's side of a start.
//!
//! Runs in the supervisor or a runtime command, with one thread (asserted) and the caller's rights. As much as possible
//! is prepared before the clone, since the child does little work.
//!
//! There are two starts, one for each child of [`crate::stage`]. [`agent`] is one call: clone, id maps, release; pid 1
//! does the rest, and the supervisor serves it as long as it lives. [`container`] has two halves by the OCI runtime
//! specification: `create` leaves a child that waits, with hooks between its steps, and another process calls `start`.
//! This module has what both share.

pub mod agent;
pub mod container;
mod hint;
mod idmap;
pub mod ids;

use crate::plan::ids::UserNamespaceMaps;
use saggar_sys::error::{Error, Result};
use std::os::fd::AsFd;

/// Writes the id maps of `pid`, an unreaped child of this process, so that the pid cannot have been reused.
pub(crate) fn write_maps(pid: i32, maps: &UserNamespaceMaps) -> Result<()> {
    let write = |name: &str, text: &str| {
        let path = format!("/proc/{pid}/{name}");
        let file = nix::fcntl::open(
            path.as_str(),
            nix::fcntl::OFlag::O_WRONLY | nix::fcntl::OFlag::O_CLOEXEC,
            nix::sys::stat::Mode::empty(),
        )
        .map_err(|e| Error::system(format_args!("open {name} of the sandbox"), e))?;
        // One write: the kernel accepts a map as a whole or not at all.
        nix::unistd::write(file.as_fd(), text.as_bytes())
            .map(drop)
            .map_err(|e| hint::map_failed(name, text, e))
    };
    if maps.deny_setgroups {
        write("setgroups", "deny")?;
    }
    // A namespace may lack a map: its ids then appear as the overflow id.
    let map = |name, text: &str| if text.is_empty() { Ok(()) } else { write(name, text) };
    map("gid_map", &maps.gid)?;
    map("uid_map", &maps.uid)
}
