//! The stored events of a session: from the disk, so that they can be read whether the session is served or not.

use crate::bridge::proto::BridgeEvent;
use crate::bridge::proto::spool::with_sequence_number;
use crate::error::Result;
use crate::session::record::SessionRecord;
use crate::session::spool::{StoredEvent, read_stored_events};

/// Passes the events after number `after` to `show`, as the lines that a connection receives after `replay`
/// (saggar-bridge(7), MISSED EVENTS).
///
/// # Errors
/// [`crate::error::Code::Invalid`] for a session that does not exist, [`crate::error::Code::System`]; what `show` returns.
pub fn read_events(id: &str, after: u64, show: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let (_, directory, _) = SessionRecord::find(id)?;
    read_stored_events(&directory, after, &mut |event| match event {
        StoredEvent::Event(number, line) => show(&with_sequence_number(&line, number).unwrap_or(line)),
        StoredEvent::Gap(from, to) => show(&BridgeEvent::Gap { from, to }.encode(None)),
    })
}
