//! Error responses, in the shapes that clients of Ash expect.

use crate::error::{DatabaseFailure, Error};
use axum::Json;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

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
        body.message.unwrap_or(body.error)
    }

    fn into_parts(self) -> (StatusCode, ErrorBody) {
        match self {
            ApiError::Status(status, text) => (status, ErrorBody::new(status, text)),
            ApiError::WithoutCode(status, text) => {
                (status, ErrorBody { status_code: None, ..ErrorBody::new(status, text) })
            }
            ApiError::Body(text) => ErrorBody::with_message(StatusCode::BAD_REQUEST, text),
            ApiError::Parameter(text) => {
                let (status, body) = ErrorBody::with_message(StatusCode::BAD_REQUEST, text);
                (status, ErrorBody { code: Some("FST_ERR_VALIDATION"), ..body })
            }
            ApiError::TooManyRequests(text) => ErrorBody::with_message(StatusCode::TOO_MANY_REQUESTS, text),
            ApiError::NoRoute { method, path } => {
                let text = format!("Route {method}:{path} not found");
                ErrorBody::with_message(StatusCode::NOT_FOUND, text)
            }
        }
    }
}

/// The body of an error response.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Error)]
#[serde(rename_all = "camelCase")]
pub(super) struct ErrorBody {
    /// What failed; the name of the status if there is a message.
    error: String,
    /// The status of the response. It is absent for API keys and internal routes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 400, maximum = 599)]
    status_code: Option<u16>,
    /// `FST_ERR_VALIDATION` if a parameter is invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    code: Option<&'static str>,
    /// What is invalid in the request, or when it may be repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    message: Option<String>,
}

impl ErrorBody {
    fn new(status: StatusCode, error: String) -> Self {
        ErrorBody { error, status_code: Some(status.as_u16()), code: None, message: None }
    }

    fn with_message(status: StatusCode, text: String) -> (StatusCode, Self) {
        let name = status.canonical_reason().unwrap_or_default();
        (status, ErrorBody { message: Some(text), ..ErrorBody::new(status, name.to_owned()) })
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
