//! The content of a user message, cleaned up (RB-14, RB-15): what is empty is no message, and image blocks
//! that spell `mediaType` spell `media_type`. Every other byte stays as it is.

use crate::bridge::proto::json;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::ops::Range;

/// The key that some servers write, and the one that agents read.
const CAMEL: &str = "mediaType";
const SNAKE: &str = "media_type";

/// The content as the agent is told it; `None` when the message says nothing: neither a string nor an array,
/// or an empty one. Nothing is allocated unless a key is renamed.
pub fn clean(content: &str) -> Option<Cow<'_, str>> {
    match content.as_bytes() {
        b"\"\"" => None,
        [b'"', ..] => Some(Cow::Borrowed(content)),
        [b'[', inner @ ..] if inner.trim_ascii() != b"]" => Some(blocks(content)),
        _ => None,
    }
}

/// Renames the key in every image block of the array.
fn blocks(content: &str) -> Cow<'_, str> {
    if !content.contains(CAMEL) {
        return Cow::Borrowed(content);
    }
    let Ok(blocks) = serde_json::from_str::<Vec<&RawValue>>(content) else { return Cow::Borrowed(content) };
    let keys: Vec<Range<usize>> =
        blocks.iter().filter_map(|block| key_of_image(block.get())).map(|key| place(content, key)).collect();
    if keys.is_empty() {
        return Cow::Borrowed(content);
    }
    let mut clean = String::with_capacity(content.len() + keys.len());
    let mut from = 0;
    for key in keys {
        clean.push_str(&content[from..key.start]);
        clean.push_str(SNAKE);
        from = key.end;
    }
    clean.push_str(&content[from..]);
    Cow::Owned(clean)
}

/// The key to rename in this block, if it is an image without the right one.
fn key_of_image(block: &str) -> Option<&str> {
    let [kind, source] = json::scan(block, &["type", "source"]).ok()?.fields;
    if kind.and_then(json::string)? != "image" {
        return None;
    }
    let source = source?;
    let [camel, snake] = json::scan(source, &[CAMEL, SNAKE]).ok()?.fields;
    let (value, None) = (camel?, snake) else { return None };
    // The key stands before its value: `"mediaType" : `.
    let before = &source[..place(source, value).start];
    let key = before.trim_ascii_end().strip_suffix(':')?.trim_ascii_end();
    // One with escapes in it stays: nobody writes those.
    let key = key.strip_suffix('"')?;
    key.ends_with(CAMEL).then(|| &key[key.len() - CAMEL.len()..])
}

/// Where `part`, a piece of `whole`, stands in it.
fn place(whole: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    start..start + part.len()
}
