//! Looking into a line of JSON without building a tree of it: a few named top-level fields, as the text
//! they stand in.
//!
//! Nothing here recurses over the input, and nothing is kept of a field that was not asked for, so that
//! neither depth nor a million keys cost memory. Numbers and strings are never converted.

use serde::Deserializer as _;
use serde::de::{DeserializeSeed, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// How many unknown field names are remembered for the log, and how many bytes of each.
const UNKNOWN_KEPT: usize = 16;
const UNKNOWN_LEN: usize = 64;

/// Keys that no command may have at top level: a JavaScript reader would take them for its own (BP-16).
const FORBIDDEN: [&str; 3] = ["__proto__", "constructor", "prototype"];

/// What stands at the top level of one JSON object.
#[derive(Debug)]
pub struct Scan<'a, const N: usize> {
    /// The text of each field that was asked for; of a repeated one the last, as JavaScript reads it.
    pub fields: [Option<&'a str>; N],
    /// The index of a field that stands there twice.
    pub repeated: Option<usize>,
    /// A forbidden key that stands there.
    pub forbidden: Option<&'static str>,
    /// Names of fields nobody asked for: the first few, shortened.
    pub unknown: Vec<String>,
}

/// Reads one JSON object and finds the fields `names` in it, wherever they stand.
///
/// # Errors
/// The reason why `text` is not one JSON object.
pub fn scan<'a, const N: usize>(text: &'a str, names: &[&str; N]) -> Result<Scan<'a, N>, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let found = reader.deserialize_map(Fields { names })?;
    reader.end()?;
    Ok(found)
}

/// The string that `json` is, or `None` when it is another kind of value.
pub fn string(json: &str) -> Option<String> {
    serde_json::from_str(json).ok()
}

/// The JSON text of a string.
pub fn quote(text: &str) -> String {
    // Writing a string to memory cannot fail; serde_json's signature says it may.
    serde_json::to_string(text).unwrap_or_default()
}

/// Whether objects and arrays in `text` are nested deeper than `limit`. Linear, without recursion; says
/// nothing about whether `text` is JSON.
pub fn deeper_than(text: &str, limit: usize) -> bool {
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

/// The same JSON without the characters that some readers take for the end of a line.
///
/// A raw carriage return can only be white space in JSON, and U+2028 and U+2029 can only be inside a string,
/// so neither change alters the value. A line cut in two by the agent's reader would end the agent.
pub fn one_line(json: &str) -> Cow<'_, str> {
    if !json.contains(['\r', '\u{2028}', '\u{2029}']) {
        return Cow::Borrowed(json);
    }
    let plain = json.replace('\r', " ").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029");
    Cow::Owned(plain)
}

/// Shortens a name that came from outside, for an error text.
pub fn shorten(text: &str) -> String {
    match text.char_indices().nth(UNKNOWN_LEN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

struct Fields<'n, const N: usize> {
    names: &'n [&'n str; N],
}

impl<'de, const N: usize> Visitor<'de> for Fields<'_, N> {
    type Value = Scan<'de, N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = Scan { fields: [None; N], repeated: None, forbidden: None, unknown: Vec::new() };
        while let Some(raw) = map.next_key_seed(Raw)? {
            let value = map.next_value_seed(Raw)?;
            // A key is compared as a reader would see it, after its escapes. One that is no text (a lone
            // surrogate) is none of ours.
            let Some(key) = unquote(raw) else { continue };
            if let Some(at) = self.names.iter().position(|name| *name == key) {
                if found.fields[at].replace(value).is_some() {
                    found.repeated = Some(at);
                }
            } else if let Some(bad) = FORBIDDEN.into_iter().find(|bad| *bad == key) {
                found.forbidden = Some(bad);
            } else if found.unknown.len() < UNKNOWN_KEPT {
                found.unknown.push(shorten(&key));
            }
        }
        Ok(found)
    }
}

/// The text of a JSON string; borrowed when it has no escapes.
fn unquote(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') { string(raw).map(Cow::Owned) } else { Some(Cow::Borrowed(inner)) }
}

/// Any JSON, as the text it stands in.
struct Raw;

impl<'de> DeserializeSeed<'de> for Raw {
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
        assert!(!deeper_than(r#"{"a":"[[[[\"[[","b":[]}"#, 2));
        assert!(deeper_than("[[[1]]]", 2));
        let deep = "[".repeat(5_000_000);
        assert!(deeper_than(&deep, 128));
        assert!(scan(&format!("{{\"a\":{deep}"), &["a"]).is_err());
    }

    #[test]
    fn one_line_takes_out_what_ends_lines_elsewhere() {
        assert_eq!(one_line("{\"a\":\r\"x\u{2028}y\"}"), "{\"a\": \"x\\u2028y\"}");
        assert!(matches!(one_line("{}"), Cow::Borrowed(_)));
    }
}
