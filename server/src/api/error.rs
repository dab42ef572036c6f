//! Errors on the wire, in the shapes that clients of the seeds' server know.

use crate::error::Error;
use axum::Json;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Why a request fails.
#[derive(Debug)]
pub(super) enum ApiError {
    /// Of the route itself.
    Own(StatusCode, String),
    /// The body is not what the route takes.
    Body(String),
    /// A part of the path or of the query is not what the route takes.
    Parameter(String),
    /// There is no such route.
    NoRoute {
        /// The method of the request.
        method: Method,
        /// Its path.
        path: String,
    },
}

impl ApiError {
    pub(super) fn own(status: StatusCode, text: impl Into<String>) -> Self {
        ApiError::Own(status, text.into())
    }

    pub(super) fn bad_request(text: impl Into<String>) -> Self {
        ApiError::own(StatusCode::BAD_REQUEST, text)
    }

    pub(super) fn not_found(text: impl Into<String>) -> Self {
        ApiError::own(StatusCode::NOT_FOUND, text)
    }

    /// A failure of the server.
    pub(super) fn internal(text: impl Into<String>) -> Self {
        ApiError::own(StatusCode::INTERNAL_SERVER_ERROR, text)
    }

    fn into_parts(self) -> (StatusCode, Value) {
        match self {
            ApiError::Own(status, text) => (status, json!({ "error": text, "statusCode": status.as_u16() })),
            ApiError::Body(text) => {
                let body = json!({ "error": "Bad Request", "statusCode": 400, "message": text });
                (StatusCode::BAD_REQUEST, body)
            }
            ApiError::Parameter(text) => {
                let body = json!({ "statusCode": 400, "code": "FST_ERR_VALIDATION", "error": "Bad Request", "message": text });
                (StatusCode::BAD_REQUEST, body)
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
        (status, Json(body)).into_response()
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        // What is wrong with the database is for its operator.
        tracing::error!("{error}");
        ApiError::internal("Internal Server Error")
    }
}
