//! The front door for orchestrators: a bundle's `config.json`, whole and checked, as a [`Container`].
//!
//! The types that the document is read with are those of the `oci-spec` crate, but for the parts where they lose
//! something or refuse what the specification only warns of. Nothing is dropped silently: what is invalid is an
//! error that names the field by its JSON path, what the specification wants logged is a [`Warning`], and what is
//! unknown is ignored, as the specification says (config.md, Extensibility and Valid values).

pub mod load;

pub use load::{read, read_process};

use super::container::{Container, Process};
use crate::error::{Code, Error, Result};
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
    /// What is to be said of it.
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// What `exec` says about its program, on top of the process of the container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// The program and its arguments; never empty.
    pub args: Vec<String>,
    /// `--env`: `NAME=value`, added to the environment of the container's process.
    pub env: Vec<String>,
    /// `--cwd`
    pub cwd: Option<String>,
    /// `--tty`; without it there is no terminal, whatever the container's process has.
    pub tty: bool,
    /// `--user UID[:GID]`
    pub user: Option<String>,
    /// `--additional-gids`
    pub additional_gids: Vec<u32>,
    /// `--cap`: names such as `CAP_NET_ADMIN`.
    pub capabilities: Vec<String>,
    /// `--no-new-privs`; without it as the container's process has it.
    pub no_new_privs: Option<bool>,
    /// `--apparmor`
    pub apparmor: Option<String>,
    /// `--process-label`
    pub selinux_label: Option<String>,
}

/// Lowers the bytes of a `config.json`. `bundle` is the absolute path that relative paths of the root and of bind
/// mounts start from.
///
/// # Errors
/// `Code::Invalid` for whatever is not valid, with the JSON path of the field.
pub fn parse(bytes: Vec<u8>, bundle: &Path) -> Result<Config> {
    let _ = (bytes, bundle);
    Err(Error::new(Code::Unsupported, "config.json is not read yet"))
}

/// Lowers the bytes of a `process.json` of `exec` (specs-go's Process): the whole process, of which nothing but the
/// personality comes from the container.
///
/// # Errors
/// As [`parse`].
pub fn process(bytes: &[u8], container: &Container) -> Result<(Process, Vec<Warning>)> {
    let _ = (bytes, container);
    Err(Error::new(Code::Unsupported, "process.json is not read yet"))
}

/// The process that `exec` runs by its command line alone: the container's own with `overrides`.
///
/// # Errors
/// `Code::Usage` for a value that is not valid, `Code::Invalid` for a container without a process.
pub fn with_overrides(container: &Container, overrides: &Overrides) -> Result<Process> {
    let _ = (container, overrides);
    Err(Error::new(Code::Unsupported, "the options of exec are not read yet"))
}

/// The structure that `features` prints (features.md), whatever the host has. `version` and `commit` are saggar's.
pub fn features(version: &str, commit: Option<&str>) -> serde_json::Value {
    let _ = (version, commit);
    serde_json::Value::Null
}

/// The `config.json` that `spec` prints. With the ids of an ordinary user, one that this user can run.
pub fn example(rootless: Option<(u32, u32)>) -> String {
    let _ = rootless;
    String::new()
}

/// Lowers `linux.resources` alone, as `update --resources` gives it.
///
/// # Errors
/// As [`parse`].
pub fn resources(bytes: &[u8]) -> Result<oci_spec::runtime::LinuxResources> {
    let _ = bytes;
    Err(Error::new(Code::Unsupported, "resources are not read yet"))
}
