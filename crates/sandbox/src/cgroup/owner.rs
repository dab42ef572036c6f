//! The owner of a container's cgroup. The owner may create cgroups below it (config-linux.md, "Cgroup ownership").

use super::CgroupHandle;
use crate::host::cgroups::CgroupVersion;
use nix::errno::Errno;
use saggar_sys::error::{Error, Result};
use saggar_sys::file::set_owner;
use std::fs;
use std::os::fd::AsFd;

/// Lists the files that the kernel delegates with a cgroup (cgroups(7), Linux 4.15).
const DELEGATED_FILES: &str = "/sys/kernel/cgroup/delegate";
/// The delegated files according to the specification, for kernels that do not list them.
const DEFAULT_DELEGATED_FILES: &str = "cgroup.procs\ncgroup.subtree_control\ncgroup.threads";
/// Leaves the group unchanged (chown(2)).
const NO_GROUP: u32 = u32::MAX;

impl CgroupHandle {
    /// Gives the cgroup to `uid`, an id of this user namespace. It does so only on a pure cgroup v2 host: v1 cannot be
    /// delegated safely.
    ///
    /// # Errors
    /// If the owner cannot be changed.
    pub fn delegate_to(&self, uid: u32) -> Result<()> {
        let [dir] = &self.dirs.list[..] else { return Ok(()) };
        if dir.version != CgroupVersion::V2 {
            return Ok(());
        }
        let fails = |errno: Errno| {
            Error::system(format_args!("give {} to uid {uid}", dir.path.display()), errno.desc())
        };
        set_owner(dir.as_fd(), uid, NO_GROUP).map_err(fails)?;
        let names =
            fs::read_to_string(DELEGATED_FILES).unwrap_or_else(|_| DEFAULT_DELEGATED_FILES.to_owned());
        for name in names.lines() {
            // Some cgroups lack some of these files.
            match dir.file(name, libc::O_PATH) {
                Ok(file) => set_owner(file.as_fd(), uid, NO_GROUP).map_err(fails)?,
                Err(Errno::ENOENT) => {}
                Err(errno) => return Err(fails(errno)),
            }
        }
        Ok(())
    }
}
