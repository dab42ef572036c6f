//! The lines of a conversation ("stdio" in the transports of the Model Context Protocol), each of which has an answer.
//!
//! The transport of the SDK ignores a line that it cannot read, so that the client waits for an answer to its call. Such a
//! line need not be nonsense: `JSON.stringify` of JavaScript writes half of a character of two code units as `\ud83d`.

use rmcp::RoleServer;
use rmcp::model::{ErrorCode, ErrorData, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

/// Longest line of a client, in bytes: content of 16 MiB, every byte of it escaped. A longer one is skipped.
const MAX_LINE: usize = 128 << 20;

/// A conversation over a pair of streams.
pub(super) struct LineTransport<R, W> {
    input: BufReader<R>,
    /// What was read of the current line. It stays when a read is cancelled.
    line: Vec<u8>,
    /// The line is too long.
    is_skipped: bool,
    output: Arc<Mutex<Option<W>>>,
    /// Writes the answer to the last line that is no message. The next line is read when it is done, so that answers do
    /// not accumulate for a client that does not read them.
    answering: Option<JoinHandle<io::Result<()>>>,
}

/// A whole line.
enum ReadLine {
    Line,
    TooLong,
    End,
}

/// The answer to a line that is no message.
#[derive(Debug)]
struct LineError {
    error: ErrorData,
    /// The id of the message, if it has one.
    id: Option<RequestId>,
}

/// What tells of a message whether it wants an answer.
#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    id: Option<RequestId>,
    #[serde(default)]
    method: Option<IgnoredAny>,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> LineTransport<R, W> {
    pub(super) fn new(input: R, output: W) -> Self {
        LineTransport {
            input: BufReader::new(input),
            line: Vec::new(),
            is_skipped: false,
            output: Arc::new(Mutex::new(Some(output))),
            answering: None,
        }
    }

    /// Reads up to the end of a line. Nothing is lost if the future is dropped: between the wait for bytes and their copy
    /// is no other wait.
    async fn read_line(&mut self) -> io::Result<ReadLine> {
        loop {
            let bytes = self.input.fill_buf().await?;
            if bytes.is_empty() {
                return Ok(ReadLine::End);
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let count = end.map_or(bytes.len(), |end| end + 1);
            self.is_skipped |= self.line.len().saturating_add(count) > MAX_LINE;
            if self.is_skipped {
                self.line = Vec::new();
            } else {
                self.line.extend_from_slice(bytes.get(..count).unwrap_or_default());
            }
            self.input.consume(count);
            if end.is_some() {
                let is_skipped = std::mem::take(&mut self.is_skipped);
                return Ok(if is_skipped { ReadLine::TooLong } else { ReadLine::Line });
            }
        }
    }
}

/// The message of a line, or the error that answers it.
fn parse(line: &[u8]) -> Result<RxJsonRpcMessage<RoleServer>, Option<LineError>> {
    let error = match serde_json::from_slice(line) {
        Ok(message) => return Ok(message),
        Err(error) => error,
    };
    // Ignored strings may have any escapes and bytes. A list would be taken for the fields in order.
    let envelope = line.starts_with(b"{").then(|| serde_json::from_slice(line));
    Err(match envelope {
        Some(Ok(Envelope { id: Some(id), method: Some(_) })) => {
            let code = if error.is_data() { ErrorCode::INVALID_REQUEST } else { ErrorCode::PARSE_ERROR };
            Some(LineError::new(code, format!("the message cannot be read: {error}"), Some(id)))
        }
        // A notification, or a response to nothing that was asked: neither has an answer.
        Some(Ok(Envelope { .. })) => None,
        Some(Err(_)) | None => {
            let message = format!("the line is no JSON object: {error}");
            Some(LineError::new(ErrorCode::PARSE_ERROR, message, None))
        }
    })
}

impl LineError {
    fn new(code: ErrorCode, message: String, id: Option<RequestId>) -> Self {
        LineError { error: ErrorData::new(code, message, None), id }
    }

    fn into_response(self) -> TxJsonRpcMessage<RoleServer> {
        TxJsonRpcMessage::<RoleServer>::error(self.error, self.id)
    }
}

async fn write_message<W: AsyncWrite + Unpin>(
    output: Arc<Mutex<Option<W>>>,
    message: TxJsonRpcMessage<RoleServer>,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(&message)?;
    drop(message);
    line.push(b'\n');
    let mut output = output.lock().await;
    let output = output.as_mut().ok_or(io::ErrorKind::NotConnected)?;
    output.write_all(&line).await?;
    output.flush().await
}

impl<R, W> Transport<RoleServer> for LineTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        write_message(Arc::clone(&self.output), message)
    }

    /// Answers go out by a task of their own, since this future may be dropped while it waits.
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(answering) = &mut self.answering {
                let _ = answering.await;
                self.answering = None;
            }
            let answer = match self.read_line().await {
                Ok(ReadLine::Line) => {
                    let line = std::mem::take(&mut self.line);
                    match line.trim_ascii() {
                        b"" => None,
                        line => match parse(line) {
                            Ok(message) => return Some(message),
                            Err(answer) => answer,
                        },
                    }
                }
                Ok(ReadLine::TooLong) => {
                    let message = format!("the line has more than {} MiB", MAX_LINE >> 20);
                    Some(LineError::new(ErrorCode::PARSE_ERROR, message, None))
                }
                Ok(ReadLine::End) | Err(_) => return None,
            };
            if let Some(answer) = answer {
                let written = write_message(Arc::clone(&self.output), answer.into_response());
                self.answering = Some(tokio::spawn(written));
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        drop(self.output.lock().await.take());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn answer(line: &[u8]) -> Value {
        let answer = parse(line).expect_err("it is no message").expect("an answer");
        serde_json::to_value(answer.into_response()).unwrap()
    }

    #[test]
    fn a_call_that_cannot_be_read_is_answered_by_its_id() {
        let half = br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x","arguments":{"a":"\ud83d"}}}"#;
        let not_utf8 =
            [&b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\",\"params\":{\"a\":\""[..], b"\xff\"}}"]
                .concat();
        let nested = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\",\"params\":{}{}}}",
            "[".repeat(300),
            "]".repeat(300)
        );
        for line in [&half[..], &not_utf8, nested.as_bytes()] {
            let answer = answer(line);
            assert_eq!((&answer["id"], &answer["error"]["code"]), (&7.into(), &(-32700).into()), "{answer}");
        }
    }

    #[test]
    fn what_is_no_json_object_is_answered_without_an_id() {
        for line in [&b"{"[..], b"nonsense", b"[1]", b"\xff\xfe"] {
            let answer = answer(line);
            assert!(answer["id"].is_null() && answer["error"]["code"] == -32700, "{answer}");
        }
    }

    #[test]
    fn nothing_is_answered_to_notifications_and_responses() {
        for line in [
            &br#"{"jsonrpc":"2.0","method":"notifications/x","params":"\ud83d"}"#[..],
            br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"\ud83d"}}"#,
        ] {
            assert!(matches!(parse(line), Ok(_) | Err(None)));
        }
    }
}
