//! Reads the stored events of a session and changes nothing, whether a supervisor serves the session or not: segments are
//! only appended to and removed as a whole.

use super::segment::SegmentFile;
use super::{segment_numbers, spool_directory};
use saggar_bridge::proto::spool::SEGMENT_HEADER_SIZE;
use saggar_sys::beneath;
use saggar_sys::error::{Error, Result};
use std::io;
use std::path::Path;

/// What is stored, in the order of the numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredEvent {
    /// An event: its number, and its line with the newline.
    Event(u64, Vec<u8>),
    /// The first and the last number of events that are lost.
    Gap(u64, u64),
}

/// Passes the events of the session in `directory` after number `after` to `each`.
///
/// # Errors
/// [`saggar_sys::error::Code::System`]; those of `each`, which end the reading.
pub fn read_stored_events(
    directory: &Path,
    after: u64,
    each: &mut dyn FnMut(StoredEvent) -> Result<()>,
) -> Result<()> {
    let path = spool_directory(directory);
    let fail = |e: io::Error| Error::system(format_args!("read the spool {}", path.display()), e);
    let spool = match beneath::open_root(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(fail)?,
    };
    let numbers = segment_numbers(&path).map_err(fail)?;
    // The segment before the first that begins later has the next event.
    let from = numbers.partition_point(|first| *first <= after.saturating_add(1)).saturating_sub(1);
    let mut last = after;
    for first in numbers.into_iter().skip(from) {
        let segment = match SegmentFile::open_read_only(&spool, first) {
            // Removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened.map_err(fail)?,
        };
        let Some(segment) = segment else { continue };
        let mut offset = SEGMENT_HEADER_SIZE as u64;
        // Nothing follows a record that is damaged or not complete yet.
        while let Some(header) = segment.read_header(offset) {
            let at = offset;
            offset += header.size();
            if !header.kind.is_event() || header.number <= last {
                continue;
            }
            let Some(line) = segment.read_body(at, &header) else { break };
            if header.number > last.saturating_add(1) {
                each(StoredEvent::Gap(last.saturating_add(1), header.number - 1))?;
            }
            last = header.number;
            each(StoredEvent::Event(header.number, line))?;
        }
    }
    Ok(())
}
