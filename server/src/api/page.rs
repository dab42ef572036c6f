//! The web page: static files below `/dashboard/`. They are the same for each client, so they require no key; the page
//! asks its user for one, and reads all data from the API.

use super::App;
use super::error::ApiError;
use crate::digest::sha256_hex;
use axum::Router;
use axum::extract::State;
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use std::sync::Arc;

/// The path of the page. The paths of its files are below it.
const PAGE_PATH: &str = "/dashboard";

/// The file of the path `/dashboard/`.
const INDEX: &str = "index.html";

/// The files in `server/page`, each with its media type.
const FILES: [(&str, &str, &str); 21] = {
    const HTML: &str = "text/html; charset=utf-8";
    const CSS: &str = "text/css; charset=utf-8";
    const SCRIPT: &str = "text/javascript; charset=utf-8";
    const SVG: &str = "image/svg+xml";
    [
        (INDEX, HTML, include_str!("../../page/index.html")),
        ("style.css", CSS, include_str!("../../page/style.css")),
        ("icon.svg", SVG, include_str!("../../page/icon.svg")),
        ("main.js", SCRIPT, include_str!("../../page/main.js")),
        ("api.js", SCRIPT, include_str!("../../page/api.js")),
        ("changes.js", SCRIPT, include_str!("../../page/changes.js")),
        ("composer.js", SCRIPT, include_str!("../../page/composer.js")),
        ("conversation.js", SCRIPT, include_str!("../../page/conversation.js")),
        ("dialog.js", SCRIPT, include_str!("../../page/dialog.js")),
        ("dom.js", SCRIPT, include_str!("../../page/dom.js")),
        ("entries.js", SCRIPT, include_str!("../../page/entries.js")),
        ("logs.js", SCRIPT, include_str!("../../page/logs.js")),
        ("network.js", SCRIPT, include_str!("../../page/network.js")),
        ("patch.js", SCRIPT, include_str!("../../page/patch.js")),
        ("permissions.js", SCRIPT, include_str!("../../page/permissions.js")),
        ("quarantine.js", SCRIPT, include_str!("../../page/quarantine.js")),
        ("routes.js", SCRIPT, include_str!("../../page/routes.js")),
        ("session.js", SCRIPT, include_str!("../../page/session.js")),
        ("sessions.js", SCRIPT, include_str!("../../page/sessions.js")),
        ("stream.js", SCRIPT, include_str!("../../page/stream.js")),
        ("text.js", SCRIPT, include_str!("../../page/text.js")),
    ]
};

/// Headers of each file. Only files of the page can run, be shown or be connected to, and no other page can embed it;
/// with trusted types, the browser also refuses to parse text as HTML.
const HEADERS: [(HeaderName, HeaderValue); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
             require-trusted-types-for 'script'; trusted-types 'none'",
        ),
    ),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    // A browser asks each time whether its copy is current: after an update, all files are of one version.
    (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
];

/// Whether a path is that of the page or below it.
pub(super) fn is_page_path(path: &str) -> bool {
    path.strip_prefix(PAGE_PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the routes. They are no operations of the API.
pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route(PAGE_PATH, get(redirect))
        .route("/dashboard/", get(file))
        .route("/dashboard/{file}", get(file))
}

/// `GET /dashboard`: redirects to the page.
async fn redirect(State(app): State<Arc<App>>, method: Method, uri: Uri) -> Response {
    match app.page {
        // Relative, so that it is also right behind a proxy that adds a prefix.
        true => Redirect::temporary("dashboard/").into_response(),
        false => not_found(method, &uri),
    }
}

/// `GET /dashboard/` and `GET /dashboard/FILE`: a file of the page.
async fn file(State(app): State<Arc<App>>, method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let name = uri.path().strip_prefix(PAGE_PATH).unwrap_or_default();
    let name = if name == "/" { INDEX } else { name.trim_start_matches('/') };
    match FILES.iter().find(|(known, _, _)| app.page && *known == name) {
        Some((_, media_type, content)) => file_response(media_type, content, &headers),
        None => not_found(method, &uri),
    }
}

fn file_response(media_type: &'static str, content: &'static str, request: &HeaderMap) -> Response {
    let etag = format!("\"{}\"", sha256_hex(content.as_bytes()));
    let is_current =
        request.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == etag.as_bytes());
    let headers = (HEADERS, [(header::ETAG, etag)]);
    match is_current {
        true => (StatusCode::NOT_MODIFIED, headers).into_response(),
        false => (headers, [(header::CONTENT_TYPE, media_type)], content).into_response(),
    }
}

fn not_found(method: Method, uri: &Uri) -> Response {
    ApiError::NoRoute { method, path: uri.path().to_owned() }.into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;

    #[test]
    fn all_files_of_the_directory_are_embedded() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/page");
        let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        let names: BTreeSet<String> = names.map(|name| name.into_string().unwrap()).collect();
        assert_eq!(names, FILES.iter().map(|(name, _, _)| (*name).to_owned()).collect());
    }

    #[test]
    fn paths_that_only_begin_like_the_page_are_not_public() {
        for path in ["/dashboard", "/dashboard/", "/dashboard/main.js"] {
            assert!(is_page_path(path), "{path}");
        }
        for path in ["/", "/dashboards", "/api/dashboard", "/dashboard.js"] {
            assert!(!is_page_path(path), "{path}");
        }
    }
}
