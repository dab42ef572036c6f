//! Rejection of a request before its route has read the body.

use super::error::ApiError;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use axum::response::{IntoResponse, Response};
use std::time::Duration;
use tokio::time::timeout;

/// Of a rejected request, the server reads a body of up to this many bytes.
const DRAIN_LIMIT: usize = 64 << 10;
/// How long it waits for that body.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads the body before the response: otherwise the connection closes without notice, and a client that reuses it
/// fails.
pub(super) async fn reject(request: Request, error: ApiError) -> Response {
    let drained = timeout(DRAIN_TIMEOUT, to_bytes(request.into_body(), DRAIN_LIMIT)).await;
    let mut response = error.into_response();
    if !matches!(drained, Ok(Ok(_))) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
