//! The frames of one client.

use super::{Frame, FrameId};
use axum::response::sse;
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;

/// Maximum number of frames that wait for a client. The bridge buffers further events.
const FRAME_BUFFER: usize = 4;
/// A client that accepts no frame for this time loses its stream. The turn continues.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// The frames that a client receives.
pub type FrameReceiver = ReceiverStream<Result<sse::Event, Infallible>>;

/// The client has disconnected, or has accepted no frame for [`SEND_TIMEOUT`].
#[derive(Debug)]
pub(super) struct ClientDisconnected;

/// Sends frames to one client.
#[derive(Debug)]
pub(super) struct FrameSender(mpsc::Sender<Result<sse::Event, Infallible>>);

impl FrameSender {
    pub(super) fn new() -> (Self, FrameReceiver) {
        let (sender, receiver) = mpsc::channel(FRAME_BUFFER);
        (FrameSender(sender), ReceiverStream::new(receiver))
    }

    pub(super) async fn send(&self, frame: Frame, id: FrameId) -> Result<(), ClientDisconnected> {
        match timeout(SEND_TIMEOUT, self.0.send(Ok(frame.into_event(id)))).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(ClientDisconnected),
        }
    }

    /// Waits until the client has disconnected.
    pub(super) async fn closed(&self) {
        self.0.closed().await;
    }
}
