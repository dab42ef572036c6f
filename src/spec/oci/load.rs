//! The only I/O of this module: reads the documents, of a bounded size, without waiting for anybody.

use super::{Config, Warning};
use crate::error::{Code, Error, Result};
use crate::spec::container::{Container, Process};
use crate::sys::read::whole_file;
use std::path::Path;

/// The largest document that is read. Orchestrators write a few dozen KiB; what the kernel takes as arguments and
/// environment is at most 2 MiB as it is set up everywhere; and a document of empty objects takes 50 times its size.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Reads `config.json` in `bundle`, an absolute path.
///
/// # Errors
/// `Code::Invalid` for a file that is missing, no regular file, too large or not valid; the last with the JSON path
/// of the field.
pub fn read(bundle: &Path) -> Result<Config> {
    let bytes = document(&bundle.join("config.json")).map_err(|error| {
        error.hint("a bundle is a directory with a config.json, a file; `saggar spec` writes one")
    })?;
    super::parse(bytes, bundle)
}

/// Reads the file that `exec --process` names, for `container`.
///
/// # Errors
/// As [`read`].
pub fn read_process(path: &Path, container: &Container) -> Result<(Process, Vec<Warning>)> {
    super::process(&document(path)?, container)
}

/// The bytes of a document.
///
/// # Errors
/// `Code::Invalid` for a file that is missing, no regular file or larger than 4 MiB.
pub fn document(path: &Path) -> Result<Vec<u8>> {
    whole_file(path, MAX_BYTES)
        .map_err(|unread| Error::new(Code::Invalid, format!("read {}: {unread}", path.display())))
}
