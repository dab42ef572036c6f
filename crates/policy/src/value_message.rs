//! The messages of serde about a value of the wrong type, in the words of a policy file.

/// The message in the words of a policy file; unchanged if it is of another kind.
pub(super) fn plain_message(message: &str) -> String {
    let said = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    match said.and_then(|said| said.rsplit_once(", expected ")) {
        Some((found, expected)) => {
            format!("must be {}, and is {}", plain_expectation(expected), plain_value(found))
        }
        None => message.to_owned(),
    }
}

/// What is expected, without the names of types of Rust.
fn plain_expectation(expected: &str) -> String {
    let unsigned = |most: u64| format!("a whole number from 0 to {most}");
    match expected {
        "u8" => unsigned(u8::MAX.into()),
        "u16" => unsigned(u16::MAX.into()),
        "u32" => unsigned(u32::MAX.into()),
        "u64" => "a whole number, 0 or more".to_owned(),
        "i64" => "a whole number".to_owned(),
        "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "a table".to_owned(),
        _ => expected.to_owned(),
    }
}

/// A value as `serde::de::Unexpected` shows it.
fn plain_value(found: &str) -> String {
    let quoted = |kind: &str| {
        let (value, _type) = found.strip_prefix(kind)?.strip_prefix(" `")?.split_once('`')?;
        Some(value)
    };
    if let Some(number) = quoted("integer").or_else(|| quoted("floating point")) {
        return format!("the number {number}");
    }
    if let Some(value) = quoted("boolean") {
        return value.to_owned();
    }
    match found {
        "sequence" => "a list".to_owned(),
        "map" => "a table".to_owned(),
        "null" | "unit value" => "null".to_owned(),
        _ if found.starts_with("string ") => format!("the {found}"),
        _ => found.to_owned(),
    }
}
