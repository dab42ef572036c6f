//! The outputs of the tools: text for a model, and the same as JSON where a program may want it.

use super::wire::{Changes, SessionSummary};
use crate::mcp::ToolOutput;
use crate::session::logs::LogEntry;
use crate::text::{DisplayEscaped, one_line};
use serde_json::{Value, json};
use std::fmt::Write;

pub(super) fn sessions(sessions: &[SessionSummary]) -> ToolOutput {
    let mut text = String::new();
    for SessionSummary { session, state, served, folder } in sessions {
        let is_served = if *served { "" } else { ", without a sandbox" };
        let _ = writeln!(text, "{session}: {state}{is_served}; folder {}", folder.escaped());
    }
    if sessions.is_empty() {
        text.push_str("There is no session that the policy names.");
    }
    output(text, json!({ "sessions": sessions }))
}

/// The result of `exec` (saggar-control(7)).
pub(super) fn command(result: &Value) -> ToolOutput {
    let stream = |name: &str| result[name].as_str().unwrap_or_default();
    let mut text = stream("stdout").to_owned();
    if !stream("stderr").is_empty() {
        end_line(&mut text);
        let _ = write!(text, "[standard error]\n{}", stream("stderr"));
    }
    end_line(&mut text);
    let _ = match result["timedOut"] == true {
        true => write!(text, "[killed at its timeout]"),
        false => write!(text, "[exit status {}]", result["exitCode"]),
    };
    let note = "The output is not complete: write it to a file of the workspace, and read that in parts.";
    ToolOutput {
        note: (result["truncated"] == true).then(|| note.to_owned()),
        ..output(text, result.clone())
    }
}

/// The result of `files.list`.
pub(super) fn names(result: &Value) -> ToolOutput {
    let entries = result["entries"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut text = String::new();
    for entry in entries {
        let (kind, name) =
            (entry["kind"].as_str().unwrap_or_default(), entry["name"].as_str().unwrap_or_default());
        let _ = writeln!(text, "{kind:<9} {:>12} {}", entry["size"].as_u64().unwrap_or(0), name.escaped());
    }
    if entries.is_empty() {
        text.push_str("There are no more names.");
    }
    ToolOutput {
        note: result["next"]
            .as_str()
            .map(|next| format!("There may be more names: call again with after {next:?}.")),
        ..output(text, json!({ "entries": entries, "next": result["next"] }))
    }
}

/// The result of `files.read`.
pub(super) fn content(result: &Value) -> ToolOutput {
    let next = result["next"].as_u64();
    ToolOutput {
        text: result["content"].as_str().unwrap_or_default().to_owned(),
        note: next.map(|next| {
            format!("The file has {} bytes; the next part begins at offset {next}.", result["size"])
        }),
        structured: None,
    }
}

/// The end of `files.write`.
pub(super) fn written(params: &Value) -> ToolOutput {
    let path = params["path"].as_str().unwrap_or_default();
    ToolOutput { text: format!("Written: {}", one_line(path)), ..ToolOutput::default() }
}

pub(super) fn diff(text: String, is_truncated: bool) -> ToolOutput {
    let text = if text.is_empty() { "Nothing has changed.".to_owned() } else { text };
    let note =
        is_truncated.then(|| "This is not all of the difference: name paths to see the rest.".to_owned());
    ToolOutput { text, note, structured: None }
}

/// What a person is asked before changes are applied.
pub(super) fn question(Changes { session, folder, lines }: &Changes) -> String {
    format!("Apply these changes of the session {session} to {folder}?\n\n{}\n", lines.join("\n"))
}

pub(super) fn applied(Changes { folder, lines, .. }: &Changes) -> ToolOutput {
    let text = match lines.as_slice() {
        [] => "Nothing has changed.".to_owned(),
        lines => format!("Applied to {folder}:\n{}", lines.join("\n")),
    };
    output(text, json!({ "folder": folder, "changes": lines }))
}

pub(super) fn logs(entries: &[LogEntry], is_truncated: bool) -> ToolOutput {
    let mut text: String = entries.iter().map(LogEntry::to_line).collect();
    if entries.is_empty() {
        text.push_str("There are no more entries.");
    }
    let last = entries.last().filter(|_| is_truncated);
    ToolOutput {
        note: last.map(|last| format!("There may be more entries: call again with after {}.", last.index)),
        ..output(text, json!({ "entries": entries }))
    }
}

fn output(text: String, structured: Value) -> ToolOutput {
    ToolOutput { text, note: None, structured: Some(structured) }
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_a_command_ends_with_its_status() {
        let result =
            json!({ "exitCode": 3, "stdout": "a", "stderr": "b\n", "truncated": false, "timedOut": false });
        let output = command(&result);
        assert_eq!(output.text, "a\n[standard error]\nb\n[exit status 3]");
        assert_eq!((output.note, output.structured), (None, Some(result)));
        let result =
            json!({ "exitCode": 124, "stdout": "", "stderr": "", "truncated": true, "timedOut": true });
        let output = command(&result);
        assert_eq!(output.text, "[killed at its timeout]");
        assert!(output.note.is_some());
    }
}
