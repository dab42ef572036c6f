//! Events about the MCP servers of a session (`mcp_status`, as Ash stores them).

use crate::store::NewEvent;
use axum::http::Uri;
use serde_json::{Map, Value, json};

/// The MCP servers that the client gave a new session; `None` without any. Arguments and variables are absent, and so are
/// the parts of an URL that can hold a secret: the user, the path and the query.
pub(crate) fn configured_servers(servers: &Map<String, Value>) -> Option<NewEvent> {
    let servers = servers.iter().map(|(name, server)| {
        let mut shown = json!({ "name": name, "transport": transport(server) });
        if let Some(url) = server["url"].as_str().and_then(origin) {
            shown["url"] = url.into();
        }
        if server["command"].is_string() {
            shown["command"] = server["command"].clone();
        }
        shown
    });
    let servers: Vec<_> = servers.collect();
    (!servers.is_empty()).then(|| event(&json!({ "action": "configured", "servers": servers })))
}

fn transport(server: &Value) -> &str {
    let default = if server["url"].is_string() { "sse" } else { "stdio" };
    server["type"].as_str().unwrap_or(default)
}

/// Scheme, host and port of an URL.
fn origin(url: &str) -> Option<String> {
    let url: Uri = url.parse().ok()?;
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    Some(format!("{}://{}{port}", url.scheme_str()?, url.host()?))
}

/// The MCP servers without a connection that the agent lists when a turn begins (`system` message `init`, field
/// `mcp_servers`).
pub(super) fn failed_servers(message: &Value) -> Vec<NewEvent> {
    let listed = message["mcp_servers"].as_array().map_or(&[][..], Vec::as_slice);
    let failed =
        listed.iter().filter(|server| server["status"] == "failed" || server["status"] == "needs-auth");
    let error = |server: &Value| {
        let (name, status) = (server["name"].as_str()?, server["status"].as_str()?);
        Some(event(&json!({ "action": "error", "error": format!("{name}: {status}") })))
    };
    failed.filter_map(error).collect()
}

fn event(data: &Value) -> NewEvent {
    NewEvent::new("mcp_status", data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configured_servers_are_shown_without_secrets() {
        let servers = json!({
            "docs": { "url": "https://user:secret@docs.example:8443/secret?key=secret" },
            "http": { "type": "http", "url": "http://a.example/mcp" },
            "local": { "command": "server", "args": ["secret"], "env": { "KEY": "secret" } },
            "odd": { "url": "a secret" },
            "none": "secret",
        });
        let event = configured_servers(servers.as_object().unwrap()).unwrap();
        assert_eq!(event.kind, "mcp_status");
        let expected = json!({
            "action": "configured",
            "servers": [
                { "name": "docs", "transport": "sse", "url": "https://docs.example:8443" },
                { "name": "http", "transport": "http", "url": "http://a.example" },
                { "name": "local", "transport": "stdio", "command": "server" },
                { "name": "none", "transport": "stdio" },
                { "name": "odd", "transport": "sse" },
            ],
        });
        assert_eq!(serde_json::from_str::<Value>(&event.data).unwrap(), expected);
        assert!(configured_servers(&Map::new()).is_none());
    }

    #[test]
    fn failed_servers_are_errors() {
        let servers = json!([
            { "name": "a", "status": "connected" },
            { "name": "b", "status": "failed" },
            { "name": "c", "status": "pending" },
            { "name": "d", "status": "needs-auth" },
            { "status": "failed" },
        ]);
        let events = failed_servers(&json!({ "type": "system", "subtype": "init", "mcp_servers": servers }));
        let data: Vec<_> = events.iter().map(|event| event.data.as_str()).collect();
        assert_eq!(
            data,
            [r#"{"action":"error","error":"b: failed"}"#, r#"{"action":"error","error":"d: needs-auth"}"#]
        );
        assert!(failed_servers(&json!({ "mcp_servers": "odd" })).is_empty());
    }
}
