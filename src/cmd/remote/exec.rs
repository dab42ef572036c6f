//! `saggar remote exec`: runs a command in the sandbox of a session.

use crate::cli::remote::RemoteExecArgs;
use crate::cmd::print_raw;
use crate::error::{Code, Error, Result};
use saggar_remote::Connection;
use serde_json::json;
use std::io::Write;

pub(super) fn run(server: &Connection, args: &RemoteExecArgs) -> Result<u8> {
    let words: Option<Vec<&str>> = args.command.iter().map(|word| word.to_str()).collect();
    // The server runs it by a shell.
    let command = words.and_then(|words| shlex::try_join(words).ok()).ok_or_else(|| {
        Error::new(Code::Usage, "the command is not valid UTF-8 or contains a NUL character")
    })?;
    let mut body = json!({ "command": command });
    if let Some(seconds) = args.timeout {
        body["timeout"] = (seconds * 1000).into();
    }
    let answer = server.post(&["api", "sessions", &args.id, "exec"], &body)?;
    print_raw(super::text(&answer, "stdout"))?;
    // It may be closed; the exit status remains.
    let _ = std::io::stderr().write_all(super::text(&answer, "stderr").as_bytes());
    if answer["truncated"] == true {
        crate::log::print_line("output was removed: of each stream, at most 10 MiB remain");
    }
    Ok(answer["exitCode"].as_u64().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
