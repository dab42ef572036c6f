//! Creates the cgroup directories of one sandbox, with the controllers that its limits need.

use super::path::MAIN;
use super::place::UnifiedPlace;
use super::supervisor_leaf;
use crate::cgroup::directories::{RefusedController, enable_controllers};
use crate::host::cgroup_parent::CgroupParent;
use crate::host::cgroups::{has_processes, is_hierarchy_root};
use saggar_sys::read::kernel_text;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Creates the cgroup, and returns the directory for its processes. Controllers that could not be enabled are added to `refused`.
///
/// # Errors
/// The reason why it cannot be created.
pub(super) fn create_directory(
    place: &UnifiedPlace,
    controllers: &[&str],
    refused: &mut Vec<RefusedController>,
) -> Result<OwnedFd, String> {
    let message = |what: &Path, e: std::io::Error| format!("make {}: {e}", what.display());
    let path = &place.path;
    if let CgroupParent::Slice(slice) = &place.parent {
        // The kernel would accept cpu and pids alone, and with them only threads in its children.
        if has_processes(slice) {
            return Err(format!(
                "other processes are in {}, which then cannot contain sandboxes",
                slice.display()
            ));
        }
        match fs::create_dir(slice) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(message(slice, e)),
            _ => {}
        }
    }
    fs::create_dir(path).map_err(|e| message(path, e))?;
    prepare_parent(place, controllers, refused);
    let main = path.join(MAIN);
    let made = fs::create_dir(&main).and_then(|()| fs::File::open(&main));
    match made {
        Ok(directory) => match kernel_text(&main.join("cgroup.type")) {
            // Another process enabled cpu or pids in our own cgroup while it has processes.
            Ok(kind) if kind.trim() != "domain" => {
                let _ = fs::remove_dir(&main).and_then(|()| fs::remove_dir(path));
                Err(format!("a cgroup below our own would be of the type \"{}\"", kind.trim()))
            }
            _ => Ok(directory.into()),
        },
        Err(e) => Err(message(&main, e)),
    }
}

/// Enables the controllers that limits need for the children of the parent: of our own cgroup, if that is the root or this
/// process is alone in it. In any other cgroup with processes the kernel rejects memory. It accepts cpu and pids, but
/// turns the children into threaded cgroups, in which no process can be created (cgroups(7)). The error of the limit names
/// the missing controller.
fn prepare_parent(place: &UnifiedPlace, controllers: &[&str], refused: &mut Vec<RefusedController>) {
    let mut enable = |cgroup| enable_controllers(cgroup, |name| controllers.contains(&name), refused);
    match &place.parent {
        CgroupParent::Own(own) if !is_hierarchy_root(own) => {
            supervisor_leaf::move_to_leaf(own, &place.path, controllers, refused);
        }
        CgroupParent::Own(parent) | CgroupParent::Above(parent) => enable(parent),
        CgroupParent::Slice(slice) => {
            enable(place.parent.source());
            enable(slice);
        }
        // Entered before; then it is our own.
        CgroupParent::Scope { .. } => {}
    }
}
