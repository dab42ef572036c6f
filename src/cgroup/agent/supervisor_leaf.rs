//! Makes limits possible in a delegated cgroup in which this process is alone. A cgroup with processes cannot enable
//! the memory controller for its children (cgroups(7), "no internal processes"), so the supervisor moves to a leaf.
//!
//! ```text
//! <own>/saggar-<id>              the sandbox
//! <own>/saggar-<id>.supervisor   the supervisor and the watcher, while there are limits
//! ```
//! The process that removes the sandbox's cgroup undoes this ([`crate::stage::watcher`]): the name of the leaf is the
//! sandbox's with [`SUPERVISOR_LEAF_SUFFIX`].

use crate::cgroup::control_files::errno;
use crate::cgroup::directories::RefusedController;
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
        enable_controllers(own, controllers, refused);
    }
    if !moved || read_words(own, "cgroup.subtree_control").is_empty() {
        for pid in &pids {
            let _ = fs::write(own.join("cgroup.procs"), pid);
        }
        let _ = fs::remove_dir(&leaf);
    }
}

/// Enables those of `controllers` that `own` has for its children; those that cannot be enabled are added to `refused`.
pub(super) fn enable_controllers(own: &Path, controllers: &[&str], refused: &mut Vec<RefusedController>) {
    let (available, enabled) =
        (read_words(own, "cgroup.controllers"), read_words(own, "cgroup.subtree_control"));
    let is_in = |list: &[String], name: &str| list.iter().any(|word| word == name);
    let missing = controllers.iter().filter(|name| is_in(&available, name) && !is_in(&enabled, name));
    let missing: Vec<String> = missing.map(|name| format!("+{name}")).collect();
    let file = own.join("cgroup.subtree_control");
    // The kernel accepts one write as a whole or not at all; if it fails, each controller is written alone, so that a
    // missing one does not prevent the others.
    if missing.is_empty() || fs::write(&file, missing.join(" ")).is_ok() {
        return;
    }
    for value in missing {
        if let Err(e) = fs::write(&file, &value) {
            refused.push((value[1..].to_owned(), file.clone(), value, errno(&e)));
        }
    }
}
