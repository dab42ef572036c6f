//! Calls on a control socket (saggar-control(7)).

use super::Failure;
use saggar_bridge::control::client::ControlClient;
use serde_json::Value;
use std::path::PathBuf;

/// Calls one method and returns its result. It has a thread of its own meanwhile: calls are short and rare.
///
/// # Errors
/// The socket is gone, or the method fails.
pub async fn call_control(socket: PathBuf, method: &'static str, params: Value) -> Result<Value, Failure> {
    let call = move || ControlClient::connect(&socket)?.call(method, &params);
    match tokio::task::spawn_blocking(call).await {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(error)) => Err(Failure(error.to_string())),
        Err(_) => Err(Failure("the call was given up".into())),
    }
}
