//! Room for limits in a cgroup that was given to us, where we are alone: a cgroup with processes gives its
//! children no memory controller (cgroups(7), "no internal processes"), so we step aside into a leaf.
//!
//! ```text
//! <own>/saggar-<id>              the sandbox
//! <own>/saggar-<id>.supervisor   the supervisor and the watcher, while there are limits
//! ```
//! Whoever removes the sandbox's cgroup undoes it ([`crate::stage::watcher`]): the leaf has the same name with
//! [`ASIDE`].

use crate::cgroup::make::Refused;
use crate::cgroup::tree::errno;
use crate::host::cgroups::{ours, words};
use crate::stage::watcher::ASIDE;
use std::fs;
use std::path::{Path, PathBuf};

/// Steps aside in favour of the sandbox at `place`, and switches `controllers` on for it. When that does not
/// work, all is as it was.
pub(super) fn step(own: &Path, place: &Path, controllers: &[&str], refused: &mut Vec<Refused>) {
    let Some(pids) = ours(own) else { return };
    if !words(own, "cgroup.controllers").iter().any(|one| controllers.contains(&one.as_str())) {
        return;
    }
    let mut leaf = place.as_os_str().to_owned();
    leaf.push(ASIDE);
    let leaf = PathBuf::from(leaf);
    if fs::create_dir(&leaf).is_err() {
        return;
    }
    let moved = pids.iter().all(|pid| fs::write(leaf.join("cgroup.procs"), pid).is_ok());
    if moved {
        switch_on(own, controllers, refused);
    }
    if !moved || words(own, "cgroup.subtree_control").is_empty() {
        for pid in &pids {
            let _ = fs::write(own.join("cgroup.procs"), pid);
        }
        let _ = fs::remove_dir(&leaf);
    }
}

/// Has `own` give its children those of `controllers` that it has; those that it cannot give go to `refused`.
pub(super) fn switch_on(own: &Path, controllers: &[&str], refused: &mut Vec<Refused>) {
    let (available, enabled) = (words(own, "cgroup.controllers"), words(own, "cgroup.subtree_control"));
    let is_in = |list: &[String], name: &str| list.iter().any(|word| word == name);
    let missing = controllers.iter().filter(|name| is_in(&available, name) && !is_in(&enabled, name));
    let missing: Vec<String> = missing.map(|name| format!("+{name}")).collect();
    let file = own.join("cgroup.subtree_control");
    // In one go, which the kernel takes whole or not at all; one that cannot be had must not cost the others.
    if missing.is_empty() || fs::write(&file, missing.join(" ")).is_ok() {
        return;
    }
    for value in missing {
        if let Err(e) = fs::write(&file, &value) {
            refused.push((value[1..].to_owned(), file.clone(), value, errno(&e)));
        }
    }
}
