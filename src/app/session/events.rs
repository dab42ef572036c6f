//! Stored events: from the disk, so that they can be read whether a supervisor serves the session or container or not.

use crate::bridge::proto::BridgeEvent;
use crate::bridge::proto::spool::with_sequence_number;
use crate::error::{Code, Error, Result};
use crate::session::record::SessionRecord;
use crate::session::spool::{StoredEvent, read_stored_events};
use crate::sys::beneath;
use std::path::Path;

/// Passes the events of the session `id` after number `after` to `show`, as the lines that a connection receives after
/// `replay` (saggar-bridge(7), MISSED EVENTS).
///
/// # Errors
/// [`Code::Invalid`] for a session that does not exist, [`Code::System`]; what `show` returns.
pub fn read_events(id: &str, after: u64, show: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let (_, directory, _) = SessionRecord::find(id)?;
    show_events(&directory, after, show)
}

/// The same for the events of the bridge of a container, in the directory of the annotation `org.saggar.spool`.
///
/// # Errors
/// [`Code::Invalid`] for a directory that does not exist, [`Code::System`]; what `show` returns.
pub fn read_events_in(directory: &Path, after: u64, show: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    // A session without events has no directory of them; this one was named.
    beneath::open_root(directory).map_err(|e| {
        let message = format!("open the directory of events {}: {e}", directory.display());
        Error::new(Code::Invalid, message)
            .hint("it is NAME.events beside the socket of a bridge with org.saggar.spool (saggar-oci(8))")
    })?;
    show_events(directory, after, show)
}

fn show_events(directory: &Path, after: u64, show: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    read_stored_events(directory, after, &mut |event| match event {
        StoredEvent::Event(number, line) => show(&with_sequence_number(&line, number).unwrap_or(line)),
        StoredEvent::Gap(from, to) => show(&BridgeEvent::Gap { from, to }.encode(None)),
    })
}
