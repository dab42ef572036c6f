//! What sessions in pods do not have: the server has no files of a pod, and saggar has no session there.

use super::App;
use super::error::ApiError;
use crate::session_policy::SessionPolicy;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use saggar_policy::FOLDER_FILE_NAMES;
use std::path::Path;
use std::sync::Arc;

/// The routes of sessions that are left out, below `/api/sessions/{id}/`, and what they need.
const LEFT_OUT: [(&str, &str); 14] = [
    ("apply", "changes of the workspace"),
    ("diff", "changes of the workspace"),
    ("discard", "changes of the workspace"),
    ("files", "files of the workspace"),
    ("files/{*path}", "files of the workspace"),
    ("fork", "forks"),
    ("network", "network rules"),
    ("quarantine", "the quarantine"),
    ("snapshots", "snapshots"),
    ("snapshots/{name}", "snapshots"),
    ("stop", "a stop and a later resume"),
    ("workspace", "files of the workspace"),
    ("attachments", "attachments"),
    ("logs", "the log of a session"),
];

/// Answers requests that no session in a pod can serve.
pub(super) async fn refuse_left_out(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    match path.filter(|_| app.sandboxes.are_pods()).and_then(left_out) {
        // The list of attachments is empty, and clients ask for it.
        Some(what) if !(what == "attachments" && request.method() == Method::GET) => {
            not_in_pods(what).into_response()
        }
        _ => next.run(request).await,
    }
}

/// What the route with this path needs, if it is left out.
pub(super) fn left_out(path: &str) -> Option<&'static str> {
    let route = path.strip_prefix("/api/sessions/{id}/")?;
    LEFT_OUT.iter().find(|(left_out, _)| *left_out == route).map(|(_, what)| *what)
}

/// Refuses a session with this policy if it cannot be in a pod.
///
/// # Errors
/// 501.
pub(super) fn check_policy(app: &App, policy: &SessionPolicy) -> Result<(), ApiError> {
    match policy.needs_saggar().filter(|_| app.sandboxes.are_pods()) {
        Some(what) => Err(not_in_pods(what)),
        None => Ok(()),
    }
}

/// Refuses options of a query that an agent takes at its start, since a pod starts its agent once, without them.
///
/// # Errors
/// 501, with the name of the first one.
pub(super) fn check_start_options<'a>(
    app: &App,
    names: impl IntoIterator<Item = &'a str>,
) -> Result<(), ApiError> {
    match names.into_iter().next().filter(|_| app.sandboxes.are_pods()) {
        Some(name) => {
            Err(not_in_pods(&format!("{name}, which the manifest of the pod can set for its agent")))
        }
        None => Ok(()),
    }
}

/// Refuses an agent whose folder has a policy, which saggar applies to sandboxes of its own alone.
///
/// # Errors
/// 501.
pub(super) async fn check_folder(app: &App, folder: &Path) -> Result<(), ApiError> {
    for name in FOLDER_FILE_NAMES {
        if app.sandboxes.are_pods() && tokio::fs::try_exists(folder.join(name)).await.unwrap_or(true) {
            return Err(not_in_pods(&format!("the policy {name} in the folder of the agent")));
        }
    }
    Ok(())
}

/// 501: a session in a pod does not have this.
pub(super) fn not_in_pods(what: &str) -> ApiError {
    let text = format!("Not available, since the sessions of this server run in pods: {what}");
    ApiError::with_status(StatusCode::NOT_IMPLEMENTED, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_route_that_is_left_out_exists() {
        let document = crate::api::document();
        for (route, _) in LEFT_OUT {
            let path = format!("/api/sessions/{{id}}/{}", route.replace("{*", "{"));
            assert!(document.paths.paths.contains_key(&path), "{path}");
            assert!(left_out(&format!("/api/sessions/{{id}}/{route}")).is_some());
        }
        assert_eq!(left_out("/api/sessions/{id}/messages"), None);
    }
}
