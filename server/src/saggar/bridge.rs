//! A connection to a bridge (saggar-bridge(7)).

use crate::error::{Context, Error, Result};
use saggar_bridge::client::{ClientCommand, EventBody, EventDecoder, ReceivedEvent};
use std::collections::VecDeque;
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::task::JoinHandle;

/// Bytes of one read; each live session has a connection.
const CHUNK: usize = 16 << 10;

/// A connection that sends its commands at once, and then receives. It is closed when it is dropped.
#[derive(Debug)]
pub struct BridgeConnection {
    reader: OwnedReadHalf,
    decoder: EventDecoder,
    received: VecDeque<Result<ReceivedEvent>>,
    chunk: Vec<u8>,
    /// Writes beside the reader: while the agent writes and nothing is received, the bridge may read nothing either.
    writer: JoinHandle<()>,
}

impl Drop for BridgeConnection {
    fn drop(&mut self) {
        self.writer.abort();
    }
}

impl BridgeConnection {
    /// Connects, waits until the bridge is ready, and sends the commands.
    ///
    /// # Errors
    /// Nothing listens there, or it is no bridge.
    pub async fn open(socket: &Path, commands: &[ClientCommand]) -> Result<Self> {
        let stream = UnixStream::connect(socket).await.context(|| "connect to the bridge")?;
        let (reader, mut writer) = stream.into_split();
        let lines: Vec<u8> = commands.iter().flat_map(ClientCommand::encode).collect();
        let writer = tokio::spawn(async move {
            // What was not sent has no answer; the reader finds the connection closed.
            if writer.write_all(&lines).await.is_ok() {
                // Its end would tell the bridge that this client says no more, and close the connection after the last answer.
                std::future::pending::<()>().await;
            }
        });
        let mut connection = BridgeConnection {
            reader,
            decoder: EventDecoder::default(),
            received: VecDeque::new(),
            chunk: vec![0; CHUNK],
            writer,
        };
        match connection.receive().await? {
            Some(event) if *event.body() == EventBody::Ready => Ok(connection),
            Some(_) => Err(Error::new("what listens on the socket is no bridge")),
            None => Err(Error::new("the bridge closed the connection")),
        }
    }

    /// The next event; `None` when the bridge has closed the connection. Nothing is lost if it is cancelled.
    ///
    /// # Errors
    /// The connection fails, or a line is no event.
    pub async fn receive(&mut self) -> Result<Option<ReceivedEvent>> {
        loop {
            if let Some(event) = self.received.pop_front() {
                return event.map(Some);
            }
            let count = self.reader.read(&mut self.chunk).await.context(|| "receive from the bridge")?;
            if count == 0 {
                return Ok(None);
            }
            let mut bytes = self.chunk.get(..count).unwrap_or_default();
            while let Some(event) = self.decoder.next(&mut bytes) {
                self.received.push_back(event.context(|| "the bridge"));
            }
        }
    }

    /// An event that was received together with earlier ones.
    ///
    /// # Errors
    /// A line is no event.
    pub fn receive_buffered(&mut self) -> Result<Option<ReceivedEvent>> {
        self.received.pop_front().transpose()
    }
}
