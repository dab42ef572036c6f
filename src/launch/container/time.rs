//! The clocks of a new time namespace (time_namespaces(7)).

use crate::error::{Code, Error, Result};
use crate::spec::container::TimeOffsets;
use std::fs;

/// Writes the offsets while nobody is in the namespace that `pid` has made for itself.
pub(super) fn write_offsets(pid: i32, time: &TimeOffsets) -> Result<()> {
    let text = time.to_string();
    if text.is_empty() {
        return Ok(());
    }
    fs::write(format!("/proc/{pid}/timens_offsets"), text)
        .map_err(|error| clocks_failed(&super::talk::os_text(&error)))
}

/// The kernel does not say which clock it means.
pub(super) fn clocks_failed(why: &str) -> Error {
    Error::new(Code::Invalid, format!("linux.timeOffsets: {why}"))
        .hint("a clock must not be set before its zero, nor more than 146 years ahead")
}
