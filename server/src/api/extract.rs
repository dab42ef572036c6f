//! Parts of a request, with errors that name what is wrong with them.

use super::error::ApiError;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use uuid::Uuid;

/// A body in JSON. Whatever its content type says, it is read as JSON; nothing at all is an empty object, since clients of
/// the seeds' server send that where no field is required.
#[derive(Debug)]
pub(super) struct JsonBody<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = match Bytes::from_request(request, state).await {
            Ok(bytes) => bytes,
            Err(BytesRejection::FailedToBufferBody(rejection)) => {
                let status = rejection.status();
                return Err(match status {
                    StatusCode::PAYLOAD_TOO_LARGE => ApiError::own(status, "Request body is too large"),
                    _ => ApiError::Body(rejection.body_text()),
                });
            }
            Err(rejection) => return Err(ApiError::Body(rejection.body_text())),
        };
        let text = if bytes.trim_ascii().is_empty() { b"{}" } else { &bytes[..] };
        let mut json = serde_json::Deserializer::from_slice(text);
        let read = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let path = error.path().to_string();
            let place = if path == "." { "body".into() } else { format!("body/{}", path.replace('.', "/")) };
            ApiError::Body(format!("{place}: {}", error.into_inner()))
        });
        let value = read?;
        json.end().map_err(|error| ApiError::Body(format!("body: {error}")))?;
        Ok(JsonBody(value))
    }
}

/// The id of a session in the path.
#[derive(Debug, Clone, Copy)]
pub(super) struct SessionId(pub(super) Uuid);

impl<S: Send + Sync> FromRequestParts<S> for SessionId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let failed = || ApiError::Parameter("params/id must match format \"uuid\"".into());
        let Path(id) = Path::<String>::from_request_parts(parts, state).await.map_err(|_| failed())?;
        // Only the form with hyphens: each session has one path.
        Uuid::parse_str(&id).ok().filter(|_| id.len() == 36).map(SessionId).ok_or_else(failed)
    }
}

/// The name of an agent in the path. One that no agent can have is not found.
#[derive(Debug)]
pub(super) struct AgentName(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for AgentName {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        match path {
            Ok(Path(name)) if is_agent_name(&name) => Ok(AgentName(name)),
            _ => Err(ApiError::not_found("Agent not found")),
        }
    }
}

/// Whether an agent can have this name: 1 to 255 letters, digits, `_` and `-`.
pub(super) fn is_agent_name(name: &str) -> bool {
    (1..=255).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// The query of a request.
#[derive(Debug)]
pub(super) struct QueryOf<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryOf<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(value)) => Ok(QueryOf(value)),
            Err(rejection) => Err(ApiError::Parameter(format!("querystring: {}", rejection.body_text()))),
        }
    }
}

/// A whole number of a query within its bounds, or the number that stands for none.
///
/// # Errors
/// It is outside.
pub(super) fn bounded(
    name: &str,
    value: Option<i64>,
    default: i64,
    bounds: std::ops::RangeInclusive<i64>,
) -> Result<i64, ApiError> {
    let value = value.unwrap_or(default);
    if value < *bounds.start() {
        return Err(ApiError::Parameter(format!("querystring/{name} must be >= {}", bounds.start())));
    }
    if value > *bounds.end() {
        return Err(ApiError::Parameter(format!("querystring/{name} must be <= {}", bounds.end())));
    }
    Ok(value)
}
