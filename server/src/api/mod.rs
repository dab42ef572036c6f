//! The HTTP API. It is compatible with Ash 0.2 (saggar-server(8)).

mod agent_config;
mod agent_files;
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
mod host_header;
mod lifecycle;
mod logs;
mod messages;
mod metrics;
mod objects;
mod page;
mod permissions;
mod queue;
mod queue_turn;
mod queue_worker;
mod rate_limit;
mod reject;
mod scope;
mod session_files;
mod sessions;
mod snapshots;
mod usage;
mod variables;
mod warm_pool;
mod workspace_archive;
mod workspace_changes;
mod workspace_files;

pub use app::App;
pub use connection::Connection;
pub use eviction::evict_idle_sessions;
pub use queue_worker::run_queue;
pub use warm_pool::maintain_warm_pool;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{delete, get, patch, post};
use error::ApiError;
use std::sync::Arc;

/// Maximum size of a request body, in bytes.
const BODY_LIMIT: usize = 1 << 20;
/// Maximum size of a message, in bytes; content blocks can contain images.
const MESSAGE_LIMIT: usize = 50 << 20;
/// Maximum size of an upload of files, in bytes.
const UPLOAD_LIMIT: usize = 200 << 20;
/// Maximum size of an upload of a workspace, in bytes: 100 MiB in base64.
const ARCHIVE_LIMIT: usize = 134 << 20;

/// Returns the router. Each request passes the check of its Host header, the rate limit, then authentication.
pub fn router(app: Arc<App>) -> Router {
    let message_body = DefaultBodyLimit::max(MESSAGE_LIMIT);
    let archive_body = DefaultBodyLimit::max(ARCHIVE_LIMIT);
    let attachment_body = DefaultBodyLimit::max(attachments::body_limit(app.max_attachment_size));
    let upload_body = DefaultBodyLimit::max(UPLOAD_LIMIT);
    Router::new()
        .route("/health", get(health::health))
        .route("/metrics", get(metrics::metrics))
        .route("/dashboard", get(page::redirect))
        .route("/dashboard/", get(page::file))
        .route("/dashboard/{file}", get(page::file))
        .route("/api/agents", get(agents::list).post(agents::deploy))
        .route("/api/agents/{name}", get(agents::show).patch(agents::update).delete(agents::delete))
        .route("/api/agents/{name}/config", get(agent_config::show).patch(agent_config::update))
        .route("/api/agents/{name}/files", get(agent_files::list).post(agent_files::write).layer(upload_body))
        .route("/api/agents/{name}/files/{*path}", get(agent_files::show).delete(agent_files::delete))
        .route("/api/agents/{name}/versions", get(agent_versions::list).post(agent_versions::create))
        .route(
            "/api/agents/{name}/versions/{version}",
            get(agent_versions::show).patch(agent_versions::update).delete(agent_versions::delete),
        )
        .route("/api/agents/{name}/versions/{version}/activate", post(agent_versions::activate))
        .route("/api/api-keys", get(api_keys::list).post(api_keys::create))
        .route("/api/api-keys/{id}", delete(api_keys::delete))
        .route("/api/credentials", get(credentials::list).post(credentials::create))
        .route("/api/credentials/{id}", delete(credentials::delete))
        .route("/api/usage", get(usage::list))
        .route("/api/usage/stats", get(usage::stats))
        .route("/api/analytics", get(analytics::show))
        .route("/api/internal/api-keys", post(api_keys::create_for_tenant))
        .route("/api/sessions", get(sessions::list).post(sessions::create))
        .route("/api/sessions/{id}", get(sessions::show).delete(lifecycle::end))
        .route("/api/sessions/{id}/config", patch(sessions::update_config))
        .route("/api/sessions/{id}/pause", post(lifecycle::pause))
        .route("/api/sessions/{id}/resume", post(lifecycle::resume))
        .route("/api/sessions/{id}/stop", post(lifecycle::stop))
        .route("/api/sessions/{id}/interrupt", post(lifecycle::interrupt))
        .route("/api/sessions/{id}/messages", get(messages::list).post(messages::send).layer(message_body))
        .route("/api/sessions/{id}/events", get(messages::list_events))
        .route("/api/sessions/{id}/exec", post(exec::exec))
        .route("/api/sessions/{id}/logs", get(logs::list))
        .route(
            "/api/sessions/{id}/files",
            get(workspace_files::list).post(workspace_files::write).layer(upload_body),
        )
        .route("/api/sessions/{id}/files/{*path}", get(workspace_files::read).delete(workspace_files::delete))
        .route("/api/sessions/{id}/permissions", get(permissions::list))
        .route("/api/sessions/{id}/permissions/{permission}", post(permissions::answer))
        .route("/api/sessions/{id}/stream", get(messages::stream))
        .route(
            "/api/sessions/{id}/workspace",
            get(workspace_archive::download).post(workspace_archive::upload).layer(archive_body),
        )
        .route("/api/sessions/{id}/fork", post(snapshots::fork))
        .route("/api/sessions/{id}/snapshots", get(snapshots::list).post(snapshots::take))
        .route("/api/sessions/{id}/snapshots/{name}", delete(snapshots::delete))
        .route("/api/sessions/{id}/diff", get(workspace_changes::show))
        .route("/api/sessions/{id}/apply", post(workspace_changes::apply))
        .route("/api/sessions/{id}/discard", post(workspace_changes::discard))
        .route(
            "/api/sessions/{id}/attachments",
            get(attachments::list).post(attachments::create).layer(attachment_body),
        )
        .route("/api/attachments/{id}", get(attachments::read).delete(attachments::delete))
        .route("/api/queue", get(queue::list).post(queue::enqueue))
        .route("/api/queue/stats", get(queue::stats))
        .route("/api/queue/{id}", get(queue::show).delete(queue::cancel))
        .fallback(no_route)
        .method_not_allowed_fallback(no_route)
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(from_fn(reject::read_small_body))
        .layer(from_fn_with_state(Arc::clone(&app), auth::authenticate))
        .layer(from_fn_with_state(Arc::clone(&app), rate_limit::limit_requests))
        .layer(from_fn_with_state(Arc::clone(&app), cors::allow_origins))
        .layer(from_fn_with_state(Arc::clone(&app), host_header::check_host))
        .with_state(app)
}

async fn no_route(method: Method, uri: Uri) -> ApiError {
    let path = uri.path();
    // Evaluations of Ash, which this server leaves out.
    let mut parts = path.split('/').skip(1);
    let is_evaluation = parts.next() == Some("api")
        && parts.next() == Some("agents")
        && parts.nth(1).is_some_and(|part| ["eval-cases", "eval-runs", "eval-results"].contains(&part));
    if is_evaluation {
        let text = format!("{method} {path}: evaluations are not implemented");
        return ApiError::with_status(StatusCode::NOT_IMPLEMENTED, text);
    }
    ApiError::NoRoute { method, path: path.to_owned() }
}
