//! Where the cgroups of sandboxes are: below our own in the unified hierarchy, by names of ours.

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::usage::field;
use crate::id::SandboxId;
use crate::stage::watcher::ASIDE;

/// What the names of our cgroups begin with.
const PREFIX: &str = "saggar-";
/// Below it: where the sandbox's program is.
pub(super) const MAIN: &str = "main";
/// What the names of those of other programs begin with, before a number.
pub(super) const LEAF: &str = "exec-";

/// Where a cgroup for `id` would be: below our own in the unified hierarchy; `None` without one.
pub fn place(id: &SandboxId) -> Option<PathBuf> {
    own().map(|own| own.join(format!("{PREFIX}{id}")))
}

/// The id of the sandbox that would have a cgroup of this name.
pub(super) fn id_of(name: &OsStr) -> Option<SandboxId> {
    SandboxId::parse(name.to_str()?.strip_prefix(PREFIX)?).ok()
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
///
/// Others may have cgroups of such names, for containers that they put below: what is in them is not ours to remove,
/// and without a process it may have been made just now.
pub fn sweep(age: Duration, known: impl Fn(&str) -> bool) -> usize {
    let is_dead = |path: &Path| {
        let made = path.metadata().and_then(|meta| meta.modified()).ok();
        let old = made.and_then(|at| at.elapsed().ok()).is_some_and(|passed| passed >= age);
        old && field(path, "cgroup.events", "populated") == Some(0)
    };
    let remove = |path: &Path, id: &SandboxId| {
        let Some(below) = below(path, id) else { return false };
        for path in below {
            let _ = fs::remove_dir(path);
        }
        fs::remove_dir(path).is_ok()
    };
    let entries = own().and_then(|own| fs::read_dir(own).ok()).into_iter().flatten().flatten();
    let left = entries.filter_map(|entry| {
        let id = id_of(&entry.file_name())?;
        (!known(id.as_str()) && is_dead(&entry.path())).then(|| (entry.path(), id))
    });
    left.filter(|(path, id)| remove(path, id)).count()
}

/// The cgroups below one of this name; `None` when it is no sandbox's and no supervisor's. Half of one that was never
/// made, or not removed, is told by its id, if nobody has named it.
fn below(path: &Path, id: &SandboxId) -> Option<Vec<PathBuf>> {
    let entries = fs::read_dir(path).ok()?.flatten();
    let below: Vec<_> = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).collect();
    let has_main = below.iter().any(|entry| entry.file_name() == MAIN);
    let is_ours = |name: &str| name == MAIN || name.starts_with(LEAF);
    let has_name = id.is_random() || id.as_str().ends_with(ASIDE);
    let all_ours = below.iter().all(|entry| entry.file_name().to_str().is_some_and(is_ours));
    ((has_main || has_name) && all_ours).then(|| below.iter().map(fs::DirEntry::path).collect())
}
