//! The owner of a container's cgroup: who runs in it may then make cgroups of its own below (config-linux.md,
//! "Cgroup ownership").

use super::Group;
use crate::error::{Error, Result};
use crate::host::cgroups::Version;
use crate::sys::file::set_owner;
use nix::errno::Errno;
use std::fs;
use std::os::fd::AsFd;

/// Which files the kernel lets go with a cgroup that is delegated (cgroups(7), Linux 4.15).
const DELEGATED: &str = "/sys/kernel/cgroup/delegate";
/// The same on a kernel that does not say so, in the words of the specification.
const FALLBACK: &str = "cgroup.procs\ncgroup.subtree_control\ncgroup.threads";
/// The group stays as it is (chown(2)).
const NO_GROUP: u32 = u32::MAX;

impl Group {
    /// Gives the cgroup to `uid`, an id of this user namespace. Only where cgroup v2 is all there is: v1 cannot be
    /// delegated safely.
    ///
    /// # Errors
    /// When the owner cannot be changed.
    pub fn give_to(&self, uid: u32) -> Result<()> {
        let [dir] = &self.dirs.list[..] else { return Ok(()) };
        if dir.version != Version::V2 {
            return Ok(());
        }
        let fails = |errno: Errno| {
            Error::system(format_args!("give {} to uid {uid}", dir.path.display()), errno.desc())
        };
        set_owner(dir.as_fd(), uid, NO_GROUP).map_err(fails)?;
        let names = fs::read_to_string(DELEGATED).unwrap_or_else(|_| FALLBACK.to_owned());
        for name in names.lines() {
            // Not every cgroup has all of them.
            match dir.file(name, libc::O_PATH) {
                Ok(file) => set_owner(file.as_fd(), uid, NO_GROUP).map_err(fails)?,
                Err(Errno::ENOENT) => {}
                Err(errno) => return Err(fails(errno)),
            }
        }
        Ok(())
    }
}
