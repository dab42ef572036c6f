//! Requests that are rejected before their route has read the body: the connection then closes without notice, and a
//! client that reuses it fails.

use super::error::ApiError;
use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::Request;
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::time::Duration;
use tokio::time::timeout;

/// Of a rejected request, the server reads a body of up to this many bytes.
const DRAIN_LIMIT: usize = 64 << 10;
/// How long it waits for that body.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// How long it waits for a body of at most [`DRAIN_LIMIT`] bytes that its route needs.
const SMALL_BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads the body before the response.
pub(super) async fn reject(request: Request, error: ApiError) -> Response {
    let drained = timeout(DRAIN_TIMEOUT, to_bytes(request.into_body(), DRAIN_LIMIT)).await;
    let mut response = error.into_response();
    if !matches!(drained, Ok(Ok(_))) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Reads a small body before the route is chosen. If a request with a longer one fails, the connection is closed with
/// notice.
///
/// # Errors
/// 408 if a small body does not arrive in time.
pub(super) async fn read_small_body(request: Request, next: Next) -> Result<Response, ApiError> {
    if request.body().is_end_stream() {
        return Ok(next.run(request).await);
    }
    if request.body().size_hint().upper().is_none_or(|size| size > DRAIN_LIMIT as u64) {
        let mut response = next.run(request).await;
        if response.status().is_client_error() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        return Ok(response);
    }
    let (parts, body) = request.into_parts();
    let late = || ApiError::with_status(StatusCode::REQUEST_TIMEOUT, "The body did not arrive in time");
    let read = timeout(SMALL_BODY_TIMEOUT, to_bytes(body, DRAIN_LIMIT)).await.map_err(|_| late())?;
    let bytes = read.map_err(|error| ApiError::Body(format!("body: {error}")))?;
    Ok(next.run(Request::from_parts(parts, Body::from(bytes))).await)
}
