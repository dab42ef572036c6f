//! The OCI interface: a bundle's `config.json`, completely validated, as a [`ContainerSpec`].
//!
//! The document is parsed with the types of the `oci-spec` crate, except where they lose information or
//! refuse what the specification only warns about. Nothing is dropped silently: an invalid value is an
//! error that names the field by its JSON path, a condition that the specification requires to be logged is
//! a [`ConfigWarning`], and unknown fields are ignored, as the specification requires (config.md,
//! Extensibility and Valid values).

mod bitmask;
mod devices;
mod document;
mod example;
mod features;
mod field_path;
mod hooks;
mod json;
pub mod load;
mod lower;
mod mount;
mod namespace;
mod process;
mod resources;
mod seccomp;
mod sysctl;
mod text;
mod version;

#[cfg(test)]
mod tests;

pub use example::example_config;
pub use features::features;
pub use load::{read_config, read_process};
pub use process::{ExecOptions, parse_process, process_with_options, rlimit_name};
pub use version::{NEWEST_OCI_VERSION, OLDEST_OCI_VERSION};

use super::container::ContainerSpec;
use oci_spec::runtime::LinuxResources;
use saggar_sys::error::Result;
use saggar_sys::log::USUAL;
use std::fmt;
use std::path::Path;

/// A parsed `config.json`.
#[derive(Debug, Clone)]
pub struct BundleConfig {
    /// The container that it describes.
    pub container: ContainerSpec,
    /// Warnings to log.
    pub warnings: Vec<ConfigWarning>,
    /// The original bytes, for the copy that `create` keeps: later edits of the bundle have no effect.
    pub bytes: Vec<u8>,
}

/// A part of the configuration that cannot be applied but is not an error (runtime.md, Warnings).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigWarning {
    /// The JSON path of the field: `process.capabilities.bounding[3]`.
    pub field: String,
    /// The message, which continues the name of the field.
    pub message: String,
    /// Whether engines usually cause it.
    pub is_usual: bool,
}

impl ConfigWarning {
    /// Logs the warning.
    pub fn log(&self) {
        match self.is_usual {
            true => log::warn!(target: USUAL, "{self}"),
            false => log::warn!("{self}"),
        }
    }
}

impl fmt::Display for ConfigWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.field, self.message)
    }
}

/// Adds a warning if `is_due`.
fn push_warning(warnings: &mut Vec<ConfigWarning>, is_due: bool, warning: impl FnOnce() -> ConfigWarning) {
    if is_due {
        warnings.push(warning())
    }
}

/// Lowers the bytes of a `config.json`. `bundle` is the absolute path that relative paths of the root and
/// of bind mounts are resolved against.
///
/// # Errors
/// `Code::Invalid` for an invalid document, with the JSON path of the field.
pub fn parse_config(bytes: Vec<u8>, bundle: &Path) -> Result<BundleConfig> {
    let mut warnings = Vec::new();
    let lowered = json::read_object(&bytes)
        .and_then(|document| lower::lower_container(document, bundle, &mut warnings));
    let mut container = lowered.map_err(|error| error.context("config.json"))?;
    if let Some(resources) = &mut container.resources {
        remove_absent_pids_limit(resources, &bytes, "/linux/resources/pids/limit");
    }
    Ok(BundleConfig { container, warnings, bytes })
}

/// Parses `linux.resources` alone, for `update --resources`.
///
/// # Errors
/// As for [`parse_config`].
pub fn parse_resources(bytes: &[u8]) -> Result<LinuxResources> {
    let mut resources = json::read_object(bytes).map_err(|error| error.context("resources"))?;
    remove_absent_pids_limit(&mut resources, bytes, "/pids/limit");
    Ok(resources)
}

/// Removes `pids` without `limit` (config-linux.md, PIDs: it is optional, and 0 is a limit). The type of the crate has 0
/// for both, so that the document is asked, at the place `pointer`.
fn remove_absent_pids_limit(resources: &mut LinuxResources, document: &[u8], pointer: &str) {
    if resources.pids().as_ref().is_some_and(|pids| pids.limit() == 0) {
        let document: Option<serde_json::Value> = serde_json::from_slice(document).ok();
        if document.is_some_and(|document| document.pointer(pointer).is_none()) {
            resources.set_pids(None);
        }
    }
}
