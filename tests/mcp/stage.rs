//! Sessions, and a server that serves them.

use std::process::Command;

use serde_json::{Value, json};

use crate::session::stage::Sessions;
use crate::support::caller::Caller;
use crate::support::mcp_client::McpClient;

/// `saggar mcp control`, with these options; not started.
pub(super) fn command(sessions: &Sessions, options: &[&str]) -> Command {
    let mut command = sessions.stage.place.saggar();
    command.args(["mcp", "control"]).args(options);
    command
}

/// A client of the sessions with these names.
pub(super) fn client(sessions: &Sessions, names: &[&str]) -> McpClient {
    let options: Vec<&str> = names.iter().flat_map(|name| ["--session", name]).collect();
    McpClient::begun(&sessions.stage.place, command(sessions, &options))
}

/// The same, which answers questions with this action.
pub(super) fn consenting_client(sessions: &Sessions, action: &'static str) -> McpClient {
    let command = command(sessions, &["--session", "dev"]);
    McpClient::of(&sessions.stage.place, command).consenting(action).begin()
}

/// A session `dev` with a file `a.txt` of one line.
pub(super) fn dev(caller: Caller) -> Sessions {
    let sessions = Sessions::new(caller);
    sessions.stage.place.make_file("work/a.txt", "one\n");
    sessions.create("dev", &[]);
    sessions
}

/// Runs a shell command in the only session, successfully; what it printed.
#[track_caller]
pub(super) fn shell(client: &mut McpClient, command: &str) -> String {
    let result = client.call("run_command", json!({ "command": command }));
    assert_eq!(result.structured["exitCode"], 0, "{command}: {result:?}");
    result.structured["stdout"].as_str().unwrap().to_owned()
}

/// The text of a result that is an error.
#[track_caller]
pub(super) fn error(client: &mut McpClient, tool: &str, arguments: Value) -> String {
    let result = client.call(tool, arguments);
    assert!(result.is_error, "{result:?}");
    result.text
}
