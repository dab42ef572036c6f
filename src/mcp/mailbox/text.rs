//! The texts of the tools. Clients read them; docs/requirements.md has the rows, AM-14 to AM-17.

use crate::mcp::ToolOutput;
use saggar_mailbox::{Page, Statistics};
use serde_json::json;
use std::fmt::Write;

/// The counts of a mailbox.
pub(super) fn status(counts: &Statistics) -> String {
    let mut text = format!(
        "Bridge Status:\n  Total Messages: {}\n  Done Signal: {}\n  Pass Count: {}\n  Fail Count: {}\n  Messages by Agent:\n",
        counts.total, counts.done, counts.pass, counts.fail
    );
    for (agent, count) in &counts.by_agent {
        let _ = writeln!(text, "    {agent}: {count}");
    }
    text.push_str("  Messages by Type:\n");
    for (message_type, count) in &counts.by_type {
        let _ = writeln!(text, "    {message_type}: {count}");
    }
    text
}

/// The messages of a page. Ids are in the JSON and in the note, since the text of a message has none.
pub(super) fn page(page: &Page) -> ToolOutput {
    let mut text = String::new();
    for (number, message) in (1..).zip(&page.messages) {
        let _ = write!(text, "[{number}] from={} type={}", message.from, message.message_type);
        if let Some(signal) = message.signal {
            let _ = write!(text, " signal={signal}");
        }
        let _ = write!(text, "\n{}\n\n", message.content);
    }
    if page.messages.is_empty() {
        text.push_str("No new messages");
    }
    ToolOutput {
        text,
        note: note(page),
        structured: Some(json!({ "messages": page.messages, "more": page.more })),
    }
}

/// What a model needs beside the messages.
fn note(page: &Page) -> Option<String> {
    let mut sentences = Vec::new();
    if page.gap {
        sentences.push("Older messages were removed before you received them.".to_owned());
    }
    if let Some(last) = page.messages.last() {
        sentences.push(format!("The id of the last message is {}.", last.id));
    }
    if page.more {
        sentences.push("There are more messages: call receive_messages again.".to_owned());
    }
    if page.unreadable_count > 0 {
        sentences.push(format!("{} lines of the mailbox are no messages.", page.unreadable_count));
    }
    (!sentences.is_empty()).then(|| sentences.join(" "))
}
