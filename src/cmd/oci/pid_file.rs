//! `--pid-file`: what a caller waits for, so it appears whole and last.

use crate::error::Result;
use crate::state::container::write_atomically;
use std::path::Path;

/// Writes `pid` to `path`, when there is one.
///
/// # Errors
/// [`crate::error::Code::System`].
pub(super) fn write(path: Option<&Path>, pid: i32) -> Result<()> {
    path.map_or(Ok(()), |path| write_atomically(path, pid.to_string().as_bytes(), 0o644))
}
