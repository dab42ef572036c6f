//! Creates the cgroup directories of one sandbox, with the controllers that its limits need.

use super::path::MAIN;
use super::{SandboxCgroup, supervisor_leaf};
use crate::cgroup::directories::RefusedController;
use crate::host::cgroups::is_hierarchy_root;
use std::fs;
use std::path::Path;

/// Creates the cgroup at `path`. Controllers that could not be enabled are added to `refused`.
///
/// # Errors
/// The reason why it cannot be created.
pub(super) fn create_directory(
    path: &Path,
    controllers: &[&str],
    refused: &mut Vec<RefusedController>,
) -> Result<SandboxCgroup, String> {
    let message = |what: &Path, e: std::io::Error| format!("make {}: {e}", what.display());
    fs::create_dir(path).map_err(|e| message(path, e))?;
    prepare_parent(path, controllers, refused);
    let main = path.join(MAIN);
    let made = fs::create_dir(&main).and_then(|()| fs::File::open(&main));
    match made {
        Ok(directory) => match fs::read_to_string(main.join("cgroup.type")) {
            // Another process enabled cpu or pids in our own cgroup while it has processes.
            Ok(kind) if kind.trim() != "domain" => {
                let _ = fs::remove_dir(&main).and_then(|()| fs::remove_dir(path));
                Err(format!("a cgroup below our own would be of the type \"{}\"", kind.trim()))
            }
            _ => Ok(SandboxCgroup { path: path.to_owned(), main: directory.into() }),
        },
        Err(e) => Err(message(&main, e)),
    }
}

/// Enables the controllers that limits need for the children of our own cgroup, if that is the root or this process is
/// alone in it. In any other cgroup the kernel rejects memory. It accepts cpu and pids, but turns the children into
/// threaded cgroups, in which no process can be created (cgroups(7)). The error of the limit names the missing
/// controller.
fn prepare_parent(path: &Path, controllers: &[&str], refused: &mut Vec<RefusedController>) {
    let Some(own) = path.parent() else { return };
    if is_hierarchy_root(own) {
        supervisor_leaf::enable_controllers(own, controllers, refused);
    } else {
        supervisor_leaf::move_to_leaf(own, path, controllers, refused);
    }
}
