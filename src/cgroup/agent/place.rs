//! Where the cgroups of sandboxes are: below our own in the unified hierarchy, by names of ours.

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::id::SandboxId;

/// What the names of our cgroups begin with.
pub(super) const PREFIX: &str = "saggar-";

/// Where a cgroup for `id` would be: below our own in the unified hierarchy; `None` without one.
pub fn place(id: &SandboxId) -> Option<PathBuf> {
    own().map(|own| own.join(format!("{PREFIX}{id}")))
}

/// Whether a cgroup can be made at `place` at all: where it cannot, nothing needs to be watched over.
pub fn may_make(place: &Path) -> bool {
    place.parent().is_some_and(|own| may_make_in(own).is_ok())
}

pub(super) fn may_make_in(own: &Path) -> nix::Result<()> {
    nix::unistd::access(own, nix::unistd::AccessFlags::W_OK)
}

/// Where the unified hierarchy is mounted.
pub(super) fn mount() -> Option<&'static str> {
    ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .into_iter()
        .find(|path| statfs(*path).is_ok_and(|fs| fs.filesystem_type() == CGROUP2_SUPER_MAGIC))
}

/// Our own cgroup in the unified hierarchy.
fn own() -> Option<PathBuf> {
    let mount = mount()?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(Path::new(mount).join(own))
}

/// Removes the cgroups below our own that sandboxes left which are dead: without a process, older than `age`, and
/// not `known` to live; how many there were. Nothing is killed: one that gets a process meanwhile stays.
pub fn sweep(age: Duration, known: impl Fn(&str) -> bool) -> usize {
    let is_dead = |path: &Path| {
        let events = fs::read_to_string(path.join("cgroup.events")).unwrap_or_default();
        let made = path.metadata().and_then(|meta| meta.modified()).ok();
        let old = made.and_then(|at| at.elapsed().ok()).is_some_and(|passed| passed >= age);
        old && events.lines().any(|line| line == "populated 0")
    };
    let remove = |path: &Path| {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            let _ = fs::remove_dir(entry.path());
        }
        fs::remove_dir(path).is_ok()
    };
    let entries = own().and_then(|own| fs::read_dir(own).ok()).into_iter().flatten().flatten();
    let left = entries.filter(|entry| {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        id.is_some_and(|id| !known(id)) && is_dead(&entry.path())
    });
    left.filter(|entry| remove(&entry.path())).count()
}
