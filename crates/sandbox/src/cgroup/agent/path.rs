//! The names of sandbox cgroups, and the removal of those that were left behind.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::usage::read_field;
use crate::host::cgroup_parent::{NAME_PREFIX, own_cgroup, unified_mount};
use crate::spec::CgroupName;
use crate::stage::watcher::SUPERVISOR_LEAF_SUFFIX;
use saggar_sys::id::SandboxId;

/// The cgroup of the sandbox's main program, below the sandbox's.
pub(super) const MAIN: &str = "main";
/// Prefix of the names of cgroups for other programs; a number follows.
pub(super) const EXEC_PREFIX: &str = "exec-";

/// The id of the sandbox to which a cgroup of this name would belong.
pub(super) fn parse_name(name: &OsStr) -> Option<SandboxId> {
    SandboxId::parse(name.to_str()?.strip_prefix(NAME_PREFIX)?).ok()
}

/// Removes the cgroups of dead sandboxes below our own, below the one above and in saggar.slice: those without a process,
/// older than `age`, and not `known` to run. Returns their number. Nothing is killed: a cgroup that gets a process meanwhile
/// stays.
///
/// Other programs may have cgroups with such names, for containers that they run below: cgroups inside them are not
/// ours to remove, and one without a process may have just been created.
pub(super) fn remove_stale(age: Duration, known: impl Fn(&str) -> bool) -> usize {
    let is_dead =
        |path: &Path| is_older(path, age) && read_field(path, "cgroup.events", "populated") == Some(0);
    let remove = |path: &Path, id: &SandboxId| {
        let Some(below) = sandbox_subtree(path, id) else { return false };
        for path in below {
            let _ = fs::remove_dir(path);
        }
        fs::remove_dir(path).is_ok()
    };
    let Some(mount) = unified_mount() else { return 0 };
    let own = own_cgroup(mount);
    let above = own.as_deref().and_then(Path::parent).filter(|above| above.starts_with(mount));
    let parents = [own.clone(), above.map(Path::to_owned), Some(Path::new(mount).join(CgroupName::DEFAULT))];
    let entries =
        parents.into_iter().flatten().filter_map(|parent| fs::read_dir(parent).ok()).flatten().flatten();
    let left = entries.filter_map(|entry| {
        let id = parse_name(&entry.file_name())?;
        (!known(id.as_str()) && is_dead(&entry.path())).then(|| (entry.path(), id))
    });
    left.filter(|(path, id)| remove(path, id)).count()
}

/// Whether a directory was made, or changed last, at least `age` ago.
pub(super) fn is_older(path: &Path, age: Duration) -> bool {
    let made = path.metadata().and_then(|meta| meta.modified()).ok();
    made.and_then(|at| at.elapsed().ok()).is_some_and(|passed| passed >= age)
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
