//! What a sender may give (AM-05 to AM-07, AM-20). Messages of other programs are not checked: reading is lenient.

use super::{Draft, MessageType};
use crate::error::{Error, ErrorKind, Result};

/// Most bytes of content, 16 MiB. AM-20 requires 10 MiB.
pub const MAX_CONTENT: usize = 16 << 20;
/// Most bytes of an agent's name.
pub const MAX_AGENT_NAME: usize = 64;

/// Checks the name of an agent: 1 to 64 bytes of `A-Z a-z 0-9 . _ -`, and neither `.` nor `-` at the start. It is the
/// name of a file below `cursors/` and an argument of commands.
///
/// # Errors
/// [`ErrorKind::Invalid`].
pub fn check_agent_name(name: &str) -> Result<()> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let is_valid = (1..=MAX_AGENT_NAME).contains(&name.len())
        && name.bytes().all(is_allowed)
        && !name.starts_with(['.', '-']);
    if is_valid {
        return Ok(());
    }
    let shown: String = name.chars().take(MAX_AGENT_NAME).flat_map(char::escape_debug).collect();
    Err(Error::new(ErrorKind::Invalid, format!("invalid agent name \"{shown}\""))
        .with_hint("use 1 to 64 letters, digits, '.', '_' or '-', with a letter, digit or '_' first"))
}

/// Checks all parts of a draft and its sender.
pub(super) fn check_draft(from: &str, draft: &Draft) -> Result<()> {
    check_agent_name(from)?;
    if !draft.to.is_empty() {
        check_agent_name(&draft.to)?;
    }
    let invalid = |message: String, hint: &str| Err(Error::new(ErrorKind::Invalid, message).with_hint(hint));
    let kind = draft.message_type;
    match (kind, draft.signal) {
        (MessageType::Signal, None) => {
            return invalid(
                format!("message from {from} has the type signal and no signal"),
                "set the signal to DONE, PASS or FAIL",
            );
        }
        (MessageType::Signal, Some(_)) => {}
        (_, Some(signal)) => {
            return invalid(
                format!("message from {from} has the type {kind} and the signal {signal}"),
                "send signals in a message of their own, with the type signal",
            );
        }
        (_, None) if draft.content.is_empty() => {
            return invalid(
                format!("{kind} message from {from} has no content"),
                "give a text; only signals may have none",
            );
        }
        (_, None) => {}
    }
    if draft.content.len() > MAX_CONTENT {
        return invalid(
            format!("{kind} message from {from} has {} bytes of content", draft.content.len()),
            "send at most 16 MiB; put larger data into a file and send its path",
        );
    }
    Ok(())
}
