//! A client of bridges (saggar-bridge(7)).

use crate::error::{Context, Error, Result};
use saggar_bridge::client::{ClientCommand, EventBody, EventDecoder, ReceivedEvent};
use std::collections::VecDeque;
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::oneshot;
use tracing::warn;

/// Size of the read buffer, in bytes. Each running session has one for its recorder.
const READ_SIZE: usize = 16 << 10;

/// A connection that sends commands once, and receives events. Dropping it closes it.
#[derive(Debug)]
pub struct BridgeConnection {
    reader: OwnedReadHalf,
    decoder: EventDecoder,
    received: VecDeque<ReceivedEvent>,
    buffer: Vec<u8>,
    /// The write half, until the commands are sent.
    writer: Option<OwnedWriteHalf>,
    /// Dropped with the connection: the task that sends the commands then shuts the write half down.
    _open: Option<oneshot::Sender<()>>,
}

impl BridgeConnection {
    /// Connects, and waits until the bridge is ready.
    ///
    /// # Errors
    /// Fails if the connection cannot be established or the peer is not a bridge.
    pub async fn connect(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket).await.context(|| "cannot connect to the bridge")?;
        let (reader, writer) = stream.into_split();
        let mut connection = BridgeConnection {
            reader,
            decoder: EventDecoder::default(),
            received: VecDeque::new(),
            buffer: vec![0; READ_SIZE],
            writer: Some(writer),
            _open: None,
        };
        match connection.receive().await? {
            Some(event) if *event.body() == EventBody::Ready => Ok(connection),
            Some(_) => Err(Error::new("cannot connect to the bridge: the peer sent no ready event")),
            None => Err(Error::new("cannot connect to the bridge: it closed the connection")),
        }
    }

    /// Connects, and sends the commands.
    ///
    /// # Errors
    /// As [`BridgeConnection::connect`].
    pub async fn open(socket: &Path, commands: &[ClientCommand]) -> Result<Self> {
        let mut connection = BridgeConnection::connect(socket).await?;
        connection.send(commands);
        Ok(connection)
    }

    /// Sends the commands, once for each connection, and returns at once. After a failure the bridge closes the
    /// connection.
    pub fn send(&mut self, commands: &[ClientCommand]) {
        let Some(mut writer) = self.writer.take() else { return };
        let lines: Vec<u8> = commands.iter().flat_map(ClientCommand::encode).collect();
        let (open, dropped) = oneshot::channel();
        self._open = Some(open);
        // It writes concurrently with the reader, since the bridge can stop reading while its events are not received;
        // and it writes everything, even if the connection is dropped meanwhile.
        tokio::spawn(async move {
            // After a write error there is no answer to wait for: the reader finds the connection closed.
            if writer.write_all(&lines).await.is_ok() {
                // Returning shuts the write half down, and the bridge closes the connection after its last answer.
                let _ = dropped.await;
            }
        });
    }

    /// Receives the next event; `None` if the bridge has closed the connection. Cancel-safe.
    ///
    /// # Errors
    /// Fails if the connection fails. An invalid line is logged and skipped.
    pub async fn receive(&mut self) -> Result<Option<ReceivedEvent>> {
        loop {
            if let Some(event) = self.received.pop_front() {
                return Ok(Some(event));
            }
            let count =
                self.reader.read(&mut self.buffer).await.context(|| "cannot receive from the bridge")?;
            if count == 0 {
                return Ok(None);
            }
            let mut bytes = self.buffer.get(..count).unwrap_or_default();
            while let Some(event) = self.decoder.next(&mut bytes) {
                match event {
                    Ok(event) => self.received.push_back(event),
                    // The next line is not affected.
                    Err(error) => warn!("invalid event from a bridge: {error}"),
                }
            }
        }
    }

    /// Returns the next event that is already in the buffer.
    pub fn receive_buffered(&mut self) -> Option<ReceivedEvent> {
        self.received.pop_front()
    }
}
