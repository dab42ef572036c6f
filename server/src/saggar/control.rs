//! A client of control sockets (saggar-control(7)).

use super::CommandError;
use saggar_bridge::control::client::ControlClient;
use serde_json::Value;
use std::path::PathBuf;

/// Calls a method and returns its result. The call blocks a thread of the blocking pool.
///
/// # Errors
/// Fails if the connection cannot be established or the method returns an error.
pub async fn call_control(
    socket: PathBuf,
    method: &'static str,
    params: Value,
) -> Result<Value, CommandError> {
    let call = move || ControlClient::connect(&socket)?.call(method, &params);
    match tokio::task::spawn_blocking(call).await {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(error)) => Err(CommandError::new(error.to_string())),
        Err(_) => Err(CommandError::new("the control call was aborted")),
    }
}
