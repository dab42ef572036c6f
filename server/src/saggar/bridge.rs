//! A client of bridges (saggar-bridge(7)).

use crate::error::{Context, Error, Result};
use saggar_bridge::client::{ClientCommand, EventBody, EventDecoder, ReceivedEvent};
use std::collections::VecDeque;
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::JoinHandle;

/// Size of the read buffer, in bytes. Each running session has one for its recorder.
const READ_SIZE: usize = 16 << 10;

/// A connection that sends commands once, and receives events. Dropping it closes it.
#[derive(Debug)]
pub struct BridgeConnection {
    reader: OwnedReadHalf,
    decoder: EventDecoder,
    received: VecDeque<Result<ReceivedEvent>>,
    buffer: Vec<u8>,
    writer: Writer,
}

/// The write half of a connection.
#[derive(Debug)]
enum Writer {
    Idle(OwnedWriteHalf),
    /// Writes concurrently with the reader: the bridge can stop reading while its events are not received.
    Sending(JoinHandle<()>),
    Taken,
}

impl Drop for BridgeConnection {
    fn drop(&mut self) {
        if let Writer::Sending(task) = &self.writer {
            task.abort();
        }
    }
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
            writer: Writer::Idle(writer),
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
        let lines: Vec<u8> = commands.iter().flat_map(ClientCommand::encode).collect();
        self.writer = match std::mem::replace(&mut self.writer, Writer::Taken) {
            Writer::Idle(mut writer) => Writer::Sending(tokio::spawn(async move {
                // After a write error there is no answer to wait for: the reader finds the connection closed.
                if writer.write_all(&lines).await.is_ok() {
                    // Returning would shut the write half down, and the bridge would close the connection after its
                    // last answer.
                    std::future::pending::<()>().await;
                }
            })),
            other => other,
        };
    }

    /// Receives the next event; `None` if the bridge has closed the connection. Cancel-safe.
    ///
    /// # Errors
    /// Fails if the connection fails or a line is not a valid event.
    pub async fn receive(&mut self) -> Result<Option<ReceivedEvent>> {
        loop {
            if let Some(event) = self.received.pop_front() {
                return event.map(Some);
            }
            let count =
                self.reader.read(&mut self.buffer).await.context(|| "cannot receive from the bridge")?;
            if count == 0 {
                return Ok(None);
            }
            let mut bytes = self.buffer.get(..count).unwrap_or_default();
            while let Some(event) = self.decoder.next(&mut bytes) {
                self.received.push_back(event.context(|| "invalid event from the bridge"));
            }
        }
    }

    /// Returns the next event that is already in the buffer.
    ///
    /// # Errors
    /// Fails if a line is not a valid event.
    pub fn receive_buffered(&mut self) -> Result<Option<ReceivedEvent>> {
        self.received.pop_front().transpose()
    }
}
