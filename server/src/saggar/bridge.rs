//! A client of bridges (saggar-bridge(7)).

use super::EventReader;
use super::session_socket::{SessionSocket, SocketReader, SocketWriter};
use crate::error::{Context, Error, Result};
use saggar_bridge::client::{ClientCommand, EventBody, ReceivedEvent};
use tokio::io::AsyncWriteExt;
use tokio::sync::oneshot;

/// A connection that sends commands once, and receives events. Dropping it closes it.
#[derive(Debug)]
pub struct BridgeConnection {
    events: EventReader<SocketReader>,
    /// The write half, until the commands are sent.
    writer: Option<SocketWriter>,
    /// Dropped with the connection: the task that sends the commands then shuts the write half down.
    _open: Option<oneshot::Sender<()>>,
}

impl BridgeConnection {
    /// Connects, and waits until the bridge is ready.
    ///
    /// # Errors
    /// Fails if the connection cannot be established or the peer is not a bridge.
    pub async fn connect(socket: &SessionSocket) -> Result<Self> {
        let (reader, writer) = socket.connect().await.context(|| "cannot connect to the bridge")?;
        let mut connection =
            BridgeConnection { events: EventReader::new(reader), writer: Some(writer), _open: None };
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
    pub async fn open(socket: &SessionSocket, commands: &[ClientCommand]) -> Result<Self> {
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
            if writer.write_all(&lines).await.is_ok() && writer.flush().await.is_ok() {
                let _ = dropped.await;
                // The bridge closes the connection after its last answer.
                let _ = writer.shutdown().await;
            }
        });
    }

    /// Receives the next event; `None` if the bridge has closed the connection. Cancel-safe.
    ///
    /// # Errors
    /// As [`EventReader::receive`].
    pub async fn receive(&mut self) -> Result<Option<ReceivedEvent>> {
        self.events.receive().await
    }

    /// The events of this connection.
    pub fn events(&mut self) -> &mut EventReader<SocketReader> {
        &mut self.events
    }
}
