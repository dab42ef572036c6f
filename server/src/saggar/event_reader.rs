//! Events of a bridge, from a connection or from `saggar session events`.

use crate::error::{Context, Result};
use saggar_bridge::client::{EventDecoder, ReceivedEvent};
use std::collections::VecDeque;
use tokio::io::{AsyncRead, AsyncReadExt};
use tracing::warn;

/// Size of the read buffer, in bytes. Each running session has one for its recorder.
const READ_SIZE: usize = 16 << 10;

/// Decodes events from a stream of bytes.
#[derive(Debug)]
pub struct EventReader<R> {
    reader: R,
    decoder: EventDecoder,
    received: VecDeque<ReceivedEvent>,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> EventReader<R> {
    /// Reads from `reader`.
    pub fn new(reader: R) -> Self {
        EventReader {
            reader,
            decoder: EventDecoder::default(),
            received: VecDeque::new(),
            buffer: vec![0; READ_SIZE],
        }
    }

    /// Returns the next event; `None` at the end of the stream. Cancel-safe.
    ///
    /// # Errors
    /// Fails if the stream cannot be read. An invalid line is logged and skipped.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn invalid_line_does_not_hide_the_next_event() {
        let lines: &[u8] = b"{\"ev\":\"message\",\"data\":1,\"seq\":1}\nno event\n{\"ev\":\"message\",\"data\":2,\"seq\":2}\n";
        let mut events = EventReader::new(lines);
        assert_eq!(events.receive().await.unwrap().unwrap().number(), Some(1));
        assert_eq!(events.receive_buffered().unwrap().number(), Some(2));
        assert!(events.receive().await.unwrap().is_none());
    }
}
