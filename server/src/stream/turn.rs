//! The stream of one turn, for the client that sent the message.

use super::{Frame, FrameId, derive_frames, parse_message};
use crate::running::RunningSession;
use crate::saggar::BridgeConnection;
use crate::tasks::Tasks;
use axum::response::sse;
use saggar_bridge::client::{ClientCommand, EventBody, ReceivedEvent};
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use uuid::Uuid;

/// Maximum number of frames that wait for a client. The bridge buffers further events.
const FRAME_BUFFER: usize = 4;
/// A client that accepts no frame for this time loses its stream. The turn continues.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
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
    connection: BridgeConnection,
    turn: String,
    frames: mpsc::Sender<Result<sse::Event, Infallible>>,
    tasks: Tasks,
    /// The number of the last received bridge event.
    number: u64,
}

/// The client has disconnected, or has accepted no frame for [`SEND_TIMEOUT`].
struct ClientDisconnected;

impl TurnStream {
    /// Starts a turn with this command id, and returns its frames. If they are dropped, the turn continues.
    pub fn start(
        session: Arc<RunningSession>,
        mut connection: BridgeConnection,
        query: ClientCommand,
        turn: String,
        tasks: Tasks,
    ) -> ReceiverStream<Result<sse::Event, Infallible>> {
        // Events have numbers only after a replay. Replayed events of other commands are skipped.
        let number = session.recorded();
        connection.send(&[ClientCommand::replay(number).with_id("replay"), query.with_id(turn.clone())]);
        let (sender, receiver) = mpsc::channel(FRAME_BUFFER);
        let stream = TurnStream { session, connection, turn, frames: sender, tasks, number };
        tokio::spawn(async move {
            // If the client has disconnected, no work is left: the recorder stores the remaining events.
            let _ = stream.run().await;
        });
        ReceiverStream::new(receiver)
    }

    async fn run(mut self) -> Result<(), ClientDisconnected> {
        let session = self.session.id.to_string();
        let start = Frame::new(
            "session_start",
            &json!({ "sessionId": session, "version": env!("CARGO_PKG_VERSION") }),
        );
        self.send(start, FrameId::last(self.number)).await?;
        loop {
            let received = tokio::select! {
                received = self.connection.receive() => received,
                () = self.frames.closed() => return Err(ClientDisconnected),
                // The turn continues, and the client can connect to the next server.
                () = self.tasks.wait_for_shutdown() => return Err(ClientDisconnected),
            };
            let failure = match received {
                Ok(Some(event)) => {
                    self.number = event.number().unwrap_or(self.number);
                    if event_turn_id(&event) != Some(self.turn.as_str()) {
                        continue;
                    }
                    match self.forward(&event, &session).await? {
                        true => return Ok(()),
                        false => continue,
                    }
                }
                Ok(None) => "the sandbox closed the connection".to_owned(),
                Err(error) => error.to_string(),
            };
            self.session.wait_until_recorded(self.number).await;
            let last = FrameId::last(self.number);
            self.send(Frame::new("error", &json!({ "error": failure })), last).await?;
            return self.send(Frame::new("done", &json!({ "sessionId": session })), last).await;
        }
    }

    /// Sends the frames of an event of the turn. Returns true if the event ends the turn.
    async fn forward(&mut self, event: &ReceivedEvent, session: &str) -> Result<bool, ClientDisconnected> {
        let number = self.number;
        match event.body() {
            EventBody::Message => {
                let raw = event.message().unwrap_or_default();
                let message = parse_message(raw);
                for (index, frame) in derive_frames(&message).into_iter().enumerate() {
                    // Without an id of its own, a frame is dropped; its content is in the message.
                    let Some(id) = FrameId::derived(number, index) else { break };
                    self.send(frame, id).await?;
                }
                self.send(Frame::message(raw), FrameId::message(number)).await?;
                Ok(false)
            }
            EventBody::Done(_) => {
                // A client that has received the end of the turn must find all of it in the lists.
                self.session.wait_until_recorded(number).await;
                let done = Frame::new("done", &json!({ "sessionId": session }));
                self.send(done, FrameId::last(number)).await?;
                Ok(true)
            }
            EventBody::Error(text) => {
                // As in Ash, an error of the bridge ends the stream without `done`.
                self.session.wait_until_recorded(number).await;
                self.send(Frame::new("error", &json!({ "error": text })), FrameId::last(number)).await?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    async fn send(&self, frame: Frame, id: FrameId) -> Result<(), ClientDisconnected> {
        match timeout(SEND_TIMEOUT, self.frames.send(Ok(frame.into_event(id)))).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(ClientDisconnected),
        }
    }
}
