//! The HTTP API. It is compatible with Ash 0.2 (saggar-server(8)).

mod agent_change;
mod agent_config;
mod agent_files;
mod agent_lock;
mod agent_variables;
mod agent_versions;
mod agents;
mod analytics;
mod api_keys;
mod app;
mod attachments;
mod auth;
mod connection;
mod cors;
mod credentials;
mod download;
mod error;
mod eviction;
mod exec;
mod extract;
mod health;
mod held_keys;
mod host_header;
mod lifecycle;
mod logs;
mod message_body;
mod messages;
mod metrics;
mod network;
mod objects;
mod openapi;
mod page;
mod permissions;
mod pod_sessions;
mod quarantine;
mod queue;
mod queue_span;
mod queue_turn;
mod queue_worker;
mod rate_limit;
mod reject;
mod request_span;
mod scope;
mod session_files;
mod session_usage;
mod sessions;
mod snapshots;
mod usage;
mod variables;
mod warm_pool;
mod workspace_archive;
mod workspace_changes;
mod workspace_file_objects;
mod workspace_files;

pub(crate) use agent_variables::seal_stored_variables;
pub use app::App;
pub use connection::Connection;
pub use eviction::evict_idle_sessions;
pub use openapi::{document, document_text};
pub use queue_worker::run_queue;
pub use warm_pool::maintain_warm_pool;

use crate::body_limits::BodyLimits;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use error::ApiError;
use request_span::trace_request;
use std::sync::Arc;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt};
use utoipa_axum::routes;

/// Returns the router. Each request passes the check of its Host header, the rate limit, then authentication. Only then it
/// is traced: whom the server refuses must not fill the collector.
pub fn router(app: Arc<App>) -> Router {
    let limits = app.body_limits;
    let (router, _) = operations(limits, app.max_attachment_size).split_for_parts();
    router
        .merge(page::routes())
        .fallback(no_route)
        .method_not_allowed_fallback(no_route)
        .layer(DefaultBodyLimit::max(limits.other))
        .layer(from_fn_with_state(Arc::clone(&app), pod_sessions::refuse_left_out))
        .layer(from_fn(reject::read_small_body))
        .layer(from_fn_with_state(app.scheme, trace_request))
        .layer(from_fn_with_state(Arc::clone(&app), auth::authenticate))
        .layer(from_fn_with_state(Arc::clone(&app), rate_limit::limit_requests))
        .layer(from_fn_with_state(Arc::clone(&app), cors::allow_origins))
        .layer(from_fn_with_state(Arc::clone(&app), host_header::check_host))
        .with_state(app)
}

/// Returns the routes, with the operations of the OpenAPI document. Attachments have at most this number of bytes.
fn operations(limits: BodyLimits, max_attachment_size: usize) -> OpenApiRouter<Arc<App>> {
    let message_body = DefaultBodyLimit::max(limits.message);
    let archive_body = DefaultBodyLimit::max(limits.workspace);
    let attachment_body = DefaultBodyLimit::max(attachments::body_limit(max_attachment_size));
    let upload_body = DefaultBodyLimit::max(limits.files);
    OpenApiRouter::with_openapi(openapi::base())
        .routes(routes!(openapi::handlers::docs))
        .routes(routes!(openapi::handlers::docs_json))
        .routes(routes!(openapi::handlers::openapi_json))
        .routes(routes!(health::health))
        .routes(routes!(health::live))
        .routes(routes!(metrics::metrics))
        .routes(routes!(agents::list, agents::deploy).layer(upload_body))
        .routes(routes!(agents::show, agents::update, agents::delete))
        .routes(routes!(agent_config::show, agent_config::update))
        .routes(routes!(agent_files::list, agent_files::write).layer(upload_body))
        .routes(routes!(agent_files::show, agent_files::delete))
        .routes(routes!(agent_versions::list, agent_versions::create))
        .routes(routes!(agent_versions::show, agent_versions::update, agent_versions::delete))
        .routes(routes!(agent_versions::activate))
        .routes(routes!(api_keys::list, api_keys::create))
        .routes(routes!(api_keys::delete))
        .routes(routes!(credentials::list, credentials::create))
        .routes(routes!(credentials::delete))
        .routes(routes!(usage::list))
        .routes(routes!(usage::stats))
        .routes(routes!(analytics::show))
        .routes(routes!(api_keys::create_for_tenant))
        .routes(routes!(sessions::list, sessions::create))
        .routes(routes!(sessions::show, lifecycle::end))
        .routes(routes!(sessions::update_config))
        .routes(routes!(lifecycle::pause))
        .routes(routes!(lifecycle::resume))
        .routes(routes!(lifecycle::stop))
        .routes(routes!(lifecycle::interrupt))
        .routes(routes!(messages::list, messages::send).layer(message_body))
        .routes(routes!(messages::list_events))
        .routes(routes!(exec::exec))
        .routes(routes!(logs::list))
        .routes(routes!(workspace_files::list, workspace_files::write).layer(upload_body))
        .routes(routes!(workspace_files::read, workspace_files::delete))
        .routes(routes!(network::show, network::allow))
        .routes(routes!(session_usage::show))
        .routes(routes!(permissions::list))
        .routes(routes!(permissions::answer))
        .routes(routes!(messages::stream))
        .routes(routes!(workspace_archive::download, workspace_archive::upload).layer(archive_body))
        .routes(routes!(snapshots::fork))
        .routes(routes!(snapshots::list, snapshots::take))
        .routes(routes!(snapshots::delete))
        .routes(routes!(workspace_changes::show))
        .routes(routes!(workspace_changes::apply))
        .routes(routes!(workspace_changes::discard))
        .routes(routes!(quarantine::list, quarantine::release))
        .routes(routes!(attachments::list, attachments::create).layer(attachment_body))
        .routes(routes!(attachments::read, attachments::delete))
        .routes(routes!(queue::list, queue::enqueue))
        .routes(routes!(queue::stats))
        .routes(routes!(queue::show, queue::cancel))
}

async fn no_route(method: Method, uri: Uri) -> ApiError {
    let path = uri.path();
    if let Some(left_out) = left_out(path) {
        let text = format!("{method} {path}: {left_out} are not implemented");
        return ApiError::with_status(StatusCode::NOT_IMPLEMENTED, text);
    }
    ApiError::NoRoute { method, path: path.to_owned() }
}

/// The part of Ash with this path, if this server leaves it out.
fn left_out(path: &str) -> Option<&'static str> {
    const EVALUATIONS: [&str; 3] = ["eval-cases", "eval-runs", "eval-results"];
    match path.split('/').skip(1).collect::<Vec<_>>().as_slice() {
        ["api", "agents", _, part, ..] if EVALUATIONS.contains(part) => Some("evaluations"),
        ["api", "internal", "runners", ..] | ["runner", ..] => Some("remote runners"),
        _ => None,
    }
}
