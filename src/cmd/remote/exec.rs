//! `saggar remote exec`: runs a command in the sandbox of a session.

use crate::cli::remote::RemoteExecArgs;
use crate::cmd::shell_command;
use crate::error::Result;
use saggar_remote::Connection;
use serde_json::json;

pub(super) fn run(server: &Connection, args: &RemoteExecArgs) -> Result<u8> {
    let mut body = json!({ "command": shell_command::join(&args.command)? });
    if let Some(seconds) = args.timeout {
        body["timeout"] = (seconds * 1000).into();
    }
    let answer = server.post(&["api", "sessions", &args.id, "exec"], &body)?;
    let (stdout, stderr) = (super::text(&answer, "stdout"), super::text(&answer, "stderr"));
    shell_command::print_output(stdout, stderr, answer["truncated"] == true)?;
    Ok(answer["exitCode"].as_u64().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
