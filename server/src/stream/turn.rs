//! The stream of one turn, for the client that sent the message.

use super::event_frames::{EventFrames, event_frames};
use super::frame_sender::{ClientDisconnected, FrameReceiver, FrameSender};
use super::permission_frames::PermissionFrames;
use super::{Frame, FrameId, StreamEvent};
use crate::running::{RunningSession, SessionUse};
use crate::saggar::BridgeConnection;
use crate::tasks::Tasks;
use saggar_bridge::client::{ClientCommand, ReceivedEvent};
use std::sync::Arc;
use uuid::Uuid;

/// Prefix of the command ids of turns; a UUID follows.
const TURN_ID_PREFIX: &str = "turn-";

/// Generates a command id for a turn.
pub fn new_turn_id() -> String {
    format!("{TURN_ID_PREFIX}{}", Uuid::new_v4())
}

/// Returns the command id of an event if it belongs to a turn that a server started.
pub(crate) fn event_turn_id(event: &ReceivedEvent) -> Option<&str> {
    event.id()?.as_json().strip_prefix('"')?.strip_suffix('"').filter(|id| id.starts_with(TURN_ID_PREFIX))
}

/// Receives the events of one turn on its own bridge connection, and sends their frames to one client.
#[derive(Debug)]
pub struct TurnStream {
    session: Arc<RunningSession>,
    /// `None` after the first event of the turn.
    usage: Option<SessionUse>,
    connection: BridgeConnection,
    turn: String,
    frames: FrameSender,
    permissions: PermissionFrames,
    tasks: Tasks,
    /// The number of the last received bridge event.
    number: u64,
}

impl TurnStream {
    /// Starts a turn with this command id, and returns its frames, which follow the event with this number. If they are
    /// dropped, the turn continues. The bridge ignores a query with a `uuid` that it has accepted before; the frames are
    /// then those of the turn that runs or has ended.
    pub fn start(
        session: Arc<RunningSession>,
        usage: SessionUse,
        mut connection: BridgeConnection,
        query: ClientCommand,
        turn: String,
        number: u64,
        tasks: Tasks,
    ) -> FrameReceiver {
        // Events have numbers only after a replay. Replayed events of other commands are skipped.
        connection.send(&[ClientCommand::replay(number).with_id("replay"), query.with_id(turn.clone())]);
        let (frames, receiver) = FrameSender::new();
        let permissions = PermissionFrames::new(Arc::clone(&session));
        let mut stream =
            TurnStream { session, usage: Some(usage), connection, turn, frames, permissions, tasks, number };
        tokio::spawn(async move {
            if stream.run().await.is_err() {
                stream.finish_without_client().await;
            }
        });
        receiver
    }

    async fn run(&mut self) -> Result<(), ClientDisconnected> {
        let session = self.session.id.to_string();
        let start = StreamEvent::session_start(&session);
        self.frames.send(Frame::of(&start), FrameId::last(self.number)).await?;
        loop {
            let received = tokio::select! {
                received = self.connection.receive() => received,
                () = self.frames.closed() => return Err(ClientDisconnected),
                // The turn continues, and the client can connect to the next server.
                () = self.tasks.wait_for_shutdown() => return Err(ClientDisconnected),
            };
            let failure = match received {
                Ok(Some(event)) => match self.forward(&event, &session).await? {
                    true => return Ok(()),
                    false => continue,
                },
                Ok(None) => "the sandbox closed the connection".to_owned(),
                Err(error) => error.to_string(),
            };
            self.leave_unless_begun();
            self.session.wait_until_recorded(self.number).await;
            let last = FrameId::last(self.number);
            self.frames.send(Frame::of(&StreamEvent::Error { error: failure }), last).await?;
            return self.frames.send(Frame::of(&StreamEvent::Done { session_id: session }), last).await;
        }
    }

    /// Receives the first event of the turn, if its span waits for it. The recorder finds the end of turns that have
    /// begun, but the bridge tells this connection alone that it refuses a query.
    async fn finish_without_client(&mut self) {
        while self.usage.is_some() && self.session.turn_spans().is_open(&self.turn) {
            let received = tokio::select! {
                received = self.connection.receive() => received,
                () = self.tasks.wait_for_shutdown() => return,
            };
            let Ok(Some(event)) = received else { return self.leave_unless_begun() };
            if event_turn_id(&event) == Some(self.turn.as_str()) {
                self.usage = None;
                self.session.turn_spans().end(&self.turn, event.body());
            }
        }
    }

    /// Ends the span of the turn, unless it has an event: the connection is lost, and a refusal would be unknown.
    fn leave_unless_begun(&self) {
        if self.usage.is_some() {
            self.session.turn_spans().leave(&self.turn);
        }
    }

    /// Sends the frames of an event of the turn. Returns true if the event ends the turn.
    async fn forward(&mut self, event: &ReceivedEvent, session: &str) -> Result<bool, ClientDisconnected> {
        self.number = event.number().unwrap_or(self.number);
        if event_turn_id(event) != Some(self.turn.as_str()) {
            return Ok(false);
        }
        self.usage = None;
        let EventFrames { frames, message, ends_turn } = event_frames(event, self.number, session);
        if ends_turn {
            // A client that has received the end of the turn must find all of it in the lists.
            self.session.wait_until_recorded(self.number).await;
            // The recorder has done so, unless the bridge refused the query: it does not store that event.
            self.session.turn_spans().end(&self.turn, event.body());
        }
        if let Some(message) = &message
            && let Some(frame) = self.permissions.frame(message).await
        {
            self.frames.send(frame, FrameId::first(self.number)).await?;
        }
        for (frame, id) in frames {
            self.frames.send(frame, id).await?;
        }
        Ok(ends_turn)
    }
}
