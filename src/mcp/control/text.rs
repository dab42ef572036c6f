//! The outputs of the tools: text for a model, and the same as JSON where a program may want it.

use super::wire::{Changes, SessionSummary};
use crate::mcp::ToolOutput;
use crate::session::logs::LogEntry;
use crate::text::{DisplayEscaped, one_line, prefix, suffix};
use serde_json::{Value, json};
use std::fmt::Write;

/// Most bytes of each stream of a command in its output: as many from the beginning as from the end.
const MAX_STREAM: usize = 128 << 10;
/// Most changes that a question names.
const MAX_ASKED_CHANGES: usize = 100;

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
    let stream = |name: &str| shorten(result[name].as_str().unwrap_or_default());
    let (stdout, out_is_cut) = stream("stdout");
    let (stderr, err_is_cut) = stream("stderr");
    let exit_code = &result["exitCode"];
    let mut text = stdout.clone();
    if !stderr.is_empty() {
        end_line(&mut text);
        let _ = write!(text, "[standard error]\n{stderr}");
    }
    end_line(&mut text);
    let _ = write!(text, "[exit status {exit_code}]");
    let is_cut = out_is_cut || err_is_cut || result["truncated"] == true;
    ToolOutput {
        note: is_cut.then(|| {
            "The output is not complete: write it to a file of the workspace, and read that in parts."
                .to_owned()
        }),
        ..output(
            text,
            json!({ "exitCode": exit_code, "stdout": stdout, "stderr": stderr, "truncated": is_cut }),
        )
    }
}

/// The result of `files.list`.
pub(super) fn names(result: &Value) -> ToolOutput {
    let entries = result["entries"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut text = String::new();
    for entry in entries {
        let (kind, name) =
            (entry["kind"].as_str().unwrap_or_default(), entry["name"].as_str().unwrap_or_default());
        let _ = writeln!(text, "{kind:<9} {:>12} {}", entry["size"].as_u64().unwrap_or(0), one_line(name));
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
    let mut text = format!("Apply these changes of the session {session} to {folder}?\n\n");
    for line in lines.iter().take(MAX_ASKED_CHANGES) {
        let _ = writeln!(text, "{line}");
    }
    match lines.len().saturating_sub(MAX_ASKED_CHANGES) {
        0 => {}
        more => {
            let _ = writeln!(text, "and {more} more");
        }
    }
    text
}

pub(super) fn applied(Changes { folder, lines, .. }: &Changes) -> ToolOutput {
    let text = match lines.as_slice() {
        [] => "Nothing has changed.".to_owned(),
        lines => format!("Applied to {folder}:\n{}", lines.join("\n")),
    };
    output(text, json!({ "folder": folder, "changes": lines }))
}

pub(super) fn logs(entries: &[LogEntry]) -> ToolOutput {
    let mut text = String::new();
    for entry in entries {
        let time = i64::try_from(entry.ts).ok().and_then(|ts| jiff::Timestamp::from_millisecond(ts).ok());
        let time = time.unwrap_or_default().strftime("%Y-%m-%dT%H:%M:%S.%3fZ");
        let _ = writeln!(text, "{} {time} {:<5} {}", entry.index, entry.level.name(), one_line(&entry.text));
    }
    if entries.is_empty() {
        text.push_str("There are no more entries.");
    }
    output(text, json!({ "entries": entries }))
}

fn output(text: String, structured: Value) -> ToolOutput {
    ToolOutput { text, note: None, structured: Some(structured) }
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

/// The text without its middle if it is long, and whether it was shortened.
fn shorten(text: &str) -> (String, bool) {
    if text.len() <= MAX_STREAM {
        return (text.to_owned(), false);
    }
    let (first, last) = (prefix(text, MAX_STREAM / 2), suffix(text, MAX_STREAM / 2));
    (format!("{first}\n[{} bytes left out]\n{last}", text.len() - first.len() - last.len()), true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_stream_keeps_its_beginning_and_its_end() {
        let (text, is_cut) = shorten("short\n");
        assert_eq!((text.as_str(), is_cut), ("short\n", false));
        let long = format!("first{}last", "ä".repeat(MAX_STREAM));
        let (text, is_cut) = shorten(&long);
        assert!(is_cut && text.starts_with("firstä") && text.ends_with("älast"), "{}", text.len());
        assert!(text.len() < MAX_STREAM + 100 && text.contains(" bytes left out]\n"), "{}", text.len());
    }

    #[test]
    fn the_output_of_a_command_ends_with_its_status() {
        let result = json!({ "exitCode": 3, "stdout": "a", "stderr": "b\n", "truncated": false });
        let output = command(&result);
        assert_eq!(output.text, "a\n[standard error]\nb\n[exit status 3]");
        assert_eq!((output.note, output.structured), (None, Some(result)));
        let output = command(&json!({ "exitCode": 0, "stdout": "", "stderr": "", "truncated": true }));
        assert_eq!(output.text, "[exit status 0]");
        assert!(output.note.is_some());
    }

    #[test]
    fn a_question_names_the_changes() {
        let lines = (0..MAX_ASKED_CHANGES + 2).map(|number| format!("A {number}")).collect();
        let changes = Changes { session: "dev".into(), folder: "/srv/x".into(), lines };
        let text = question(&changes);
        assert!(
            text.starts_with("Apply these changes of the session dev to /srv/x?\n\nA 0\nA 1\n"),
            "{text}"
        );
        assert!(text.ends_with("A 99\nand 2 more\n"), "{text}");
    }
}
