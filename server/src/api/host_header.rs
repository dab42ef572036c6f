//! Protection against DNS rebinding. A web page can resolve its own host name to the address of this server, and the
//! browser then treats requests to the server as same-origin. The Host header still contains the name of that page.

use super::error::ApiError;
use super::{App, Connection};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::middleware::Next;
use axum::response::Response;
use std::net::IpAddr;
use std::sync::Arc;

/// Rejects a request whose Host header names another server, before authentication.
pub(super) async fn check_host(
    State(app): State<Arc<App>>,
    ConnectInfo(connection): ConnectInfo<Connection>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let host = match request.uri().authority() {
        Some(authority) => Some(authority.to_string()),
        // Of two, a proxy and this server could choose different ones.
        None if request.headers().get_all(HOST).iter().count() > 1 => None,
        None => request.headers().get(HOST).and_then(|host| host.to_str().ok()).map(str::to_owned),
    };
    let local = connection.local.map(|address| address.ip());
    match host.as_deref().and_then(host_name) {
        Some(name) if is_allowed_host(&name, local, &app.allowed_hosts) => Ok(next.run(request).await),
        _ => Err(ApiError::bad_request(format!(
            "Host {} is not allowed: add it with --allowed-hosts",
            host.unwrap_or_else(|| "\"\"".into())
        ))),
    }
}

/// Returns the host of a Host header without its port, in lower case.
fn host_name(host: &str) -> Option<String> {
    let authority: Authority = host.parse().ok().filter(|_| !host.contains('@'))?;
    let name = authority.host();
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    Some(name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase())
}

fn is_allowed_host(name: &str, local: Option<IpAddr>, allowed: &[String]) -> bool {
    if let Ok(address) = name.parse::<IpAddr>() {
        let address = address.to_canonical();
        if address.is_loopback() || local.is_some_and(|local| local.to_canonical() == address) {
            return true;
        }
    }
    name == "localhost"
        || name.ends_with(".localhost")
        || allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(host: &str) -> bool {
        let local = "192.0.2.7".parse().ok();
        host_name(host).is_some_and(|name| is_allowed_host(&name, local, &["agents.example".into()]))
    }

    #[test]
    fn only_loopback_local_address_and_configured_names_are_allowed() {
        for allowed in [
            "localhost",
            "LOCALHOST:4100",
            "a.localhost",
            "127.0.0.1:4100",
            "127.9.9.9",
            "[::1]:4100",
            "192.0.2.7:4100",
            "[::ffff:192.0.2.7]",
            "agents.example",
            "Agents.Example.:443",
        ] {
            assert!(passes(allowed), "{allowed}");
        }
        for foreign in [
            "",
            "evil.example",
            "localhost.evil.example",
            "192.0.2.8",
            "agents.example.evil",
            "u@localhost",
            "[::2]",
            "127.0.0.1.evil.example",
            "xagents.example",
        ] {
            assert!(!passes(foreign), "{foreign}");
        }
    }
}
