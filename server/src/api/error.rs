//! Error responses, in the shapes that clients of Ash expect.

use crate::error::{DatabaseFailure, Error};
use axum::Json;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// When a client may repeat a request that the server could not serve, in seconds.
const RETRY_SECONDS: HeaderValue = HeaderValue::from_static("5");

/// A failed request.
#[derive(Debug)]
pub(super) enum ApiError {
    /// A status and text that the route chooses.
    Status(StatusCode, String),
    /// A status and text, for routes of which Ash sends no `statusCode`.
    WithoutCode(StatusCode, String),
    /// 400: the body is invalid.
    Body(String),
    /// 400: a path or query parameter is invalid.
    Parameter(String),
    /// 429: the client has sent too many requests.
    TooManyRequests(String),
    /// 404: no route has this method and path.
    NoRoute { method: Method, path: String },
}

impl ApiError {
    pub(super) fn with_status(status: StatusCode, text: impl Into<String>) -> Self {
        ApiError::Status(status, text.into())
    }

    pub(super) fn bad_request(text: impl Into<String>) -> Self {
        ApiError::with_status(StatusCode::BAD_REQUEST, text)
    }

    pub(super) fn not_found(text: impl Into<String>) -> Self {
        ApiError::with_status(StatusCode::NOT_FOUND, text)
    }

    /// 500: the server failed.
    pub(super) fn internal(text: impl Into<String>) -> Self {
        ApiError::with_status(StatusCode::INTERNAL_SERVER_ERROR, text)
    }

    /// Whether the same request can succeed later.
    pub(super) fn is_temporary(&self) -> bool {
        matches!(self, ApiError::Status(StatusCode::SERVICE_UNAVAILABLE, _))
    }

    /// The text that names the error.
    pub(super) fn into_text(self) -> String {
        let body = self.into_parts().1;
        let text = body["message"].as_str().or_else(|| body["error"].as_str());
        text.unwrap_or_default().to_owned()
    }

    fn into_parts(self) -> (StatusCode, Value) {
        match self {
            ApiError::Status(status, text) => {
                (status, json!({ "error": text, "statusCode": status.as_u16() }))
            }
            ApiError::WithoutCode(status, text) => (status, json!({ "error": text })),
            ApiError::Body(text) => {
                let body = json!({ "error": "Bad Request", "statusCode": 400, "message": text });
                (StatusCode::BAD_REQUEST, body)
            }
            ApiError::Parameter(text) => {
                let body = json!({ "statusCode": 400, "code": "FST_ERR_VALIDATION", "error": "Bad Request", "message": text });
                (StatusCode::BAD_REQUEST, body)
            }
            ApiError::TooManyRequests(text) => {
                let body = json!({ "statusCode": 429, "error": "Too Many Requests", "message": text });
                (StatusCode::TOO_MANY_REQUESTS, body)
            }
            ApiError::NoRoute { method, path } => {
                let text = format!("Route {method}:{path} not found");
                (StatusCode::NOT_FOUND, json!({ "message": text, "error": "Not Found", "statusCode": 404 }))
            }
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, body) = self.into_parts();
        let mut response = (status, Json(body)).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, RETRY_SECONDS);
        }
        response
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        // Database errors can contain details of the host, so they are logged and not sent.
        tracing::error!("{error}");
        match error.database_failure() {
            Some(DatabaseFailure::Unavailable) => ApiError::with_status(
                StatusCode::SERVICE_UNAVAILABLE,
                "The database is unavailable; try again later",
            ),
            Some(DatabaseFailure::NulCharacter) => {
                ApiError::bad_request("A value contains the character NUL, which the database cannot store")
            }
            None => ApiError::internal("Internal Server Error"),
        }
    }
}
