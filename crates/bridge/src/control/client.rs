//! A client of the control socket, for the commands of saggar itself. It makes one call at a time.

use super::server::PROTOCOL_VERSION;
use saggar_sys::error::{Code, Error, Result};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long [`ControlClient::connect`] waits for each response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to a control socket, after `hello`.
#[derive(Debug)]
pub struct ControlClient {
    stream: BufReader<UnixStream>,
    next_id: u64,
}

impl ControlClient {
    /// Connects and sends `hello`.
    ///
    /// # Errors
    /// [`Code::System`] when no sandbox listens on the socket, or the listener does not speak the control protocol.
    pub fn connect(socket: &Path) -> Result<Self> {
        ControlClient::connect_with_timeout(socket, RESPONSE_TIMEOUT)
    }

    /// Like [`ControlClient::connect`], with `max_wait` as the timeout of each response.
    ///
    /// # Errors
    /// As [`ControlClient::connect`].
    pub fn connect_with_timeout(socket: &Path, max_wait: Duration) -> Result<Self> {
        ControlClient::greet(socket, max_wait, &json!({ "version": PROTOCOL_VERSION }))
    }

    /// Like [`ControlClient::connect`], for a connection that is limited to these methods, also for another process that
    /// gets it.
    ///
    /// # Errors
    /// As [`ControlClient::connect`].
    pub fn connect_limited(socket: &Path, methods: &[&str]) -> Result<Self> {
        let hello = json!({ "version": PROTOCOL_VERSION, "methods": methods });
        ControlClient::greet(socket, RESPONSE_TIMEOUT, &hello)
    }

    fn greet(socket: &Path, max_wait: Duration, hello: &Value) -> Result<Self> {
        let fail = |e| Error::system(format_args!("connect to the control socket {}", socket.display()), e);
        let stream = UnixStream::connect(socket).map_err(fail)?;
        stream.set_read_timeout(Some(max_wait)).map_err(fail)?;
        stream.set_write_timeout(Some(max_wait)).map_err(fail)?;
        let mut caller = ControlClient { stream: BufReader::new(stream), next_id: 0 };
        caller.call("hello", hello)?;
        Ok(caller)
    }

    /// Calls a method and returns its result.
    ///
    /// # Errors
    /// [`Code::State`] and [`Code::Unsupported`] for RPC errors of these names, [`Code::System`] for every other error.
    pub fn call(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.next_id += 1;
        let call = json!({ "jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params });
        let fail = |e| Error::system(format_args!("call {method} on the control socket"), e);
        self.stream.get_mut().write_all(format!("{call}\n").as_bytes()).map_err(fail)?;
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line).map_err(fail)? == 0 {
                return Err(fail(std::io::ErrorKind::UnexpectedEof.into()));
            }
            let mut answer: Value = serde_json::from_str(&line).map_err(|e| fail(e.into()))?;
            if answer["id"] != self.next_id {
                continue;
            }
            return take_result(&mut answer);
        }
    }

    /// The connection, for calls that another process makes. There are no unread bytes: every call was answered.
    pub fn into_stream(self) -> UnixStream {
        self.stream.into_inner()
    }
}

/// The result in a response.
///
/// # Errors
/// [`Code::State`], [`Code::Unsupported`] and [`Code::Invalid`] for RPC errors of these kinds, [`Code::System`] for every
/// other error.
pub fn take_result(response: &mut Value) -> Result<Value> {
    let error = &response["error"];
    if error.is_null() {
        return Ok(response["result"].take());
    }
    let code = match error["data"]["name"].as_str() {
        Some("state") => Code::State,
        Some("unsupported") => Code::Unsupported,
        Some("params") => Code::Invalid,
        _ => Code::System,
    };
    Err(Error::new(code, error["message"].as_str().unwrap_or_default()))
}
