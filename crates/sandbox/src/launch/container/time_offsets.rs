//! Sets the clock offsets of a new time namespace (time_namespaces(7)).

use crate::spec::container::TimeOffsets;
use saggar_sys::error::{Code, Error, Result};
use std::fs;

/// Writes the offsets before any process enters the namespace that `pid` has created.
pub(super) fn write_offsets(pid: i32, time: &TimeOffsets) -> Result<()> {
    let text = time.to_string();
    if text.is_empty() {
        return Ok(());
    }
    fs::write(format!("/proc/{pid}/timens_offsets"), text)
        .map_err(|error| time_offsets_error(&super::channel::os_text(&error)))
}

/// The kernel does not report which clock it rejects.
pub(super) fn time_offsets_error(why: &str) -> Error {
    Error::new(Code::Invalid, format!("linux.timeOffsets: {why}"))
        .hint("a clock must not be set before its zero, nor more than 146 years ahead")
}
