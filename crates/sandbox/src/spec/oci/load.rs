//! The only I/O of this module: reads documents of a bounded size, without blocking.

use super::{BundleConfig, ConfigWarning};
use crate::spec::container::{ContainerSpec, ProcessSpec};
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::read::whole_file;
use std::path::Path;

/// The largest document, in bytes. Orchestrators write a few dozen KiB; the kernel accepts at most 2 MiB of
/// arguments and environment in usual configurations; and a document of empty objects takes 50 times its
/// size in memory.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Reads and parses `config.json` in `bundle`, an absolute path.
///
/// # Errors
/// `Code::Invalid` for a file that is missing, not a regular file, too large or invalid; the last with the
/// JSON path of the field.
pub fn read_config(bundle: &Path) -> Result<BundleConfig> {
    let bytes = read_document(&bundle.join("config.json")).map_err(|error| {
        error.hint("a bundle is a directory with a config.json, a file; `saggar spec` writes one")
    })?;
    super::parse_config(bytes, bundle)
}

/// Reads and parses the file of `exec --process`, for `container`.
///
/// # Errors
/// As for [`read_config`].
pub fn read_process(path: &Path, container: &ContainerSpec) -> Result<(ProcessSpec, Vec<ConfigWarning>)> {
    super::parse_process(&read_document(path)?, container).map_err(|error| error.context(path.display()))
}

/// Reads the bytes of a document.
///
/// # Errors
/// `Code::Invalid` for a file that is missing, not a regular file or larger than 4 MiB.
pub fn read_document(path: &Path) -> Result<Vec<u8>> {
    whole_file(path, MAX_BYTES)
        .map_err(|unread| Error::new(Code::Invalid, format!("read {}: {unread}", path.display())))
}
