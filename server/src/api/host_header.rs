//! Which names the server goes by. A page of another site can point a name of its own at this address ("DNS rebinding"), and
//! then speak to the server as if it were that site; the name is in each request.

use super::error::ApiError;
use super::{App, Connection};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::middleware::Next;
use axum::response::Response;
use std::net::IpAddr;
use std::sync::Arc;

/// Refuses a request for a name that is not the server's, before anything else is looked at.
pub(super) async fn check(
    State(app): State<Arc<App>>,
    ConnectInfo(connection): ConnectInfo<Connection>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let host = match request.uri().authority() {
        Some(authority) => Some(authority.to_string()),
        None => request.headers().get(HOST).and_then(|host| host.to_str().ok()).map(str::to_owned),
    };
    let local = connection.local.map(|address| address.ip());
    match host.as_deref().and_then(name_of) {
        Some(name) if is_own(&name, local, &app.allowed_hosts) => Ok(next.run(request).await),
        _ => Err(ApiError::bad_request(format!(
            "This server does not go by the name {}: name it with --allowed-hosts",
            host.unwrap_or_else(|| "\"\"".into())
        ))),
    }
}

/// The name of a Host header without its port, in small letters.
fn name_of(host: &str) -> Option<String> {
    let authority: Authority = host.parse().ok().filter(|_| !host.contains('@'))?;
    let name = authority.host();
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    Some(name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase())
}

fn is_own(name: &str, local: Option<IpAddr>, allowed: &[String]) -> bool {
    if let Ok(address) = name.parse::<IpAddr>() {
        let address = address.to_canonical();
        if address.is_loopback() || local.is_some_and(|local| local.to_canonical() == address) {
            return true;
        }
    }
    name == "localhost"
        || name.ends_with(".localhost")
        || allowed.iter().any(|own| own.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(host: &str) -> bool {
        let local = "192.0.2.7".parse().ok();
        name_of(host).is_some_and(|name| is_own(&name, local, &["agents.example".into()]))
    }

    #[test]
    fn the_server_goes_by_loopback_its_address_and_the_names_it_was_given() {
        for own in [
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
            assert!(passes(own), "{own}");
        }
        for other in [
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
            assert!(!passes(other), "{other}");
        }
    }
}
