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
        let status = response.status();
        if status.is_client_error() || status.is_server_error() {
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

#[cfg(test)]
mod tests {
    use super::super::extract::JsonBody;
    use super::*;
    use axum::Router;
    use axum::http::header::CONTENT_LENGTH;
    use axum::middleware::from_fn;
    use futures_util::stream;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use std::convert::Infallible;

    /// The response to a request of which the body never arrives, by a clock that runs when nothing else does.
    async fn response_without_body(declared_size: Option<u64>) -> Response {
        let read_body = async |_: JsonBody<serde_json::Value>| "received";
        let routes = Router::new().fallback(read_body).layer(from_fn(read_small_body));
        let body = match declared_size {
            Some(size) => Body::new(NeverArrives { size }),
            None => Body::from_stream(stream::pending::<Result<Vec<u8>, Infallible>>()),
        };
        let mut request = Request::post("/").body(body).unwrap();
        if let Some(size) = declared_size {
            request.headers_mut().insert(CONTENT_LENGTH, size.into());
        }
        TowerToHyperService::new(routes).call(request).await.unwrap()
    }

    /// A body of a known size that never arrives.
    struct NeverArrives {
        size: u64,
    }

    impl HttpBody for NeverArrives {
        type Data = axum::body::Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<hyper::body::Frame<Self::Data>, Infallible>>> {
            std::task::Poll::Pending
        }

        fn size_hint(&self) -> hyper::body::SizeHint {
            hyper::body::SizeHint::with_exact(self.size)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn body_that_does_not_arrive_is_refused() {
        for declared_size in [Some(1), Some(DRAIN_LIMIT as u64), Some(1 << 20), None] {
            let response = response_without_body(declared_size).await;
            assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT, "{declared_size:?}");
        }
    }

    #[tokio::test]
    async fn connection_is_closed_with_notice_after_any_refusal() {
        for status in
            [StatusCode::BAD_REQUEST, StatusCode::INTERNAL_SERVER_ERROR, StatusCode::NOT_IMPLEMENTED]
        {
            let refuse = async move || status;
            let routes = Router::new().fallback(refuse).layer(from_fn(read_small_body));
            let body = Body::from_stream(stream::pending::<Result<Vec<u8>, Infallible>>());
            let request = Request::post("/").body(body).unwrap();
            let response = TowerToHyperService::new(routes).call(request).await.unwrap();
            assert_eq!(response.headers()[CONNECTION], HeaderValue::from_static("close"), "{status}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn rejected_request_does_not_wait_for_its_body() {
        let request = Request::new(Body::from_stream(stream::pending::<Result<Vec<u8>, Infallible>>()));
        let response = reject(request, ApiError::not_found("none")).await;
        assert_eq!(
            (response.status(), &response.headers()[CONNECTION]),
            (StatusCode::NOT_FOUND, &HeaderValue::from_static("close"))
        );
    }
}
