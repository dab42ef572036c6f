//! The front door for orchestrators: a bundle's `config.json`, whole and checked, as a [`Container`].
//!
//! The types that the document is read with are those of the `oci-spec` crate, but for the parts where they lose
//! something or refuse what the specification only warns of. Nothing is dropped silently: what is invalid is an
//! error that names the field by its JSON path, what the specification wants logged is a [`Warning`], and what is
//! unknown is ignored, as the specification says (config.md, Extensibility and Valid values).

mod devices;
mod document;
mod example;
mod features;
mod field;
mod hooks;
mod json;
mod list;
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

pub use example::example;
pub use features::features;
pub use load::{read, read_process};
pub use process::{Overrides, limit_name, process, with_overrides};
pub use version::{NEWEST, OLDEST};

use super::container::Container;
use crate::error::Result;
use std::fmt;
use std::path::Path;

/// A `config.json` that was read.
#[derive(Debug, Clone)]
pub struct Config {
    /// What it says.
    pub container: Container,
    /// What is to be logged about it.
    pub warnings: Vec<Warning>,
    /// The document as it was, for the copy that `create` keeps: later edits of the bundle have no effect.
    pub bytes: Vec<u8>,
}

/// Something in the configuration that does not hold and is no error (runtime.md, Warnings).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The JSON path of the field: `process.capabilities.bounding[3]`.
    pub field: String,
    /// What is to be said of it; it continues the name of the field.
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.field, self.message)
    }
}

/// Adds a warning where one is due.
fn warn(warnings: &mut Vec<Warning>, is_due: bool, warning: impl FnOnce() -> Warning) {
    if is_due {
        warnings.push(warning())
    }
}

/// Lowers the bytes of a `config.json`. `bundle` is the absolute path that relative paths of the root and of bind
/// mounts start from.
///
/// # Errors
/// `Code::Invalid` for whatever is not valid, with the JSON path of the field.
pub fn parse(bytes: Vec<u8>, bundle: &Path) -> Result<Config> {
    let mut warnings = Vec::new();
    let lowered = json::read(&bytes).and_then(|document| lower::lower(document, bundle, &mut warnings));
    let container = lowered.map_err(|error| error.context("config.json"))?;
    Ok(Config { container, warnings, bytes })
}

/// Lowers `linux.resources` alone, as `update --resources` gives it.
///
/// # Errors
/// As [`parse`].
pub fn resources(bytes: &[u8]) -> Result<oci_spec::runtime::LinuxResources> {
    json::read(bytes).map_err(|error| error.context("resources"))
}
