//! Text of a document in a message: a terminal obeys what it is shown, and a log has lines.

/// The longest message that may quote a file.
const MAX_MESSAGE: usize = 400;

/// The message on one line and of bounded length: a file may be quoted in it.
pub(crate) fn printable(message: &str) -> String {
    match message.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => escaped(&message[..end]) + "…",
        None => escaped(message),
    }
}

/// The text without control characters: a terminal obeys what it is shown.
pub(crate) fn escaped(text: &str) -> String {
    let mut result = String::new();
    for c in text.chars() {
        match c {
            '\n' => result.push_str("; "),
            c if !is_plain(c) => result.extend(c.escape_default()),
            c => result.push(c),
        }
    }
    result
}

/// Whether a terminal shows a character as what it is: it obeys some, shows nothing of others, and some make it show a
/// text in another order than it has (CVE-2021-42574).
pub(crate) fn is_plain(c: char) -> bool {
    let hidden =
        matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    !c.is_control() && !hidden
}
