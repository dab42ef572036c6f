//! The clocks of a new time namespace (time_namespaces(7)).

use crate::error::{Code, Error, Result};
use crate::spec::container::TimeOffsets;
use std::fs;

/// Writes the offsets while nobody is in the namespace that `pid` has made for itself.
pub(super) fn write_offsets(pid: i32, time: &TimeOffsets) -> Result<()> {
    let clocks = [("monotonic", time.monotonic), ("boottime", time.boottime)];
    for (clock, offset) in clocks {
        let Some((seconds, nanoseconds)) = offset else { continue };
        fs::write(format!("/proc/{pid}/timens_offsets"), format!("{clock} {seconds} {nanoseconds}\n"))
            .map_err(|error| {
                let why = super::talk::os_text(&error);
                let message = format!("linux.timeOffsets.{clock} {seconds}.{nanoseconds:09}: {why}");
                Error::new(Code::Invalid, message)
            })?;
    }
    Ok(())
}
