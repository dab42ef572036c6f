//! Authentication: maps the API key of a request to its tenant.

use super::App;
use super::error::ApiError;
use crate::api_key::{DEFAULT_TENANT, hash_key};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use std::sync::Arc;

/// The authenticated client of a request.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    /// The tenant whose agents and sessions the client can access.
    pub(super) tenant: String,
}

/// Paths that require no key.
const PUBLIC_PATHS: [&str; 2] = ["/health", "/favicon.ico"];

/// Rejects a request without a valid API key.
pub(super) async fn authenticate(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if !PUBLIC_PATHS.contains(&request.uri().path()) {
        let key_hash = hash_key(bearer_token(request.headers())?);
        // Only hashes are compared, so that the response time reveals nothing about a valid key.
        let tenant = match app.store.tenant_for_key(&key_hash).await? {
            Some(tenant) => tenant,
            None if app.configured_key.as_deref() == Some(&key_hash) => DEFAULT_TENANT.to_owned(),
            None => return Err(unauthorized("Invalid API key")),
        };
        request.extensions_mut().insert(Caller { tenant });
    }
    Ok(next.run(request).await)
}

fn bearer_token(headers: &HeaderMap) -> Result<&str, ApiError> {
    let header = headers.get(AUTHORIZATION).ok_or_else(|| unauthorized("Missing Authorization header"))?;
    let words = header.to_str().ok().and_then(|header| header.split_once(' '));
    match words {
        Some(("Bearer", key)) if !key.is_empty() && !key.contains(' ') => Ok(key),
        _ => Err(unauthorized("Invalid Authorization header format")),
    }
}

fn unauthorized(text: &str) -> ApiError {
    ApiError::with_status(StatusCode::UNAUTHORIZED, text)
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        parts.extensions.get::<Caller>().cloned().ok_or_else(|| unauthorized("Missing Authorization header"))
    }
}
