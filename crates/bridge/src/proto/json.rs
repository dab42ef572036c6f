//! Scans a line of JSON without building a tree: finds a few named top-level fields and returns their original text.
//!
//! Nothing here recurses over the input, and fields that were not requested are not stored. Neither depth nor a
//! million keys cost memory. Numbers and strings are never converted.

use serde::Deserializer as _;
use serde::de::{DeserializeSeed, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// Maximum number of unknown field names that are stored for the log.
const MAX_UNKNOWN_FIELDS: usize = 16;
const MAX_UNKNOWN_NAME: usize = 64;

/// Keys that a command may not have at top level, because a JavaScript reader resolves them on its own objects
/// (BP-16).
const FORBIDDEN_KEYS: [&str; 3] = ["__proto__", "constructor", "prototype"];

/// The top-level fields of one JSON object.
#[derive(Debug)]
pub struct JsonScan<'a, const N: usize> {
    /// The text of each requested field. For a repeated field, the last one, as in JavaScript.
    pub fields: [Option<&'a str>; N],
    /// The index of a requested field that occurs twice.
    pub repeated: Option<usize>,
    /// A forbidden key that occurs.
    pub forbidden: Option<&'static str>,
    /// Names of other fields: the first few, shortened.
    pub unknown: Vec<String>,
}

/// Parses one JSON object and finds the fields `names` in it, in any order.
///
/// # Errors
/// The reason why `text` is not one JSON object.
pub fn scan<'a, const N: usize>(
    text: &'a str,
    names: &[&str; N],
) -> Result<JsonScan<'a, N>, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let found = reader.deserialize_map(FieldVisitor { names })?;
    reader.end()?;
    Ok(found)
}

/// The string value of `json`, or `None` if it is another type of value.
pub(crate) fn parse_string(json: &str) -> Option<String> {
    serde_json::from_str(json).ok()
}

/// Encodes a string as JSON.
pub fn quote(text: &str) -> String {
    // Encoding a string to memory cannot fail; serde_json's signature allows for failure.
    serde_json::to_string(text).unwrap_or_default()
}

/// Whether objects and arrays in `text` are nested deeper than `limit`. Linear, without recursion. Does not check that
/// `text` is JSON.
pub(crate) fn is_deeper_than(text: &str, limit: usize) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for byte in text.bytes() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                depth += 1;
                if depth > limit {
                    return true;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// Returns the same JSON without the characters that some readers treat as line ends.
///
/// A raw carriage return can only be white space in JSON, and U+2028 and U+2029 can only be inside a string, so
/// neither change alters the value. If the agent's reader split the line there, the agent would exit.
pub fn escape_line_breaks(json: &str) -> Cow<'_, str> {
    if !json.contains(['\r', '\u{2028}', '\u{2029}']) {
        return Cow::Borrowed(json);
    }
    let plain = json.replace('\r', " ").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029");
    Cow::Owned(plain)
}

/// Shortens a name from untrusted input, for an error text.
pub fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_UNKNOWN_NAME) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

struct FieldVisitor<'n, const N: usize> {
    names: &'n [&'n str; N],
}

impl<'de, const N: usize> Visitor<'de> for FieldVisitor<'_, N> {
    type Value = JsonScan<'de, N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = JsonScan { fields: [None; N], repeated: None, forbidden: None, unknown: Vec::new() };
        while let Some(raw) = map.next_key_seed(RawSeed)? {
            let value = map.next_value_seed(RawSeed)?;
            // The key is compared after its escapes are decoded, as a reader would see it. A key that is not valid
            // text (a lone surrogate) matches no field.
            let Some(key) = unquote_key(raw) else { continue };
            if let Some(at) = self.names.iter().position(|name| *name == key) {
                if found.fields[at].replace(value).is_some() {
                    found.repeated = Some(at);
                }
            } else if let Some(bad) = FORBIDDEN_KEYS.into_iter().find(|bad| *bad == key) {
                found.forbidden = Some(bad);
            } else if found.unknown.len() < MAX_UNKNOWN_FIELDS {
                found.unknown.push(shorten(&key));
            }
        }
        Ok(found)
    }
}

/// The text of a JSON string; borrowed if it has no escapes.
fn unquote_key(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') { parse_string(raw).map(Cow::Owned) } else { Some(Cow::Borrowed(inner)) }
}

/// Deserialises any JSON value as its original text.
struct RawSeed;

impl<'de> DeserializeSeed<'de> for RawSeed {
    type Value = &'de str;

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<&'de str, D::Error> {
        let raw: &'de RawValue = serde::Deserialize::deserialize(reader).map_err(D::Error::custom)?;
        Ok(raw.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_wherever_they_stand_as_the_text_they_are() {
        let line = r#" {"a":[1,{"type":"no"}],"n":1e400,"\u0074ype":"x\ud800","z":12345678901234567890} "#;
        let scan = scan(line, &["type", "n", "z", "none"]).unwrap();
        assert_eq!(scan.fields, [Some(r#""x\ud800""#), Some("1e400"), Some("12345678901234567890"), None]);
        assert_eq!(scan.unknown, ["a"]);
    }

    #[test]
    fn repeated_forbidden_and_unreadable_keys_are_seen() {
        let scan = scan(r#"{"a":1,"\u005f_proto__":2,"a":3,"\ud800":4}"#, &["a"]).unwrap();
        assert_eq!((scan.fields, scan.repeated, scan.forbidden), ([Some("3")], Some(0), Some("__proto__")));
    }

    #[test]
    fn what_is_not_one_object_is_an_error() {
        for bad in
            ["", "1", "[]", "null", "\"x\"", "{", "{}{}", "{} x", "{\"a\":}", "{\"a\":\"\0\"}", "{'a':1}"]
        {
            assert!(scan(bad, &["a"]).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn depth_is_counted_outside_strings_only() {
        assert!(!is_deeper_than(r#"{"a":"[[[[\"[[","b":[]}"#, 2));
        assert!(is_deeper_than("[[[1]]]", 2));
        let deep = "[".repeat(5_000_000);
        assert!(is_deeper_than(&deep, 128));
        assert!(scan(&format!("{{\"a\":{deep}"), &["a"]).is_err());
    }

    #[test]
    fn one_line_takes_out_what_ends_lines_elsewhere() {
        assert_eq!(escape_line_breaks("{\"a\":\r\"x\u{2028}y\"}"), "{\"a\": \"x\\u2028y\"}");
        assert!(matches!(escape_line_breaks("{}"), Cow::Borrowed(_)));
    }
}
