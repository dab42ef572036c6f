//! A client of control sockets (saggar-control(7)).

use super::{SessionSocket, SocketReader, SocketWriter};
use saggar_bridge::control::client::take_result;
use saggar_bridge::control::server::PROTOCOL_VERSION;
use saggar_sys::error::{Code, Error, Result};
use serde_json::{Value, json};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::time::timeout;

/// Maximum wait for the response to a call that does not wait for programs in the sandbox.
pub const CONTROL_TIMEOUT: Duration = Duration::from_secs(30);

/// Calls a method on a new connection. Dropping the future closes the connection, which ends an attached `exec`.
///
/// # Errors
/// Fails if the connection or the call fails, or there is no response after `max_wait`. [`Code::Unsupported`] and
/// [`Code::State`] are those of saggar-control(7).
pub async fn call_control(
    socket: &SessionSocket,
    method: &str,
    params: &Value,
    max_wait: Duration,
) -> Result<Value> {
    let call = async {
        let connection = socket.connect().await.map_err(|error| failed(method, error))?;
        call(connection, method, params).await
    };
    timeout(max_wait, call).await.unwrap_or_else(|_| Err(no_response(method, max_wait)))
}

/// The same on a connection that has not been used.
///
/// # Errors
/// As [`call_control`].
pub async fn call_connected(
    connection: (SocketReader, SocketWriter),
    method: &str,
    params: &Value,
    max_wait: Duration,
) -> Result<Value> {
    let call = call(connection, method, params);
    timeout(max_wait, call).await.unwrap_or_else(|_| Err(no_response(method, max_wait)))
}

fn failed(method: &str, error: io::Error) -> Error {
    Error::system(format_args!("call {method} on the control socket"), error)
}

fn no_response(method: &str, max_wait: Duration) -> Error {
    Error::new(Code::System, format!("no response to {method} within {max_wait:?}"))
}

async fn call(
    (reader, mut writer): (SocketReader, SocketWriter),
    method: &str,
    params: &Value,
) -> Result<Value> {
    let failed = |error| failed(method, error);
    let mut reader = BufReader::new(reader);
    let calls = [("hello", &json!({ "version": PROTOCOL_VERSION })), (method, params)];
    for (id, (method, params)) in calls.into_iter().enumerate() {
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writer.write_all(format!("{call}\n").as_bytes()).await.map_err(failed)?;
    }
    writer.flush().await.map_err(failed)?;
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line).await.map_err(failed)? == 0 {
            return Err(failed(io::ErrorKind::UnexpectedEof.into()));
        }
        let mut response: Value = serde_json::from_str(&line).map_err(|error| failed(error.into()))?;
        let result = take_result(&mut response);
        // The response to `hello` comes first, and matters only if it is an error.
        if response["id"] != 0 || result.is_err() {
            return result;
        }
    }
}
