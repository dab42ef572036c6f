//! Cleans up a container whose record and its copy are both missing or damaged.
//!
//! Its cgroups are searched for where `create` would create them: at the default location, whose name is the id, and
//! at the location in the copy of config.json, if its name contains the id too. A cgroup that is not named after the
//! container may belong to others and is not touched.

use super::OciContext;
use crate::cgroup::{CgroupDriver, CgroupHandle, CgroupLayout, CgroupLocation, CgroupRequest};
use crate::error::Result;
use crate::spec::oci;
use crate::state::container::ContainerDirectory;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Kills the processes in such cgroups and removes them; returns whether there were any.
///
/// # Errors
/// Those of [`CgroupHandle::kill_all`] and [`CgroupHandle::remove`].
pub(super) fn kill_and_remove(context: &OciContext, directory: &ContainerDirectory) -> Result<bool> {
    let layout = CgroupLayout::discover()?;
    let named = configured_cgroups_path(directory);
    let id = directory.id().as_str();
    let sidecar = (format!("{id}.saggar"), named.as_deref().map(super::bridge::sidecar_path));
    // The container's cgroups, then those of its bridge.
    let names = [(id, None), (id, named.as_deref()), (&sidecar.0, None), (&sidecar.0, sidecar.1.as_deref())];
    let mut any_removed = false;
    let drivers = [CgroupDriver::Cgroupfs, CgroupDriver::Systemd];
    for ((id, path), driver) in names.into_iter().flat_map(|name| drivers.map(|driver| (name, driver))) {
        let request = CgroupRequest {
            id,
            cgroups_path: path,
            driver,
            rootless: context.rootless,
            annotations: &BTreeMap::new(),
        };
        let Ok(mut location) = CgroupLocation::choose(&layout, &request) else { continue };
        location.directories.retain_mut(|one| {
            let name = one.path.file_name().map(|name| name.to_string_lossy().into_owned());
            one.created = vec![one.path.clone()];
            one.path.is_dir() && name.is_some_and(|name| name.contains(directory.id().as_str()))
        });
        if location.directories.is_empty() {
            continue;
        }
        // The directories are known, and systemd forgets a scope without processes.
        location.driver = CgroupDriver::Cgroupfs;
        location.unit = None;
        let group = CgroupHandle::open(&location)?;
        group.kill_all(libc::SIGKILL)?;
        group.remove()?;
        any_removed = true;
    }
    Ok(any_removed)
}

/// Reads `linux.cgroupsPath` from the copy of config.json.
fn configured_cgroups_path(directory: &ContainerDirectory) -> Option<PathBuf> {
    let bytes = oci::load::read_document(&directory.path().join("config.json")).ok()?;
    let config: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
    config["linux"]["cgroupsPath"].as_str().map(|path| Path::new(path).to_owned())
}
