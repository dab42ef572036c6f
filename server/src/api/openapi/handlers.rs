//! The routes of the document. They require no key: the document contains no data.

use super::{document, document_text, page};
use crate::api::error::ApiError;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use std::sync::LazyLock;

/// The page needs nothing else, and no other page may frame it.
const PAGE_POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

static DOCUMENT: LazyLock<Option<String>> = LazyLock::new(|| document_text().ok());
static PAGE: LazyLock<String> = LazyLock::new(|| page::render(&document()));

/// Returns this document.
#[utoipa::path(
    get,
    path = "/docs/json",
    operation_id = "getDocumentOfAsh",
    tag = "Documentation",
    responses((status = 200, description = "The document", body = serde_json::Map<String, serde_json::Value>)),
    security(()),
)]
pub(in crate::api) async fn docs_json() -> Result<Response, ApiError> {
    let document = DOCUMENT.as_deref().ok_or_else(|| ApiError::internal("Cannot write the document"))?;
    let media_type = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    Ok((media_type, document).into_response())
}

/// Returns this document.
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "getDocument",
    tag = "Documentation",
    responses((status = 200, description = "The document", body = serde_json::Map<String, serde_json::Value>)),
    security(()),
)]
pub(in crate::api) async fn openapi_json() -> Result<Response, ApiError> {
    docs_json().await
}

/// Returns this document as a page for people.
#[utoipa::path(
    get,
    path = "/docs",
    operation_id = "getDocumentPage",
    tag = "Documentation",
    responses((status = 200, description = "The page", body = String, content_type = "text/html")),
    security(()),
)]
pub(in crate::api) async fn docs() -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (HeaderName::from_static("referrer-policy"), HeaderValue::from_static("no-referrer")),
    ];
    (headers, PAGE.as_str()).into_response()
}
