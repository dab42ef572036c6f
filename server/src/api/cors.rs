//! Cross-origin requests of web pages. Without allowed origins, the server sends no CORS header, and browsers keep
//! pages of other origins from its responses.

use super::App;
use axum::extract::{Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PATCH, DELETE");
const REQUEST_HEADERS: HeaderValue =
    HeaderValue::from_static("authorization, content-type, idempotency-key, last-event-id");
const RESPONSE_HEADERS: HeaderValue = HeaderValue::from_static(
    "content-disposition, retry-after, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset",
);
/// How long a browser may keep the answer to a preflight request, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// Answers preflight requests of allowed origins, which have no API key, and lets these origins read all responses.
pub(super) async fn allow_origins(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if app.allowed_origins.is_empty() {
        return next.run(request).await;
    }
    let origin = request.headers().get(ORIGIN).cloned();
    let is_allowed = |origin: &HeaderValue| {
        app.allowed_origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes())
    };
    let origin = origin.filter(is_allowed);
    let is_preflight =
        request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match origin.is_some() && is_preflight {
        false => next.run(request).await,
        true => {
            let headers = [
                (ACCESS_CONTROL_ALLOW_METHODS, METHODS),
                (ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS),
                (ACCESS_CONTROL_MAX_AGE, MAX_AGE),
            ];
            (StatusCode::NO_CONTENT, headers).into_response()
        }
    };
    let headers = response.headers_mut();
    // A cache must not give the response for one origin to another.
    headers.append(VARY, HeaderValue::from_static("origin"));
    if let Some(origin) = origin {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, RESPONSE_HEADERS);
    }
    response
}
