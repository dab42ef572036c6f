//! The arguments of a tool. Errors go to the model, and name the argument and what the tool takes.

use crate::error::{Code, Error, Result};
use rmcp::model::JsonObject;
use serde_json::{Value, json};
use std::sync::Arc;

/// One argument of a tool.
#[derive(Debug, Clone, Copy)]
pub(super) struct Argument {
    name: &'static str,
    kind: ArgumentKind,
    description: &'static str,
    is_required: bool,
}

/// The type of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArgumentKind {
    /// A string.
    Text,
    /// A list of strings.
    Texts,
    /// A whole number that is not negative.
    Number,
    /// True or false.
    Flag,
}

impl Argument {
    /// An argument that every call has.
    pub(super) const fn required(name: &'static str, kind: ArgumentKind, description: &'static str) -> Self {
        Argument { name, kind, description, is_required: true }
    }

    /// An argument that a call may leave out.
    pub(super) const fn optional(name: &'static str, kind: ArgumentKind, description: &'static str) -> Self {
        Argument { name, kind, description, is_required: false }
    }
}

impl ArgumentKind {
    fn schema(self) -> Value {
        match self {
            ArgumentKind::Text => json!({ "type": "string" }),
            ArgumentKind::Texts => json!({ "type": "array", "items": { "type": "string" } }),
            ArgumentKind::Number => json!({ "type": "integer", "minimum": 0 }),
            ArgumentKind::Flag => json!({ "type": "boolean" }),
        }
    }

    fn name(self) -> &'static str {
        match self {
            ArgumentKind::Text => "a string",
            ArgumentKind::Texts => "a list of strings",
            ArgumentKind::Number => "a whole number from 0",
            ArgumentKind::Flag => "true or false",
        }
    }

    fn accepts(self, value: &Value) -> bool {
        match self {
            ArgumentKind::Text => value.is_string(),
            ArgumentKind::Texts => value.as_array().is_some_and(|items| items.iter().all(Value::is_string)),
            ArgumentKind::Number => value.is_u64(),
            ArgumentKind::Flag => value.is_boolean(),
        }
    }
}

/// The JSON Schema of arguments; no others are allowed.
pub(super) fn schema(arguments: &[Argument]) -> Arc<JsonObject> {
    let mut schema = JsonObject::new();
    schema.insert("type".into(), json!("object"));
    let property = |argument: &Argument| {
        let mut property = argument.kind.schema();
        property["description"] = argument.description.into();
        (argument.name.to_owned(), property)
    };
    schema.insert("properties".into(), Value::Object(arguments.iter().map(property).collect()));
    let required: Vec<&str> =
        arguments.iter().filter(|argument| argument.is_required).map(|argument| argument.name).collect();
    if !required.is_empty() {
        schema.insert("required".into(), json!(required));
    }
    schema.insert("additionalProperties".into(), json!(false));
    Arc::new(schema)
}

/// The arguments of a call, checked against what the tool takes.
#[derive(Debug)]
pub(super) struct Arguments {
    values: JsonObject,
}

impl Arguments {
    /// Checks names and types.
    ///
    /// # Errors
    /// [`Code::Invalid`].
    pub(super) fn check(tool: &str, takes: &[Argument], values: JsonObject) -> Result<Self> {
        let invalid = |message: String| {
            let names: Vec<&str> = takes.iter().map(|argument| argument.name).collect();
            let hint = match names.as_slice() {
                [] => format!("{tool} takes no arguments"),
                names => format!("{tool} takes {}", names.join(", ")),
            };
            Err(Error::new(Code::Invalid, message).hint(hint))
        };
        for (name, value) in &values {
            let Some(argument) = takes.iter().find(|argument| argument.name == name) else {
                return invalid(format!("{tool}: unknown argument {name:?}"));
            };
            if !argument.kind.accepts(value) {
                return invalid(format!("{tool}: the argument {name} is not {}", argument.kind.name()));
            }
        }
        match takes.iter().find(|argument| argument.is_required && !values.contains_key(argument.name)) {
            Some(missing) => invalid(format!("{tool}: the argument {} is missing", missing.name)),
            None => Ok(Arguments { values }),
        }
    }

    /// The value of a text; empty if it was left out.
    pub(super) fn take(&mut self, name: &str) -> String {
        self.take_optional(name).unwrap_or_default()
    }

    /// The value of a text, if there is one.
    pub(super) fn take_optional(&mut self, name: &str) -> Option<String> {
        match self.values.remove(name) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// The values of a list of texts.
    pub(super) fn take_texts(&mut self, name: &str) -> Vec<String> {
        match self.values.remove(name) {
            Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        }
    }

    /// The value of a number, if there is one.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.values.get(name).and_then(Value::as_u64)
    }

    /// The value of a flag; false if it was left out.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.values.get(name).and_then(Value::as_bool).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::ArgumentKind::{Flag, Number, Text, Texts};
    use super::*;

    const TAKES: [Argument; 2] =
        [Argument::required("to", Text, "Recipient"), Argument::optional("note", Text, "Note")];
    const KINDS: [Argument; 4] = [
        Argument::optional("text", Text, "T"),
        Argument::optional("texts", Texts, "L"),
        Argument::optional("number", Number, "N"),
        Argument::optional("flag", Flag, "F"),
    ];

    fn check(takes: &[Argument], values: Value) -> Result<Arguments> {
        Arguments::check("send", takes, values.as_object().unwrap().clone())
    }

    #[test]
    fn schema_allows_these_arguments_alone() {
        assert_eq!(
            Value::Object((*schema(&TAKES)).clone()),
            json!({
                "type": "object",
                "properties": {
                    "to": { "type": "string", "description": "Recipient" },
                    "note": { "type": "string", "description": "Note" },
                },
                "required": ["to"],
                "additionalProperties": false,
            })
        );
        assert_eq!(
            Value::Object((*schema(&KINDS)).clone())["properties"],
            json!({
                "text": { "type": "string", "description": "T" },
                "texts": { "type": "array", "items": { "type": "string" }, "description": "L" },
                "number": { "type": "integer", "minimum": 0, "description": "N" },
                "flag": { "type": "boolean", "description": "F" },
            })
        );
        assert_eq!(
            Value::Object((*schema(&[])).clone()),
            json!({ "type": "object", "properties": {}, "additionalProperties": false })
        );
    }

    #[test]
    fn wrong_arguments_are_named() {
        for (values, message) in [
            (json!({}), "send: the argument to is missing"),
            (json!({ "to": "a", "from": "b" }), "send: unknown argument \"from\""),
            (json!({ "to": 7 }), "send: the argument to is not a string"),
            (json!({ "to": "a", "note": null }), "send: the argument note is not a string"),
        ] {
            let error = check(&TAKES, values).unwrap_err();
            assert_eq!(error.to_string(), message);
            assert_eq!(error.hint_text(), Some("send takes to, note"));
        }
        let mut right = check(&TAKES, json!({ "to": "a" })).unwrap();
        assert_eq!((right.take("to").as_str(), right.take("note").as_str()), ("a", ""));
    }

    #[test]
    fn each_kind_takes_its_own_values_alone() {
        let values = json!({ "text": "a", "texts": ["a", "b"], "number": 7, "flag": true });
        let mut right = check(&KINDS, values.clone()).unwrap();
        assert_eq!((right.number("number"), right.flag("flag")), (Some(7), true));
        assert_eq!((right.take("text").as_str(), right.take_texts("texts").join("+").as_str()), ("a", "a+b"));
        let mut none = check(&KINDS, json!({})).unwrap();
        assert_eq!(
            (none.number("number"), none.flag("flag"), none.take_texts("texts").len()),
            (None, false, 0)
        );
        assert_eq!(none.take_optional("text"), None);
        for (name, own) in values.as_object().unwrap() {
            for wrong in [json!(-1), json!(1.5), json!({}), json!(["a", 1]), json!(null)] {
                assert!(check(&KINDS, json!({ name: wrong })).is_err(), "{name}: {wrong}");
            }
            for (other, _) in values.as_object().unwrap().iter().filter(|(other, _)| *other != name) {
                assert!(check(&KINDS, json!({ other: own })).is_err(), "{other}: {own}");
            }
        }
    }
}
