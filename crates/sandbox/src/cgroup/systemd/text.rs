//! Parses values in GVariant's text form, as used in annotations `org.systemd.property.NAME`: `'text'`, `true`, `5`,
//! `uint64 5`, `1.5`, `['a', 'b']`, `(1, 'x')`, `@as []`.

use super::wire::DbusValue;

/// The value, or the reason why the text is invalid.
pub(crate) fn parse(text: &str) -> Result<DbusValue, String> {
    let mut parser = GvariantParser { rest: text.trim_start() };
    let value = parser.value(0)?;
    match parser.rest {
        "" if lacks_type(&value) => Err("an empty array needs its type, as in @as []".to_owned()),
        "" => Ok(value),
        rest => Err(format!("{rest:?} follows a value")),
    }
}

struct GvariantParser<'a> {
    rest: &'a str,
}

/// Maximum nesting of arrays and tuples.
const MAX_DEPTH: usize = 8;

/// Type names that may precede a number.
const TYPES: [(&str, char); 8] = [
    ("boolean", 'b'),
    ("byte", 'y'),
    ("int32", 'i'),
    ("uint32", 'u'),
    ("int64", 'x'),
    ("uint64", 't'),
    ("double", 'd'),
    ("objectpath", 'o'),
];

impl GvariantParser<'_> {
    fn consume(&mut self, what: &str) -> bool {
        match self.rest.strip_prefix(what) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn word(&mut self) -> String {
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && !"+-._".contains(c));
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest.trim_start();
        word.to_owned()
    }

    fn value(&mut self, depth: usize) -> Result<DbusValue, String> {
        if depth > MAX_DEPTH {
            return Err("it is nested too deep".to_owned());
        }
        if let Some(rest) = self.rest.strip_prefix('@') {
            let end = rest.find(char::is_whitespace).ok_or("a type has no value")?;
            let (type_name, after) = rest.split_at(end);
            self.rest = after.trim_start();
            let value = self.value(depth + 1)?;
            return convert_to(value, type_name);
        }
        if self.rest.starts_with(['\'', '"']) {
            return self.string().map(DbusValue::Text);
        }
        if self.consume("[") {
            return array(self.list("]", depth)?);
        }
        if self.consume("(") {
            return self.list(")", depth).map(DbusValue::Struct);
        }
        let word = self.word();
        if let Some((_, letter)) = TYPES.iter().find(|(name, _)| *name == word) {
            let value = self.value(depth + 1)?;
            return convert_to(value, &letter.to_string());
        }
        match word.as_str() {
            "true" => Ok(DbusValue::Bool(true)),
            "false" => Ok(DbusValue::Bool(false)),
            "" => Err(format!("no value begins with {:?}", self.rest)),
            number => self::number(number),
        }
    }

    fn list(&mut self, end: &str, depth: usize) -> Result<Vec<DbusValue>, String> {
        let mut values = Vec::new();
        loop {
            if self.consume(end) {
                return Ok(values);
            }
            if !values.is_empty() && !self.consume(",") {
                return Err(format!("a comma or {end} is missing at {:?}", self.rest));
            }
            // `(1,)` is a tuple of one element.
            if !values.is_empty() && end == ")" && self.consume(end) {
                return Ok(values);
            }
            values.push(self.value(depth + 1)?);
        }
    }

    fn string(&mut self) -> Result<String, String> {
        let mut characters = self.rest.char_indices();
        let quote = characters.next().map(|(_, quote)| quote);
        let mut text = String::new();
        while let Some((at, character)) = characters.next() {
            if Some(character) == quote {
                self.rest = self.rest[at + 1..].trim_start();
                return Ok(text);
            }
            match character {
                '\\' => match characters.next().map(|(_, escaped)| escaped) {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some(other @ ('\\' | '\'' | '"')) => text.push(other),
                    other => return Err(format!("a string has \\{}", other.unwrap_or(' '))),
                },
                other => text.push(other),
            }
        }
        Err("a string has no end".to_owned())
    }
}

fn number(word: &str) -> Result<DbusValue, String> {
    let bad = || format!("{word:?} is not a value; put strings in quotes");
    if let Some(hex) = word.strip_prefix("0x") {
        return i32::from_str_radix(hex, 16).map(DbusValue::I32).map_err(|_| bad());
    }
    if let Ok(number) = word.parse::<i32>() {
        return Ok(DbusValue::I32(number));
    }
    // The number exceeds its default type: the type named before it determines its own.
    if let Ok(number) = word.parse::<i64>() {
        return Ok(DbusValue::I64(number));
    }
    if let Ok(number) = word.parse::<u64>() {
        return Ok(DbusValue::U64(number));
    }
    let is_double = word.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
    word.parse::<f64>().ok().filter(|_| is_double).map(DbusValue::Double).ok_or_else(bad)
}

/// An empty array has no element type yet.
fn array(values: Vec<DbusValue>) -> Result<DbusValue, String> {
    let first = values.first().map(DbusValue::signature).unwrap_or_default();
    if values.iter().any(|value| value.signature() != first) {
        return Err("an array has values of several types".to_owned());
    }
    Ok(DbusValue::Array(first, values))
}

fn lacks_type(value: &DbusValue) -> bool {
    match value {
        DbusValue::Array(of, values) => of.is_empty() || values.iter().any(lacks_type),
        DbusValue::Struct(fields) => fields.iter().any(lacks_type),
        _ => false,
    }
}

/// Converts a value to another type: numbers, and arrays that are empty or contain numbers.
pub(crate) fn convert_to(value: DbusValue, target: &str) -> Result<DbusValue, String> {
    let bad = |value: &DbusValue| format!("{value:?} is not of type {target}");
    let whole = match &value {
        DbusValue::I32(number) => Some(i128::from(*number)),
        DbusValue::I64(number) => Some(i128::from(*number)),
        DbusValue::U64(number) => Some(i128::from(*number)),
        _ => None,
    };
    let converted = match (target, whole, value) {
        ("y", Some(n), _) => u8::try_from(n).ok().map(DbusValue::Byte),
        ("i", Some(n), _) => i32::try_from(n).ok().map(DbusValue::I32),
        ("u", Some(n), _) => u32::try_from(n).ok().map(DbusValue::U32),
        ("x", Some(n), _) => i64::try_from(n).ok().map(DbusValue::I64),
        ("t", Some(n), _) => u64::try_from(n).ok().map(DbusValue::U64),
        ("o", None, DbusValue::Text(text)) => Some(DbusValue::Path(text)),
        (_, _, DbusValue::Array(_, values)) if target.starts_with('a') => {
            let of = &target[1..];
            let values = values.into_iter().map(|value| convert_to(value, of)).collect::<Result<_, _>>()?;
            Some(DbusValue::Array(of.to_owned(), values))
        }
        (_, _, value) if value.signature() == target => Some(value),
        (_, _, value) => return Err(bad(&value)),
    };
    converted.ok_or_else(|| format!("a number is out of the range of type {target}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_gvariant_writes_them() {
        for (text, value) in [
            ("'a \\'b\\''", DbusValue::text("a 'b'")),
            ("\"x\"", DbusValue::text("x")),
            ("true", DbusValue::Bool(true)),
            ("-5", DbusValue::I32(-5)),
            ("uint64 18446744073709551615", DbusValue::U64(u64::MAX)),
            ("int64 5", DbusValue::I64(5)),
            ("byte 0x10", DbusValue::Byte(16)),
            ("1.5", DbusValue::Double(1.5)),
            ("['a', \"b\"]", DbusValue::texts(["a", "b"])),
            ("@as []", DbusValue::Array("s".into(), vec![])),
            ("@au [1, 2]", DbusValue::Array("u".into(), vec![DbusValue::U32(1), DbusValue::U32(2)])),
            (" ( 1 , 'x' ) ", DbusValue::Struct(vec![DbusValue::I32(1), DbusValue::text("x")])),
            ("(1,)", DbusValue::Struct(vec![DbusValue::I32(1)])),
        ] {
            assert_eq!(parse(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn what_is_no_value_is_refused() {
        for text in [
            "",
            "control-group",
            "'open",
            "[1, 'x']",
            "[]",
            "[1",
            "1 2",
            "byte 300",
            "uint32 -1",
            "@",
            "@s 5",
            "'\\x'",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
