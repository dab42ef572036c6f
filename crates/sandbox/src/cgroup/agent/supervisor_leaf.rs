//! Makes limits possible in a delegated cgroup in which this process is alone. A cgroup with processes cannot enable
//! the memory controller for its children (cgroups(7), "no internal processes"), so the supervisor moves to a leaf.
//!
//! ```text
//! <own>/saggar-<id>              the sandbox
//! <own>/saggar-<id>.supervisor   the supervisor and the watcher, while there are limits
//! ```
//! The process that removes the sandbox's cgroup undoes this ([`crate::stage::watcher`]): the name of the leaf is the
//! sandbox's with [`SUPERVISOR_LEAF_SUFFIX`].

use crate::cgroup::directories::{RefusedController, enable_controllers};
use crate::host::cgroups::{own_processes, read_words};
use crate::stage::watcher::SUPERVISOR_LEAF_SUFFIX;
use std::fs;
use std::path::{Path, PathBuf};

/// Moves the supervisor to a leaf next to the sandbox at `path`, and enables `controllers` for the sandbox. On failure
/// everything is restored.
pub(super) fn move_to_leaf(
    own: &Path,
    path: &Path,
    controllers: &[&str],
    refused: &mut Vec<RefusedController>,
) {
    let Some(pids) = own_processes(own) else { return };
    if !read_words(own, "cgroup.controllers").iter().any(|one| controllers.contains(&one.as_str())) {
        return;
    }
    let mut leaf = path.as_os_str().to_owned();
    leaf.push(SUPERVISOR_LEAF_SUFFIX);
    let leaf = PathBuf::from(leaf);
    if fs::create_dir(&leaf).is_err() {
        return;
    }
    let moved = pids.iter().all(|pid| fs::write(leaf.join("cgroup.procs"), pid).is_ok());
    if moved {
        enable_controllers(own, |name| controllers.contains(&name), refused);
    }
    if !moved || read_words(own, "cgroup.subtree_control").is_empty() {
        for pid in &pids {
            let _ = fs::write(own.join("cgroup.procs"), pid);
        }
        let _ = fs::remove_dir(&leaf);
    }
}
