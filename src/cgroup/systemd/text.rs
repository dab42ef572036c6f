//! Values in GVariant's text form, as annotations `org.systemd.property.NAME` have them: `'text'`, `true`, `5`,
//! `uint64 5`, `1.5`, `['a', 'b']`, `(1, 'x')`, `@as []`.

use super::wire::Value;

/// The value, or why there is none.
pub(crate) fn parse(text: &str) -> Result<Value, String> {
    let mut parser = Parser { rest: text.trim_start() };
    let value = parser.value(0)?;
    match parser.rest {
        "" if lacks_type(&value) => Err("an empty array needs its type, as in @as []".to_owned()),
        "" => Ok(value),
        rest => Err(format!("{rest:?} follows a value")),
    }
}

struct Parser<'a> {
    rest: &'a str,
}

/// How deep arrays and tuples may be nested.
const DEEPEST: usize = 8;

/// Names of types before numbers.
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

impl Parser<'_> {
    fn eat(&mut self, what: &str) -> bool {
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

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth > DEEPEST {
            return Err("it is nested too deep".to_owned());
        }
        if let Some(rest) = self.rest.strip_prefix('@') {
            let end = rest.find(char::is_whitespace).ok_or("a type stands alone")?;
            let (wanted, after) = rest.split_at(end);
            self.rest = after.trim_start();
            let value = self.value(depth + 1)?;
            return as_type(value, wanted);
        }
        if self.rest.starts_with(['\'', '"']) {
            return self.string().map(Value::Text);
        }
        if self.eat("[") {
            return array(self.list("]", depth)?);
        }
        if self.eat("(") {
            return self.list(")", depth).map(Value::Struct);
        }
        let word = self.word();
        if let Some((_, letter)) = TYPES.iter().find(|(name, _)| *name == word) {
            let value = self.value(depth + 1)?;
            return as_type(value, &letter.to_string());
        }
        match word.as_str() {
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            "" => Err(format!("no value begins with {:?}", self.rest)),
            number => self::number(number),
        }
    }

    fn list(&mut self, end: &str, depth: usize) -> Result<Vec<Value>, String> {
        let mut values = Vec::new();
        loop {
            if self.eat(end) {
                return Ok(values);
            }
            if !values.is_empty() && !self.eat(",") {
                return Err(format!("a comma or {end} is missing at {:?}", self.rest));
            }
            // `(1,)` is a tuple of one.
            if !values.is_empty() && end == ")" && self.eat(end) {
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

fn number(word: &str) -> Result<Value, String> {
    let bad = || format!("{word:?} is no value; a string stands in quotes");
    if let Some(hex) = word.strip_prefix("0x") {
        return i32::from_str_radix(hex, 16).map(Value::I32).map_err(|_| bad());
    }
    if let Ok(number) = word.parse::<i32>() {
        return Ok(Value::I32(number));
    }
    // Too great for its default type: it gets the one that is named before it.
    if let Ok(number) = word.parse::<i64>() {
        return Ok(Value::I64(number));
    }
    if let Ok(number) = word.parse::<u64>() {
        return Ok(Value::U64(number));
    }
    let is_double = word.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
    word.parse::<f64>().ok().filter(|_| is_double).map(Value::Double).ok_or_else(bad)
}

/// An empty array has no type yet.
fn array(values: Vec<Value>) -> Result<Value, String> {
    let first = values.first().map(Value::signature).unwrap_or_default();
    if values.iter().any(|value| value.signature() != first) {
        return Err("an array has values of several types".to_owned());
    }
    Ok(Value::Array(first, values))
}

fn lacks_type(value: &Value) -> bool {
    match value {
        Value::Array(of, values) => of.is_empty() || values.iter().any(lacks_type),
        Value::Struct(fields) => fields.iter().any(lacks_type),
        _ => false,
    }
}

/// A value as one of another type: numbers, and what is empty or has numbers in it.
pub(crate) fn as_type(value: Value, wanted: &str) -> Result<Value, String> {
    let bad = |value: &Value| format!("{value:?} is not of type {wanted}");
    let whole = match &value {
        Value::I32(number) => Some(i128::from(*number)),
        Value::I64(number) => Some(i128::from(*number)),
        Value::U64(number) => Some(i128::from(*number)),
        _ => None,
    };
    let converted = match (wanted, whole, value) {
        ("y", Some(n), _) => u8::try_from(n).ok().map(Value::Byte),
        ("i", Some(n), _) => i32::try_from(n).ok().map(Value::I32),
        ("u", Some(n), _) => u32::try_from(n).ok().map(Value::U32),
        ("x", Some(n), _) => i64::try_from(n).ok().map(Value::I64),
        ("t", Some(n), _) => u64::try_from(n).ok().map(Value::U64),
        ("o", None, Value::Text(text)) => Some(Value::Path(text)),
        (_, _, Value::Array(_, values)) if wanted.starts_with('a') => {
            let of = &wanted[1..];
            let values = values.into_iter().map(|value| as_type(value, of)).collect::<Result<_, _>>()?;
            Some(Value::Array(of.to_owned(), values))
        }
        (_, _, value) if value.signature() == wanted => Some(value),
        (_, _, value) => return Err(bad(&value)),
    };
    converted.ok_or_else(|| format!("a number is out of the range of type {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_gvariant_writes_them() {
        for (text, value) in [
            ("'a \\'b\\''", Value::text("a 'b'")),
            ("\"x\"", Value::text("x")),
            ("true", Value::Bool(true)),
            ("-5", Value::I32(-5)),
            ("uint64 18446744073709551615", Value::U64(u64::MAX)),
            ("int64 5", Value::I64(5)),
            ("byte 0x10", Value::Byte(16)),
            ("1.5", Value::Double(1.5)),
            ("['a', \"b\"]", Value::texts(["a", "b"])),
            ("@as []", Value::Array("s".into(), vec![])),
            ("@au [1, 2]", Value::Array("u".into(), vec![Value::U32(1), Value::U32(2)])),
            (" ( 1 , 'x' ) ", Value::Struct(vec![Value::I32(1), Value::text("x")])),
            ("(1,)", Value::Struct(vec![Value::I32(1)])),
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
