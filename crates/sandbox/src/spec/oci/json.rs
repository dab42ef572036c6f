//! Parses bytes to a document, with errors that name the field.

use super::field_path::FieldPath;
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::text::summary;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Parses `bytes` as one JSON object. The parser bounds the depth (128), and unknown fields are skipped
/// without recursion.
///
/// # Errors
/// `Code::Invalid` for bytes that are not JSON or do not match the type, and for a NUL in a string: no path
/// and no argument can contain one.
pub(super) fn read_object<T: DeserializeOwned + Serialize>(bytes: &[u8]) -> Result<T> {
    let invalid = |what: String| Error::new(Code::Invalid, what);
    match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{') => {}
        None => return Err(invalid("is empty; it must be a JSON object".into())),
        Some(_) => return Err(invalid("must be a JSON object, { … }".into())),
    }
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let document: T = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        match path.as_str() {
            // A fault without a key is a syntax error.
            "." | "?" => invalid(format!("is not valid: {}", summary(&error.inner().to_string()))),
            field => invalid(format!("{}: {}", summary(field), summary(&error.inner().to_string()))),
        }
    })?;
    reader.end().map_err(|error| invalid(format!("has more text after its end: {error}")))?;
    // Without this escape no string contains a NUL; a raw one is a syntax error.
    if bytes.windows(6).any(|window| window == b"\\u0000") {
        reject_nul(&document)?;
    }
    Ok(document)
}

/// Refuses a NUL in any string of the known fields, except annotations, which reach no system call.
fn reject_nul<T: Serialize>(document: &T) -> Result<()> {
    let value = serde_json::to_value(document)
        .map_err(|error| Error::new(Code::Invalid, format!("is not valid: {error}")))?;
    let Value::Object(fields) = &value else { return Ok(()) };
    for (key, value) in fields.iter().filter(|(key, _)| *key != "annotations") {
        check_nul(value, FieldPath::root(key))?;
    }
    Ok(())
}

fn check_nul(value: &Value, field: FieldPath<'_>) -> Result<()> {
    match value {
        Value::String(text) if text.contains('\0') => Err(field.invalid("holds a NUL character; remove it")),
        Value::Array(items) => {
            items.iter().enumerate().try_for_each(|(index, item)| check_nul(item, field.index(index)))
        }
        Value::Object(fields) => fields.iter().try_for_each(|(key, value)| {
            if key.contains('\0') {
                return Err(field.invalid("has a key that holds a NUL character; remove it"));
            }
            check_nul(value, field.key(key))
        }),
        _ => Ok(()),
    }
}
