//! A container whose record and its copy are both gone or damaged: what can still be known of it.
//!
//! Its cgroups are looked for where `create` would put them: at the default place, which has the id as its
//! name, and where the copy of config.json says, when that name has the id in it too. A cgroup that is not named
//! after the container may be anybody's, and is left alone.

use super::Context;
use crate::cgroup::{Driver, Group, Layout, Place, Wanted};
use crate::error::Result;
use crate::spec::oci;
use crate::state::container::Directory;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Kills the processes in such cgroups and removes them; whether there were any cgroups.
///
/// # Errors
/// Those of [`Group::kill_all`] and [`Group::remove`].
pub(super) fn processes(context: &Context, directory: &Directory) -> Result<bool> {
    let layout = Layout::discover()?;
    let named = configured(directory);
    let id = directory.id().as_str();
    let beside = (format!("{id}.saggar"), named.as_deref().map(super::bridge::beside_path));
    // The container's, then those of a bridge beside it.
    let names = [(id, None), (id, named.as_deref()), (&beside.0, None), (&beside.0, beside.1.as_deref())];
    let mut found = false;
    let drivers = [Driver::Cgroupfs, Driver::Systemd];
    for ((id, path), driver) in names.into_iter().flat_map(|name| drivers.map(|driver| (name, driver))) {
        let wanted = Wanted {
            id,
            cgroups_path: path,
            driver,
            rootless: context.rootless,
            annotations: &BTreeMap::new(),
        };
        let Ok(mut place) = Place::choose(&layout, &wanted) else { continue };
        place.directories.retain_mut(|one| {
            let name = one.path.file_name().map(|name| name.to_string_lossy().into_owned());
            one.made = vec![one.path.clone()];
            one.path.is_dir() && name.is_some_and(|name| name.contains(directory.id().as_str()))
        });
        if place.directories.is_empty() {
            continue;
        }
        // Its directories are known: systemd forgets a scope that has no process left.
        place.driver = Driver::Cgroupfs;
        place.unit = None;
        let group = Group::open(&place)?;
        group.kill_all(libc::SIGKILL)?;
        group.remove()?;
        found = true;
    }
    Ok(found)
}

/// `linux.cgroupsPath` of the copy of config.json.
fn configured(directory: &Directory) -> Option<PathBuf> {
    let bytes = oci::load::document(&directory.path().join("config.json")).ok()?;
    let config: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
    config["linux"]["cgroupsPath"].as_str().map(|path| Path::new(path).to_owned())
}
