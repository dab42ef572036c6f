//! The paths of sandbox cgroups: below our own cgroup in the unified hierarchy, under names with a fixed prefix.

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::usage::read_field;
use crate::id::SandboxId;
use crate::stage::watcher::SUPERVISOR_LEAF_SUFFIX;

/// Prefix of the names of our cgroups.
const NAME_PREFIX: &str = "saggar-";
/// The cgroup of the sandbox's main program, below the sandbox's.
pub(super) const MAIN: &str = "main";
/// Prefix of the names of cgroups for other programs; a number follows.
pub(super) const EXEC_PREFIX: &str = "exec-";

/// The path of the cgroup for `id`, below our own in the unified hierarchy; `None` without that hierarchy.
pub fn cgroup_path(id: &SandboxId) -> Option<PathBuf> {
    own_cgroup().map(|own| own.join(format!("{NAME_PREFIX}{id}")))
}

/// The id of the sandbox to which a cgroup of this name would belong.
pub(super) fn parse_name(name: &OsStr) -> Option<SandboxId> {
    SandboxId::parse(name.to_str()?.strip_prefix(NAME_PREFIX)?).ok()
}

/// Whether a cgroup can be created at `path`. If not, no cleanup is needed for it.
pub fn can_create(path: &Path) -> bool {
    path.parent().is_some_and(|own| check_create_in(own).is_ok())
}

pub(super) fn check_create_in(own: &Path) -> nix::Result<()> {
    nix::unistd::access(own, nix::unistd::AccessFlags::W_OK)
}

/// The mount point of the unified hierarchy.
pub(super) fn unified_mount() -> Option<&'static str> {
    ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .into_iter()
        .find(|path| statfs(*path).is_ok_and(|fs| fs.filesystem_type() == CGROUP2_SUPER_MAGIC))
}

/// Our own cgroup in the unified hierarchy.
fn own_cgroup() -> Option<PathBuf> {
    let mount = unified_mount()?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(Path::new(mount).join(own))
}

/// Removes the cgroups of dead sandboxes below our own: those without a process, older than `age`, and not `known` to
/// run. Returns their number. Nothing is killed: a cgroup that gets a process meanwhile stays.
///
/// Other programs may have cgroups with such names, for containers that they run below: cgroups inside them are not
/// ours to remove, and one without a process may have just been created.
pub fn remove_stale(age: Duration, known: impl Fn(&str) -> bool) -> usize {
    let is_dead = |path: &Path| {
        let made = path.metadata().and_then(|meta| meta.modified()).ok();
        let old = made.and_then(|at| at.elapsed().ok()).is_some_and(|passed| passed >= age);
        old && read_field(path, "cgroup.events", "populated") == Some(0)
    };
    let remove = |path: &Path, id: &SandboxId| {
        let Some(below) = sandbox_subtree(path, id) else { return false };
        for path in below {
            let _ = fs::remove_dir(path);
        }
        fs::remove_dir(path).is_ok()
    };
    let entries = own_cgroup().and_then(|own| fs::read_dir(own).ok()).into_iter().flatten().flatten();
    let left = entries.filter_map(|entry| {
        let id = parse_name(&entry.file_name())?;
        (!known(id.as_str()) && is_dead(&entry.path())).then(|| (entry.path(), id))
    });
    left.filter(|(path, id)| remove(path, id)).count()
}

/// The cgroups below a cgroup of this name; `None` if it belongs to neither a sandbox nor a supervisor. A cgroup that
/// was only partly created or removed is recognized by its id, if that is a generated one.
fn sandbox_subtree(path: &Path, id: &SandboxId) -> Option<Vec<PathBuf>> {
    let entries = fs::read_dir(path).ok()?.flatten();
    let below: Vec<_> = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).collect();
    let has_main = below.iter().any(|entry| entry.file_name() == MAIN);
    let is_ours = |name: &str| name == MAIN || name.starts_with(EXEC_PREFIX);
    let has_name = id.is_random() || id.as_str().ends_with(SUPERVISOR_LEAF_SUFFIX);
    let all_ours = below.iter().all(|entry| entry.file_name().to_str().is_some_and(is_ours));
    ((has_main || has_name) && all_ours).then(|| below.iter().map(fs::DirEntry::path).collect())
}
