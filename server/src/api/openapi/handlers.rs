//! The routes of the document. They require no key: the document contains no data.

use super::{document, document_text, page};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use std::sync::LazyLock;

/// The page needs nothing else, and no other page may frame it.
const PAGE_POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

static DOCUMENT: LazyLock<String> = LazyLock::new(|| document_text().unwrap_or_default());
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
pub(in crate::api) async fn docs_json() -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], DOCUMENT.as_str())
        .into_response()
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
pub(in crate::api) async fn openapi_json() -> Response {
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
