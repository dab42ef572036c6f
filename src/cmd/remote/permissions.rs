//! `saggar remote permission`: the open permission requests of a session.

use super::{json_line, list};
use crate::cli::remote::RemotePermissionCommand;
use crate::cmd::print_raw;
use crate::error::Result;
use saggar_remote::Connection;
use serde_json::json;

pub(super) fn run(server: &Connection, command: &RemotePermissionCommand) -> Result<u8> {
    match command {
        RemotePermissionCommand::List(args) => {
            let answer = server.get(&["api", "sessions", &args.id, "permissions"], &[])?;
            let requests = list(&answer, "permissions");
            print_raw(&requests.iter().map(json_line).collect::<String>())?;
        }
        RemotePermissionCommand::Allow(args) => answer(server, &args.id, &args.request, true)?,
        RemotePermissionCommand::Deny(args) => answer(server, &args.id, &args.request, false)?,
    }
    Ok(0)
}

/// Answers a request.
pub(super) fn answer(server: &Connection, session: &str, request: &str, allow: bool) -> Result<()> {
    let behavior = if allow { "allow" } else { "deny" };
    let path = ["api", "sessions", session, "permissions", request];
    server.post(&path, &json!({ "behavior": behavior })).map(drop)
}
