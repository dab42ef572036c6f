//! Cleans the content of a user message (RB-14, RB-15): empty content is not a message, and `mediaType` of an image
//! block is renamed to `media_type`. Every other byte is unchanged.

use crate::proto::json;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::ops::Range;

/// The key that some servers write; agents read [`SNAKE_KEY`].
const CAMEL_KEY: &str = "mediaType";
const SNAKE_KEY: &str = "media_type";

/// The content for the agent; `None` if it is empty or is neither a string nor an array. Allocates only if a key is
/// renamed.
pub fn clean_content(content: &str) -> Option<Cow<'_, str>> {
    match content.as_bytes() {
        b"\"\"" => None,
        [b'"', ..] => Some(Cow::Borrowed(content)),
        [b'[', inner @ ..] if inner.trim_ascii() != b"]" => Some(rename_image_keys(content)),
        _ => None,
    }
}

/// Renames the key in every image block of the array.
fn rename_image_keys(content: &str) -> Cow<'_, str> {
    if !content.contains(CAMEL_KEY) {
        return Cow::Borrowed(content);
    }
    let Ok(blocks) = serde_json::from_str::<Vec<&RawValue>>(content) else { return Cow::Borrowed(content) };
    let keys: Vec<Range<usize>> = blocks
        .iter()
        .filter_map(|block| key_of_image(block.get()))
        .map(|key| range_in(content, key))
        .collect();
    if keys.is_empty() {
        return Cow::Borrowed(content);
    }
    let mut clean = String::with_capacity(content.len() + keys.len());
    let mut from = 0;
    for key in keys {
        clean.push_str(&content[from..key.start]);
        clean.push_str(SNAKE_KEY);
        from = key.end;
    }
    clean.push_str(&content[from..]);
    Cow::Owned(clean)
}

/// The key to rename in this block, if the block is an image without the correct key.
fn key_of_image(block: &str) -> Option<&str> {
    let [kind, source] = json::scan(block, &["type", "source"]).ok()?.fields;
    if kind.and_then(json::parse_string)? != "image" {
        return None;
    }
    let source = source?;
    let [camel, snake] = json::scan(source, &[CAMEL_KEY, SNAKE_KEY]).ok()?.fields;
    let (value, None) = (camel?, snake) else { return None };
    // The key precedes its value: `"mediaType" : `.
    let before = &source[..range_in(source, value).start];
    let key = before.trim_ascii_end().strip_suffix(':')?.trim_ascii_end();
    // A key with escapes in it is not renamed; servers do not write such keys.
    let key = key.strip_suffix('"')?;
    key.ends_with(CAMEL_KEY).then(|| &key[key.len() - CAMEL_KEY.len()..])
}

/// The range of `part`, a slice of `whole`, in `whole`.
fn range_in(whole: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    start..start + part.len()
}
