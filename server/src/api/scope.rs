//! Scopes of API keys: what a request needs.

use super::error::ApiError;
use crate::api_key::KeyScope;
use axum::http::{Method, StatusCode};

/// Routes that only the scope `admin` may use, also to read: they manage secrets.
const ADMIN_ROUTES: [&str; 2] = ["/api/api-keys", "/api/credentials"];
/// Parts of a session that only the scope `admin` may write. To apply its changes is a deployment, since they become part
/// of the folder of its agent; and to allow hosts widens the policy of the operator.
const ADMIN_PARTS: [&str; 2] = ["apply", "network"];
/// Routes that the scope `agent` may use to write.
const AGENT_ROUTES: [&str; 1] = ["/api/sessions"];

/// Rejects a request that the scope of its key does not permit.
///
/// # Errors
/// 403 names the scope that the request needs.
pub(super) fn check(scope: KeyScope, method: &Method, path: &str) -> Result<(), ApiError> {
    require(scope, needed_scope(method, path), &format!("{method} {path}"))
}

/// Rejects a request with this effect if the scope of its key does not permit it: for routes where the body decides.
///
/// # Errors
/// 403 names the scope that the request needs.
pub(super) fn require(scope: KeyScope, needed: KeyScope, effect: &str) -> Result<(), ApiError> {
    if scope >= needed {
        return Ok(());
    }
    let text = format!("{effect} needs an API key with the scope {needed}; this key has {scope}");
    Err(ApiError::with_status(StatusCode::FORBIDDEN, text))
}

/// Paths are compared as they were sent: the router does not match an encoded or a relative form of a route.
fn needed_scope(method: &Method, path: &str) -> KeyScope {
    let is_below = |routes: &[&str]| {
        routes.iter().any(|route| {
            path.strip_prefix(route).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    };
    let part = path.strip_prefix("/api/sessions/").and_then(|rest| rest.split_once('/'));
    match *method {
        _ if is_below(&ADMIN_ROUTES) => KeyScope::Admin,
        Method::GET | Method::HEAD => KeyScope::Read,
        _ if part.is_some_and(|(_, part)| ADMIN_PARTS.contains(&part)) => KeyScope::Admin,
        _ if is_below(&AGENT_ROUTES) => KeyScope::Agent,
        _ => KeyScope::Admin,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_outside_of_sessions_need_admin() {
        let cases = [
            (Method::GET, "/api/agents/a/files/x", KeyScope::Read),
            (Method::HEAD, "/api/sessions", KeyScope::Read),
            (Method::GET, "/api/sessions/1/stream", KeyScope::Read),
            (Method::POST, "/api/sessions", KeyScope::Agent),
            (Method::POST, "/api/sessions/1/messages", KeyScope::Agent),
            (Method::DELETE, "/api/sessions/1", KeyScope::Agent),
            (Method::POST, "/api/sessions/1/apply", KeyScope::Admin),
            (Method::POST, "/api/sessions/1/discard", KeyScope::Agent),
            (Method::POST, "/api/sessions/1/network", KeyScope::Admin),
            (Method::GET, "/api/sessions/1/network", KeyScope::Read),
            (Method::POST, "/api/sessions/1/quarantine", KeyScope::Agent),
            (Method::DELETE, "/api/sessions/1/files/apply", KeyScope::Agent),
            (Method::POST, "/api/sessionsx", KeyScope::Admin),
            (Method::POST, "/api/agents", KeyScope::Admin),
            (Method::PATCH, "/api/agents/a/config", KeyScope::Admin),
            (Method::GET, "/api/api-keys", KeyScope::Admin),
            (Method::GET, "/api/credentials/1", KeyScope::Admin),
            (Method::OPTIONS, "/api/agents", KeyScope::Admin),
        ];
        for (method, path, needed) in cases {
            assert_eq!(needed_scope(&method, path), needed, "{method} {path}");
        }
        assert!(check(KeyScope::Admin, &Method::POST, "/api/agents").is_ok());
        assert!(check(KeyScope::Read, &Method::GET, "/api/agents").is_ok());
        assert!(check(KeyScope::Read, &Method::POST, "/api/sessions").is_err());
    }
}
