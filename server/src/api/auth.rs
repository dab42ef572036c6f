//! Authentication: maps the API key of a request to its tenant and checks its scope.

use super::App;
use super::error::ApiError;
use super::page::is_page_path;
use super::reject::reject;
use super::scope;
use crate::api_key::{DEFAULT_TENANT, KeyScope, hash_key};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use std::sync::Arc;

/// The authenticated client of a request.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    /// The tenant whose agents and sessions the client can access.
    pub(super) tenant: String,
    /// What its key permits.
    pub(super) scope: KeyScope,
}

/// Paths that require no key, besides those of the web page.
const PUBLIC_PATHS: [&str; 6] = ["/health", "/live", "/favicon.ico", "/docs", "/docs/json", "/openapi.json"];

/// Paths below this one require the secret of the internal routes instead of a key.
const INTERNAL_PATHS: &str = "/api/internal/";

/// Rejects a request without a valid API key, or beyond the scope of its key.
pub(super) async fn authenticate(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    match find_caller(&app, request.method(), request.uri().path(), request.headers()).await {
        Ok(caller) => {
            if let Some(caller) = caller {
                request.extensions_mut().insert(caller);
            }
            next.run(request).await
        }
        Err(error) => reject(request, error).await,
    }
}

/// Returns the client of a request; `None` for a path that requires no key.
async fn find_caller(
    app: &App,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
) -> Result<Option<Caller>, ApiError> {
    if PUBLIC_PATHS.contains(&path) || is_page_path(path) {
        return Ok(None);
    }
    if path.starts_with(INTERNAL_PATHS) {
        return check_internal_secret(app, headers).map(|()| None);
    }
    let key = bearer_token(headers)?;
    // Keys in the database are found by their hash, so that the response time reveals nothing about a valid key.
    let (tenant, scope) = match app.store.find_api_key(&hash_key(key)).await? {
        Some(stored) => (stored.tenant_id, stored.scope),
        None if app.configured_key.as_ref().is_some_and(|configured| configured.matches(key)) => {
            (DEFAULT_TENANT.to_owned(), KeyScope::Admin)
        }
        None => return Err(unauthorized("Invalid API key")),
    };
    scope::check(scope, method, path)?;
    Ok(Some(Caller { tenant, scope }))
}

fn check_internal_secret(app: &App, headers: &HeaderMap) -> Result<(), ApiError> {
    let refused = |status, text: &str| Err(ApiError::WithoutCode(status, text.into()));
    let Some(secret) = &app.internal_secret else {
        let text = "Internal routes are disabled: set ASH_INTERNAL_SECRET and restart the server";
        return refused(StatusCode::SERVICE_UNAVAILABLE, text);
    };
    match bearer_token(headers) {
        Ok(token) if secret.matches(token) => Ok(()),
        _ => refused(StatusCode::UNAUTHORIZED, "Unauthorized — invalid or missing internal secret"),
    }
}

/// Returns the token of the Authorization header.
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
