//! One server-sent event.

use axum::response::sse;
use serde_json::Value;
use std::borrow::Cow;

/// The place of a frame in the stream of its session: the number of the event of the bridge, which the bridge never uses
/// again, and the frame's place among those of that event. So the same event always gives the same ids, whichever process
/// makes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FrameId(u64);

/// Ids for each event of the bridge; the last two places are those of the raw message and of what ends a turn.
const PLACES: u64 = 1000;

impl FrameId {
    /// The place of a frame that was derived from an event; `None` when it has too many.
    pub fn derived(number: u64, place: usize) -> Option<Self> {
        let place = u64::try_from(place).ok().filter(|place| *place < PLACES - 2)?;
        Some(FrameId(number * PLACES + place))
    }

    /// The place of the raw message.
    pub fn message(number: u64) -> Self {
        FrameId(number * PLACES + PLACES - 2)
    }

    /// The place of what comes last of an event; also of what comes before the first frame of the next one.
    pub fn last(number: u64) -> Self {
        FrameId(number * PLACES + PLACES - 1)
    }
}

/// A server-sent event: its name, and JSON in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The name of the event.
    pub event: Cow<'static, str>,
    /// JSON.
    pub data: String,
}

impl Frame {
    /// A frame with this value.
    pub fn new(event: impl Into<Cow<'static, str>>, data: &Value) -> Self {
        Frame { event: event.into(), data: data.to_string() }
    }

    /// The message of an agent, byte for byte.
    pub fn message(raw: &str) -> Self {
        // JSON has a carriage return between its words alone, where it means nothing; on this wire it would end the line.
        Frame { event: "message".into(), data: raw.replace('\r', " ") }
    }

    /// The event as axum sends it.
    pub fn into_event(self, id: FrameId) -> sse::Event {
        sse::Event::default().id(id.0.to_string()).event(self.event).data(self.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_grow_with_the_events_and_within_each() {
        let ids = [
            FrameId::last(6),
            FrameId::derived(7, 0).unwrap(),
            FrameId::derived(7, 997).unwrap(),
            FrameId::message(7),
            FrameId::last(7),
            FrameId::derived(8, 0).unwrap(),
        ];
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{ids:?}");
        assert_eq!(FrameId::derived(7, 998), None);
    }

    #[test]
    fn a_message_stays_in_one_line() {
        assert_eq!(Frame::message("{\r\"a\":1}").data, "{ \"a\":1}");
    }
}
