//! The directories of one sandbox, made with the controllers that its limits need.

use super::place::MAIN;
use super::{Cgroup, aside};
use crate::cgroup::make::Refused;
use crate::host::cgroups::is_root;
use std::fs;
use std::path::Path;

/// Makes the cgroup at `path`. Of `controllers` those that could not be switched on are told in `refused`.
///
/// # Errors
/// Why there can be none.
pub(super) fn make(path: &Path, controllers: &[&str], refused: &mut Vec<Refused>) -> Result<Cgroup, String> {
    let says = |what: &Path, e: std::io::Error| format!("make {}: {e}", what.display());
    fs::create_dir(path).map_err(|e| says(path, e))?;
    enable_controllers(path, controllers, refused);
    let main = path.join(MAIN);
    let made = fs::create_dir(&main).and_then(|()| fs::File::open(&main));
    match made {
        Ok(directory) => match fs::read_to_string(main.join("cgroup.type")) {
            // Somebody switched cpu or pids on in our own cgroup, with processes in it.
            Ok(kind) if kind.trim() != "domain" => {
                let _ = fs::remove_dir(&main).and_then(|()| fs::remove_dir(path));
                Err(format!("a cgroup below our own would be of the type \"{}\"", kind.trim()))
            }
            _ => Ok(Cgroup { path: path.to_owned(), main: directory.into() }),
        },
        Err(e) => Err(says(&main, e)),
    }
}

/// Has our own cgroup give its children what limits need, where that is the root, or where we are alone in it. In
/// any other the kernel refuses memory, and takes cpu and pids at a price, since the children then are for threads
/// alone and no process can be born in them (cgroups(7)). The limits say which controller is missing.
fn enable_controllers(path: &Path, controllers: &[&str], refused: &mut Vec<Refused>) {
    let Some(own) = path.parent() else { return };
    if is_root(own) {
        aside::switch_on(own, controllers, refused);
    } else {
        aside::step(own, path, controllers, refused);
    }
}
