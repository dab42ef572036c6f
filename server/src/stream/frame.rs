//! Frames: server-sent events and their ids.

use super::StreamEvent;
use axum::response::sse;
use serde_json::Value;
use std::borrow::Cow;

/// The position of a frame in the stream of its session: the number of the bridge event, which the bridge never reuses,
/// and the index of the frame among those of the event. An event therefore has the same ids after a restart of the
/// server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FrameId(u64);

/// Number of ids for each bridge event. The last two are those of the message and of the end of the turn.
const IDS_PER_EVENT: u64 = 1000;

impl FrameId {
    /// The id of a derived frame; `None` if the event has too many frames.
    pub fn derived(event_number: u64, index: usize) -> Option<Self> {
        let index = u64::try_from(index).ok().filter(|index| *index < IDS_PER_EVENT - 2)?;
        Some(FrameId(event_number * IDS_PER_EVENT + index))
    }

    /// The id of the first frame of an event.
    pub fn first(event_number: u64) -> Self {
        FrameId(event_number * IDS_PER_EVENT)
    }

    /// The id that a client has received last; 0 for none.
    pub fn received(id: u64) -> Self {
        FrameId(id)
    }

    /// The number of the last event whose frames all have this id or a lower one.
    pub fn events_before(self) -> u64 {
        (self.0.saturating_add(1) / IDS_PER_EVENT).saturating_sub(1)
    }

    /// The id of the frame that contains the message.
    pub fn message(event_number: u64) -> Self {
        FrameId(event_number * IDS_PER_EVENT + IDS_PER_EVENT - 2)
    }

    /// The id of the last frame of an event. A frame before the first event after `event_number` uses it too.
    pub fn last(event_number: u64) -> Self {
        FrameId(event_number * IDS_PER_EVENT + IDS_PER_EVENT - 1)
    }
}

/// A server-sent event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The name of the event, without white space or line breaks.
    pub event: Cow<'static, str>,
    /// The data: JSON in one line.
    pub data: String,
}

impl Frame {
    /// Creates a frame with this value as data.
    pub fn new(event: impl Into<Cow<'static, str>>, data: &Value) -> Self {
        Frame { event: event.into(), data: data.to_string() }
    }

    /// Creates the frame of an event of the server.
    pub fn of(event: &StreamEvent) -> Self {
        // A map with the keys `event` and `data`: no value of an event can fail.
        let fields = serde_json::to_value(event).unwrap_or_default();
        Frame::new(fields["event"].as_str().unwrap_or_default().to_owned(), &fields["data"])
    }

    /// Creates a `message` frame with the agent's message, byte for byte except for carriage returns.
    pub fn message(raw: &str) -> Self {
        // In valid JSON, a raw carriage return is white space between tokens; in the stream, it would end the line.
        Frame { event: "message".into(), data: raw.replace('\r', " ") }
    }

    /// Converts the frame to the event type of axum.
    pub fn into_event(self, id: FrameId) -> sse::Event {
        sse::Event::default().id(id.0.to_string()).event(self.event).data(self.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_increase_across_and_within_events() {
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
    fn event_is_requested_again_until_its_last_id_was_received() {
        for (received, before) in
            [(0, 0), (999, 0), (1000, 0), (7998, 6), (7999, 7), (8000, 7), (u64::MAX, u64::MAX / 1000 - 1)]
        {
            assert_eq!(FrameId::received(received).events_before(), before, "{received}");
        }
        assert_eq!(FrameId::last(7).events_before(), 7);
        assert_eq!(FrameId::message(7).events_before(), 6);
    }

    #[test]
    fn message_stays_on_one_line() {
        assert_eq!(Frame::message("{\r\"a\":1}").data, "{ \"a\":1}");
    }
}
