//! Who asks: the key of a request, and the tenant it belongs to.

use super::App;
use super::error::ApiError;
use crate::first_key::{DEFAULT_TENANT, hash};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use std::sync::Arc;

/// Who asks.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    /// The tenant whose things are seen and changed.
    pub(super) tenant: String,
}

/// What needs no key.
const OPEN: [&str; 2] = ["/health", "/favicon.ico"];

/// Refuses a request without a key that is known.
pub(super) async fn check(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if !OPEN.contains(&request.uri().path()) {
        let key_hash = hash(key_of(request.headers())?);
        // Hashes are compared, so that the time it takes tells nothing of a key.
        let tenant = match app.store.tenant_of_key(&key_hash).await? {
            Some(tenant) => tenant,
            None if app.configured_key.as_deref() == Some(&key_hash) => DEFAULT_TENANT.to_owned(),
            None => return Err(unauthorized("Invalid API key")),
        };
        request.extensions_mut().insert(Caller { tenant });
    }
    Ok(next.run(request).await)
}

fn key_of(headers: &HeaderMap) -> Result<&str, ApiError> {
    let header = headers.get(AUTHORIZATION).ok_or_else(|| unauthorized("Missing Authorization header"))?;
    let words = header.to_str().ok().and_then(|header| header.split_once(' '));
    match words {
        Some(("Bearer", key)) if !key.is_empty() && !key.contains(' ') => Ok(key),
        _ => Err(unauthorized("Invalid Authorization header format")),
    }
}

fn unauthorized(text: &str) -> ApiError {
    ApiError::own(StatusCode::UNAUTHORIZED, text)
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        parts.extensions.get::<Caller>().cloned().ok_or_else(|| unauthorized("Missing Authorization header"))
    }
}
