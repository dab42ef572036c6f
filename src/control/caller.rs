//! The other end of the control socket: one call at a time, for the commands of saggar itself.

use super::clients::VERSION;
use crate::error::{Code, Error, Result};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection.
#[derive(Debug)]
pub struct Caller {
    stream: BufReader<UnixStream>,
    next: u64,
}

impl Caller {
    /// Connects and greets.
    ///
    /// # Errors
    /// [`Code::System`] when nobody listens, or somebody else does.
    pub fn connect(socket: &Path) -> Result<Self> {
        Caller::connect_for(socket, PATIENCE)
    }

    /// The same, for who waits no longer than this for an answer.
    ///
    /// # Errors
    /// As [`Caller::connect`].
    pub fn connect_for(socket: &Path, patience: Duration) -> Result<Self> {
        let fail = |e| Error::system(format_args!("connect to the control socket {}", socket.display()), e);
        let stream = UnixStream::connect(socket).map_err(fail)?;
        stream.set_read_timeout(Some(patience)).map_err(fail)?;
        stream.set_write_timeout(Some(patience)).map_err(fail)?;
        let mut caller = Caller { stream: BufReader::new(stream), next: 0 };
        caller.call("hello", &json!({ "version": VERSION }))?;
        Ok(caller)
    }

    /// Calls a method; its result.
    ///
    /// # Errors
    /// [`Code::State`] and [`Code::Unsupported`] as the failure says, [`Code::System`] for every other.
    pub fn call(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.next += 1;
        let call = json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params });
        let fail = |e| Error::system(format_args!("call {method} on the control socket"), e);
        self.stream.get_mut().write_all(format!("{call}\n").as_bytes()).map_err(fail)?;
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line).map_err(fail)? == 0 {
                return Err(fail(std::io::ErrorKind::UnexpectedEof.into()));
            }
            let mut answer: Value = serde_json::from_str(&line).map_err(|e| fail(e.into()))?;
            if answer["id"] != self.next {
                continue;
            }
            let error = &answer["error"];
            if error.is_null() {
                return Ok(answer["result"].take());
            }
            let code = match error["data"]["name"].as_str() {
                Some("state") => Code::State,
                Some("unsupported") => Code::Unsupported,
                _ => Code::System,
            };
            return Err(Error::new(code, error["message"].as_str().unwrap_or_default()));
        }
    }
}
