//! The stream of a session: all events after a position, and then each new one.

use super::event_frames::{EventFrames, event_frames};
use super::frame_sender::{ClientDisconnected, FrameReceiver, FrameSender};
use super::permission_frames::PermissionFrames;
use super::{Frame, FrameId, StreamEvent};
use crate::error;
use crate::running::RunningSession;
use crate::saggar::{BridgeConnection, StoredEvents};
use crate::tasks::Tasks;
use saggar_bridge::client::{ClientCommand, EventBody, ReceivedEvent};
use std::sync::Arc;
use uuid::Uuid;

/// Where the events of a stream come from.
#[derive(Debug)]
enum EventSource {
    /// The bridge of a running session. The stream ends when the sandbox exits.
    Bridge(BridgeConnection, PermissionFrames),
    /// What saggar has stored of a session without a sandbox. The stream ends with the last event.
    Stored(Box<StoredEvents>),
}

/// Receives the events of a session, and sends their frames to one client.
#[derive(Debug)]
pub struct SessionStream {
    id: Uuid,
    source: EventSource,
    frames: FrameSender,
    tasks: Tasks,
    /// The client has the frames up to this one.
    after: FrameId,
    /// The number of the last received event.
    number: u64,
}

impl SessionStream {
    /// Starts the stream of a running session after this frame.
    ///
    /// # Errors
    /// Fails if the bridge cannot be connected.
    pub async fn start_running(
        session: Arc<RunningSession>,
        after: FrameId,
        tasks: Tasks,
    ) -> error::Result<FrameReceiver> {
        let replay = ClientCommand::replay(after.events_before()).with_id("replay");
        let connection = BridgeConnection::open(&session.bridge, &[replay]).await?;
        let id = session.id;
        Ok(Self::start(id, EventSource::Bridge(connection, PermissionFrames::new(session)), after, tasks))
    }

    /// Starts the stream of a session without a sandbox after this frame. `stored` are its events after
    /// [`FrameId::events_before`].
    pub fn start_stored(id: Uuid, stored: StoredEvents, after: FrameId, tasks: Tasks) -> FrameReceiver {
        Self::start(id, EventSource::Stored(Box::new(stored)), after, tasks)
    }

    fn start(id: Uuid, source: EventSource, after: FrameId, tasks: Tasks) -> FrameReceiver {
        let (frames, receiver) = FrameSender::new();
        let number = after.events_before();
        let stream = SessionStream { id, source, frames, tasks, after, number };
        tokio::spawn(async move {
            // A client that has disconnected can continue later.
            let _ = stream.run().await;
        });
        receiver
    }

    async fn run(mut self) -> Result<(), ClientDisconnected> {
        let session = self.id.to_string();
        let start = StreamEvent::session_start(&session);
        self.frames.send(Frame::of(&start), self.after).await?;
        loop {
            let received = tokio::select! {
                received = receive(&mut self.source) => received,
                () = self.frames.closed() => return Err(ClientDisconnected),
                () = self.tasks.wait_for_shutdown() => return Err(ClientDisconnected),
            };
            match received {
                Ok(Some(event)) => match event.body() {
                    // The bridge refuses to replay events after this number: there are none yet.
                    EventBody::Error(text) if event.number().is_none() => return self.fail(text).await,
                    _ => self.forward(&event, &session).await?,
                },
                Ok(None) => return Ok(()),
                Err(error) => return self.fail(&error.to_string()).await,
            }
        }
    }

    async fn fail(&self, error: &str) -> Result<(), ClientDisconnected> {
        let id = self.after.max(FrameId::last(self.number));
        self.frames.send(Frame::of(&StreamEvent::Error { error: error.to_owned() }), id).await
    }

    async fn forward(&mut self, event: &ReceivedEvent, session: &str) -> Result<(), ClientDisconnected> {
        if event.number().is_none() && *event.body() == EventBody::Message {
            // A request of a client that disconnected, which the bridge sends to another one again. The stored message
            // has a number.
            return Ok(());
        }
        self.number = event.number().unwrap_or(self.number);
        let EventFrames { frames, message, .. } = event_frames(event, self.number, session);
        if let (EventSource::Bridge(_, permissions), Some(message)) = (&mut self.source, &message)
            && let Some(frame) = permissions.frame(message).await
        {
            self.frames.send(frame, FrameId::first(self.number)).await?;
        }
        for (frame, id) in frames {
            if id > self.after {
                self.frames.send(frame, id).await?;
            }
        }
        Ok(())
    }
}

/// Receives the next event. Cancel-safe.
async fn receive(source: &mut EventSource) -> error::Result<Option<ReceivedEvent>> {
    match source {
        EventSource::Bridge(connection, _) => connection.receive().await,
        EventSource::Stored(stored) => stored.events().receive().await,
    }
}
