//! The frames of one event of a bridge.

use super::{Frame, FrameId, StreamEvent, derive_frames, event_turn_id, parse_message};
use saggar_bridge::client::{EventBody, ReceivedEvent};
use serde_json::Value;

/// The frames of an event, in order, and the message of the agent if it is one.
#[derive(Debug, Default)]
pub(super) struct EventFrames {
    pub(super) frames: Vec<(Frame, FrameId)>,
    pub(super) message: Option<Value>,
    /// The event ends a turn.
    pub(super) ends_turn: bool,
}

/// Derives the frames of an event with this number in a session.
pub(super) fn event_frames(event: &ReceivedEvent, number: u64, session: &str) -> EventFrames {
    let last = FrameId::last(number);
    match event.body() {
        EventBody::Message => {
            let raw = event.message().unwrap_or_default();
            let message = parse_message(raw);
            let mut frames = Vec::new();
            for (index, frame) in derive_frames(&message).into_iter().enumerate() {
                // Without an id of its own, a frame is dropped; its content is in the message.
                let Some(id) = FrameId::derived(number, index) else { break };
                frames.push((frame, id));
            }
            frames.push((Frame::message(raw), FrameId::message(number)));
            EventFrames { frames, message: Some(message), ends_turn: false }
        }
        EventBody::Gap(from, to) => {
            let gap = Frame::of(&StreamEvent::Gap { from: *from, to: *to });
            EventFrames { frames: vec![(gap, FrameId::last(*to))], ..EventFrames::default() }
        }
        // Of other commands than turns, the client is told elsewhere.
        _ if event_turn_id(event).is_none() => EventFrames::default(),
        EventBody::Done(_) => {
            let done = Frame::of(&StreamEvent::Done { session_id: session.to_owned() });
            EventFrames { frames: vec![(done, last)], message: None, ends_turn: true }
        }
        // As in Ash, an error of the bridge ends a turn without `done`.
        EventBody::Error(text) => {
            let error = Frame::of(&StreamEvent::Error { error: text.to_string() });
            EventFrames { frames: vec![(error, last)], message: None, ends_turn: true }
        }
        _ => EventFrames::default(),
    }
}
