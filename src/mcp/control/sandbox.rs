//! The control socket of a session (saggar-control(7)), for one call.

use crate::control::client::take_result;
use crate::error::{Code, Error, Result};
use serde_json::{Value, json};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// The id of the call; `hello` had another one.
const CALL_ID: &str = "call";

/// A connection on which `hello` was called. A command ends with it.
#[derive(Debug)]
pub(super) struct SandboxConnection(BufReader<UnixStream>);

impl SandboxConnection {
    /// # Errors
    /// [`Code::System`].
    pub(super) fn new(socket: OwnedFd) -> Result<Self> {
        let stream = std::os::unix::net::UnixStream::from(socket);
        stream.set_nonblocking(true).map_err(fail)?;
        UnixStream::from_std(stream).map(|stream| SandboxConnection(BufReader::new(stream))).map_err(fail)
    }

    /// Makes the call, and returns its result.
    ///
    /// # Errors
    /// As [`take_result`]; [`Code::State`] if the sandbox ends meanwhile; [`Code::System`] after `patience`.
    pub(super) async fn call(mut self, method: &str, params: &Value, patience: Duration) -> Result<Value> {
        let result = timeout(patience, self.exchange(method, params)).await;
        result.map_err(|_| Error::system(format_args!("call {method}"), "there is no response"))?
    }

    async fn exchange(&mut self, method: &str, params: &Value) -> Result<Value> {
        let call = json!({ "jsonrpc": "2.0", "id": CALL_ID, "method": method, "params": params });
        self.0.get_mut().write_all(format!("{call}\n").as_bytes()).await.map_err(fail)?;
        loop {
            let mut line = Vec::new();
            if self.0.read_until(b'\n', &mut line).await.map_err(fail)? == 0 {
                return Err(Error::new(Code::State, "the sandbox ended during the call"));
            }
            let mut response: Value = serde_json::from_slice(&line).map_err(|e| fail(e.into()))?;
            if response["id"] == CALL_ID {
                return take_result(&mut response);
            }
        }
    }
}

fn fail(error: io::Error) -> Error {
    Error::system("call the sandbox", error)
}
