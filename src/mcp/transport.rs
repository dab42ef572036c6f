//! The lines of a conversation ("stdio" in the transports of the Model Context Protocol), each of which has an answer.
//!
//! The transport of the SDK ignores a line that it cannot read, so that the client waits for an answer to its call. Such a
//! line need not be nonsense: `JSON.stringify` of JavaScript writes half of a character of two code units as `\ud83d`.

use super::turns::{CallTurn, ConversationTurn, await_client};
use rmcp::RoleServer;
use rmcp::model::{ClientRequest, ErrorCode, ErrorData, JsonRpcMessage, RequestId};
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
    /// For conversations that take turns.
    turn: Option<ConversationTurn>,
    /// A call that waits for its turn.
    waiting_call: Option<RxJsonRpcMessage<RoleServer>>,
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
    /// A conversation that takes turns with others, if `turn` is given.
    pub(super) fn new(input: R, output: W, turn: Option<ConversationTurn>) -> Self {
        LineTransport {
            input: BufReader::new(input),
            line: Vec::new(),
            is_skipped: false,
            turn,
            waiting_call: None,
            output: Arc::new(Mutex::new(Some(output))),
            answering: None,
        }
    }

    /// The message of the line that was read.
    fn take_message(&mut self) -> Result<RxJsonRpcMessage<RoleServer>, Option<LineError>> {
        let line = std::mem::take(&mut self.line);
        match line.trim_ascii() {
            b"" => Err(None),
            line => parse(line),
        }
    }

    fn pass_turn_on(&mut self, is_call: bool) {
        if let Some(turn) = &mut self.turn {
            turn.pass_on(is_call);
        }
    }

    /// Reads up to the end of a line. Nothing is lost if the future is dropped: the bytes are consumed when they are
    /// copied.
    async fn read_line(&mut self) -> io::Result<ReadLine> {
        loop {
            let has_turn = self.turn.as_ref().is_some_and(ConversationTurn::is_held);
            let bytes = await_client(has_turn, self.input.fill_buf()).await?;
            if bytes.is_empty() {
                return Ok(ReadLine::End);
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let count = end.map_or(bytes.len(), |end| end + 1);
            let length = self.line.len().saturating_add(count);
            self.is_skipped |= length > MAX_LINE;
            match &mut self.turn {
                Some(turn) if self.is_skipped => turn.pass_on(false),
                Some(turn) => turn.take_for(length).await,
                None => {}
            }
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

/// Whether a message is the call of a tool, which always has a response.
fn is_call(message: &RxJsonRpcMessage<RoleServer>) -> bool {
    matches!(message, JsonRpcMessage::Request(call) if matches!(call.request, ClientRequest::CallToolRequest(_)))
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

/// Writes a message, which ends the turn of `call` if it is a response, whether it can be written or not.
async fn write_message<W: AsyncWrite + Unpin>(
    output: Arc<Mutex<Option<W>>>,
    message: TxJsonRpcMessage<RoleServer>,
    call: Option<CallTurn>,
) -> io::Result<()> {
    let is_response = matches!(message, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_));
    let written = write_line(&output, message, call.is_some()).await;
    if let Some(call) = call.filter(|_| is_response) {
        call.end();
    }
    written
}

/// Writes a line. One that cannot be written whole is the last of its conversation, and so is one of which a client that has
/// the turn reads nothing.
async fn write_line<W: AsyncWrite + Unpin>(
    output: &Mutex<Option<W>>,
    message: TxJsonRpcMessage<RoleServer>,
    has_turn: bool,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(&message)?;
    drop(message);
    line.push(b'\n');
    let mut place = output.lock().await;
    let output = place.as_mut().ok_or(io::ErrorKind::NotConnected)?;
    let written = write_whole(output, &line, has_turn).await;
    if written.is_err() {
        *place = None;
    }
    written
}

async fn write_whole<W: AsyncWrite + Unpin>(
    output: &mut W,
    mut line: &[u8],
    has_turn: bool,
) -> io::Result<()> {
    while !line.is_empty() {
        let count = await_client(has_turn, output.write(line)).await?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        line = line.get(count..).unwrap_or_default();
    }
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
        let call = self.turn.as_ref().map(ConversationTurn::call);
        write_message(Arc::clone(&self.output), message, call)
    }

    /// Answers go out by a task of their own, since this future may be dropped while it waits.
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(answering) = &mut self.answering {
                let _ = answering.await;
                self.answering = None;
            }
            if self.output.try_lock().is_ok_and(|place| place.is_none()) {
                return None;
            }
            if self.waiting_call.is_some() {
                if let Some(turn) = &mut self.turn {
                    turn.take().await;
                }
                self.pass_turn_on(true);
                return self.waiting_call.take();
            }
            let answer = match self.read_line().await {
                Ok(ReadLine::Line) => match self.take_message() {
                    Ok(call) if is_call(&call) => {
                        self.waiting_call = Some(call);
                        continue;
                    }
                    other => {
                        self.pass_turn_on(false);
                        match other {
                            Ok(message) => return Some(message),
                            Err(answer) => answer,
                        }
                    }
                },
                Ok(ReadLine::TooLong) => {
                    let message = format!("the line has more than {} MiB", MAX_LINE >> 20);
                    Some(LineError::new(ErrorCode::PARSE_ERROR, message, None))
                }
                Ok(ReadLine::End) | Err(_) => return None,
            };
            if let Some(answer) = answer {
                let written = write_message(Arc::clone(&self.output), answer.into_response(), None);
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
    use super::super::turns::{PATIENCE, Turns};
    use super::*;
    use serde_json::Value;
    use std::time::Duration;
    use tokio::io::{DuplexStream, ReadHalf, WriteHalf};
    use tokio::time::{Instant, timeout};

    const CALL: &[u8] =
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"x\"}}\n";

    type TestTransport = LineTransport<ReadHalf<DuplexStream>, WriteHalf<DuplexStream>>;

    /// A conversation that takes turns, and its client, to which little can be written before it reads.
    fn conversation(turns: &Turns) -> (TestTransport, DuplexStream) {
        let (client, server) = tokio::io::duplex(512);
        let (input, output) = tokio::io::split(server);
        (LineTransport::new(input, output, Some(turns.conversation())), client)
    }

    /// Two conversations that take turns, with a clock that advances when all tasks wait for it.
    fn run(test: impl AsyncFnOnce((TestTransport, DuplexStream), (TestTransport, DuplexStream))) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let turns = Turns::new();
        let test = test(conversation(&turns), conversation(&turns));
        runtime.enable_time().start_paused(true).build().unwrap().block_on(test);
    }

    fn response(length: usize) -> TxJsonRpcMessage<RoleServer> {
        let error = ErrorData::internal_error("x".repeat(length), None);
        TxJsonRpcMessage::<RoleServer>::error(error, Some(RequestId::Number(1)))
    }

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

    #[test]
    fn calls_of_two_clients_are_served_one_after_the_other() {
        run(async |(mut first, mut first_client), (mut second, mut second_client)| {
            first_client.write_all(CALL).await.unwrap();
            second_client.write_all(CALL).await.unwrap();
            assert!(first.receive().await.is_some());
            // Nothing of the call that waits is lost when the wait ends early.
            for _ in 0..3 {
                assert!(timeout(Duration::from_secs(1), second.receive()).await.is_err());
            }
            first.send(response(1)).await.unwrap();
            assert!(second.receive().await.is_some());
        });
    }

    #[test]
    fn other_messages_take_no_turn() {
        run(async |(mut first, mut first_client), (mut second, mut second_client)| {
            first_client.write_all(CALL).await.unwrap();
            assert!(first.receive().await.is_some());
            for client in [&mut first_client, &mut second_client] {
                client.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}\n").await.unwrap();
            }
            assert!(first.receive().await.is_some() && second.receive().await.is_some());
        });
    }

    #[test]
    fn a_client_that_does_not_read_loses_its_conversation() {
        run(async |(mut first, mut first_client), (mut second, mut second_client)| {
            first_client.write_all(CALL).await.unwrap();
            second_client.write_all(CALL).await.unwrap();
            assert!(first.receive().await.is_some());
            let began = Instant::now();
            let sending = tokio::spawn(first.send(response(1000)));
            assert!(second.receive().await.is_some());
            assert_eq!(began.elapsed().as_secs(), PATIENCE.as_secs());
            assert_eq!(sending.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
            // It cannot have another turn.
            second.send(response(1)).await.unwrap();
            first_client.write_all(CALL).await.unwrap();
            assert!(first.receive().await.is_none());
            second_client.write_all(CALL).await.unwrap();
            assert!(second.receive().await.is_some());
        });
    }

    #[test]
    fn a_client_that_does_not_end_its_line_loses_its_conversation() {
        run(async |(mut first, mut first_client), (mut second, mut second_client)| {
            let reading = tokio::spawn(async move { first.receive().await.is_none() });
            first_client.write_all(&vec![b'x'; 100 << 10]).await.unwrap();
            second_client.write_all(CALL).await.unwrap();
            let began = Instant::now();
            assert!(second.receive().await.is_some());
            assert_eq!(began.elapsed().as_secs(), PATIENCE.as_secs());
            assert!(reading.await.unwrap());
        });
    }
}
