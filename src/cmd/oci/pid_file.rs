//! `--pid-file`: written atomically and last, because callers wait for it.

use crate::error::Result;
use crate::state::container::write_atomically;
use std::path::Path;

/// Writes `pid` to `path`, if there is one.
///
/// # Errors
/// [`crate::error::Code::System`].
pub(super) fn write(path: Option<&Path>, pid: i32) -> Result<()> {
    path.map_or(Ok(()), |path| write_atomically(path, pid.to_string().as_bytes(), 0o644))
}
