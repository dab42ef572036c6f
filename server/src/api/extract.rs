//! Extractors for the parts of a request, with error texts that name the invalid part.

use super::error::ApiError;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::timeout;
use uuid::Uuid;

/// Maximum time for a body: for the largest one over a slow line.
const BODY_TIMEOUT: Duration = Duration::from_secs(600);
/// Maximum number of values in a JSON body.
const MAX_JSON_VALUES: usize = 200_000;

/// A JSON body of any content type. An empty body is an empty object: the Python client of Ash sends one for pause,
/// resume and stop.
#[derive(Debug)]
pub(super) struct JsonBody<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let Ok(received) = timeout(BODY_TIMEOUT, Bytes::from_request(request, state)).await else {
            let text = "The body did not arrive in time";
            return Err(ApiError::with_status(StatusCode::REQUEST_TIMEOUT, text));
        };
        let bytes = match received {
            Ok(bytes) => bytes,
            Err(BytesRejection::FailedToBufferBody(rejection)) => {
                let status = rejection.status();
                return Err(match status {
                    StatusCode::PAYLOAD_TOO_LARGE => {
                        ApiError::with_status(status, "Request body is too large")
                    }
                    _ => ApiError::Body(rejection.body_text()),
                });
            }
            Err(rejection) => return Err(ApiError::Body(rejection.body_text())),
        };
        let text = if bytes.trim_ascii().is_empty() { b"{}" } else { &bytes[..] };
        if count_values(text) > MAX_JSON_VALUES {
            return Err(ApiError::Body(format!("body must have at most {MAX_JSON_VALUES} values")));
        }
        let mut json = serde_json::Deserializer::from_slice(text);
        let parsed = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let path = error.path().to_string();
            let location =
                if path == "." { "body".into() } else { format!("body/{}", path.replace('.', "/")) };
            ApiError::Body(format!("{location}: {}", error.into_inner()))
        });
        let value = parsed?;
        json.end().map_err(|error| ApiError::Body(format!("body: {error}")))?;
        Ok(JsonBody(value))
    }
}

/// Counts the values of a JSON text, or some more. Each takes up to a hundred times its length in memory.
fn count_values(text: &[u8]) -> usize {
    let (mut count, mut is_string, mut is_escaped) = (1, false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_string => is_escaped = true,
            b'"' => is_string = !is_string,
            b',' | b'[' | b'{' if !is_string => count += 1,
            _ => {}
        }
    }
    count
}

/// The id of a session in the path.
#[derive(Debug, Clone, Copy, utoipa::IntoParams)]
#[into_params(names("id"), parameter_in = Path)]
pub(super) struct SessionId(pub(super) Uuid);

impl<S: Send + Sync> FromRequestParts<S> for SessionId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(id) =
            Path::<String>::from_request_parts(parts, state).await.map_err(|_| invalid_session_id())?;
        parse_session_id(&id).map(SessionId)
    }
}

/// Parses the id of a session. Only the form with hyphens is valid, so that each session has exactly one URL.
fn parse_session_id(id: &str) -> Result<Uuid, ApiError> {
    Uuid::parse_str(id).ok().filter(|_| id.len() == 36).ok_or_else(invalid_session_id)
}

fn invalid_session_id() -> ApiError {
    ApiError::Parameter("params/id must match format \"uuid\"".into())
}

/// A UUID in the path that is not that of a session.
#[derive(Debug, Clone, Copy, utoipa::IntoParams)]
#[into_params(names("id"), parameter_in = Path)]
pub(super) struct PathId(pub(super) Uuid);

impl<S: Send + Sync> FromRequestParts<S> for PathId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let SessionId(id) = SessionId::from_request_parts(parts, state).await?;
        Ok(PathId(id))
    }
}

/// The id of a session, and the name of a part of it, in the path.
#[derive(Debug)]
pub(super) struct SessionPath {
    pub(super) id: Uuid,
    pub(super) rest: String,
}

impl<S: Send + Sync> FromRequestParts<S> for SessionPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::<(String, String)>::from_request_parts(parts, state).await;
        let Path((id, rest)) = path.map_err(|_| ApiError::Parameter("params must be valid UTF-8".into()))?;
        Ok(SessionPath { id: parse_session_id(&id)?, rest })
    }
}

/// Parses an optional UUID of a body.
///
/// # Errors
/// 400 if the text is no UUID with hyphens.
pub(super) fn body_uuid(field: &str, id: Option<&str>) -> Result<Option<Uuid>, ApiError> {
    let parse = |id: &str| Uuid::parse_str(id).ok().filter(|_| id.len() == 36);
    let invalid = || ApiError::Body(format!("body/{field} must match format \"uuid\""));
    id.map(|id| parse(id).ok_or_else(invalid)).transpose()
}

/// The name of an agent in the path. An invalid name is reported as 404, like an unknown one.
#[derive(Debug, utoipa::IntoParams)]
#[into_params(names("name"), parameter_in = Path)]
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

/// The name of an agent and of a thing that belongs to it, such as a file: the two parameters of the path.
#[derive(Debug)]
pub(super) struct AgentItem {
    pub(super) agent: String,
    pub(super) item: String,
}

impl<S: Send + Sync> FromRequestParts<S> for AgentItem {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::<(String, String)>::from_request_parts(parts, state).await;
        match path {
            Ok(Path((agent, item))) if is_agent_name(&agent) => Ok(AgentItem { agent, item }),
            _ => Err(ApiError::not_found("Agent not found")),
        }
    }
}

/// Whether a name is valid for an agent: 1 to 255 letters, digits, `_` and `-`.
pub(super) fn is_agent_name(name: &str) -> bool {
    (1..=255).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// The query parameters of a request.
#[derive(Debug)]
pub(super) struct QueryParams<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(value)) => Ok(QueryParams(value)),
            Err(rejection) => Err(ApiError::Parameter(format!("querystring: {}", rejection.body_text()))),
        }
    }
}

/// Returns an integer query parameter, or `default` if it is absent.
///
/// # Errors
/// 400 if the value is out of bounds.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_outside_of_strings_are_counted() {
        for (text, count) in
            [("{}", 2), ("7", 1), ("[1,2,3]", 4), (r#"{"a":"[,{","b":[{}]}"#, 5), (r#"["\\",",\","]"#, 3)]
        {
            assert_eq!(count_values(text.as_bytes()), count, "{text}");
        }
    }
}
