//! The stream of one turn, for the client that asked for it.

use super::{Frame, FrameId, frames_of};
use crate::live::Live;
use crate::saggar::BridgeConnection;
use axum::response::sse;
use saggar_bridge::client::{ClientCommand, EventBody, ReceivedEvent};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use uuid::Uuid;

/// Frames that wait for a client; the bridge keeps the others.
const WAITING: usize = 64;
/// A client that takes nothing for so long loses its stream. The turn goes on.
const SLOWEST: Duration = Duration::from_secs(30);
/// Ids of commands that are turns, in front of a UUID.
const TURN: &str = "turn-";

/// A new id for the command of a turn.
pub fn turn_id() -> String {
    format!("{TURN}{}", Uuid::new_v4())
}

/// The turn that an event belongs to, if it is one of a client of this server.
pub(crate) fn turn_of(event: &ReceivedEvent) -> Option<&str> {
    event.id()?.as_json().strip_prefix('"')?.strip_suffix('"').filter(|id| id.starts_with(TURN))
}

/// Reads a turn from the bridge, on a connection of its own, and gives its frames to one client.
#[derive(Debug)]
pub struct TurnStream {
    live: Arc<Live>,
    connection: BridgeConnection,
    turn: String,
    frames: mpsc::Sender<Result<sse::Event, Infallible>>,
    /// The number of the last event of the bridge that was looked at.
    number: u64,
}

/// Nobody listens any more.
struct Gone;

impl TurnStream {
    /// Sends the query of a turn with this id, and returns its frames. The turn goes on if they are dropped.
    ///
    /// # Errors
    /// The bridge does not answer.
    pub async fn start(
        live: Arc<Live>,
        query: ClientCommand,
        turn: String,
    ) -> crate::error::Result<ReceiverStream<Result<sse::Event, Infallible>>> {
        // All events since the last recorded one have numbers then; those of other commands are left out.
        let number = live.recorded();
        let commands = [ClientCommand::replay(number).with_id("replay"), query.with_id(turn.clone())];
        let connection = BridgeConnection::open(&live.bridge, &commands).await?;
        let (sender, receiver) = mpsc::channel(WAITING);
        let stream = TurnStream { live, connection, turn, frames: sender, number };
        tokio::spawn(async move {
            // Without a listener there is nothing left to do here: the recorder of the session has the rest.
            let _ = stream.run().await;
        });
        Ok(ReceiverStream::new(receiver))
    }

    async fn run(mut self) -> Result<(), Gone> {
        let session = self.live.id.to_string();
        let start = Frame::new(
            "session_start",
            &json!({ "sessionId": session, "version": env!("CARGO_PKG_VERSION") }),
        );
        self.send(start, FrameId::last(self.number)).await?;
        loop {
            let received = tokio::select! {
                received = self.connection.receive() => received,
                () = self.frames.closed() => return Err(Gone),
            };
            let failure = match received {
                Ok(Some(event)) => {
                    self.number = event.number().unwrap_or(self.number);
                    if turn_of(&event) != Some(self.turn.as_str()) {
                        continue;
                    }
                    match self.forward(&event, &session).await? {
                        true => return Ok(()),
                        false => continue,
                    }
                }
                Ok(None) => "the sandbox has ended".to_owned(),
                Err(error) => error.to_string(),
            };
            let last = FrameId::last(self.number);
            self.send(Frame::new("error", &json!({ "error": failure })), last).await?;
            return self.send(Frame::new("done", &json!({ "sessionId": session })), last).await;
        }
    }

    /// Sends what an event of the turn says; true if the turn ends with it.
    async fn forward(&mut self, event: &ReceivedEvent, session: &str) -> Result<bool, Gone> {
        let number = self.number;
        match event.body() {
            EventBody::Message => {
                let raw = event.message().unwrap_or_default();
                let message: Value = serde_json::from_str(raw).unwrap_or_default();
                for (place, frame) in frames_of(&message).into_iter().enumerate() {
                    // What is beyond that is in the message.
                    let Some(id) = FrameId::derived(number, place) else { break };
                    self.send(frame, id).await?;
                }
                self.send(Frame::message(raw), FrameId::message(number)).await?;
                Ok(false)
            }
            EventBody::Done(_) => {
                // Who has seen the end of a turn finds all of it in the lists.
                self.live.wait_until_recorded(number).await;
                let done = Frame::new("done", &json!({ "sessionId": session }));
                self.send(done, FrameId::last(number)).await?;
                Ok(true)
            }
            EventBody::Error(text) => {
                self.live.wait_until_recorded(number).await;
                self.send(Frame::new("error", &json!({ "error": text })), FrameId::last(number)).await?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    async fn send(&self, frame: Frame, id: FrameId) -> Result<(), Gone> {
        match timeout(SLOWEST, self.frames.send(Ok(frame.into_event(id)))).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(Gone),
        }
    }
}
