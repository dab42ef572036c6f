//! The arguments of a tool. Errors go to the model, and name the argument and what the tool takes.

use crate::error::{Code, Error, Result};
use rmcp::model::JsonObject;
use serde_json::{Value, json};
use std::sync::Arc;

/// One argument of a tool; all are strings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Argument {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    pub(super) required: bool,
}

/// The JSON Schema of arguments; no others are allowed.
pub(super) fn schema(arguments: &[Argument]) -> Arc<JsonObject> {
    let mut schema = JsonObject::new();
    schema.insert("type".into(), json!("object"));
    let properties: JsonObject = arguments
        .iter()
        .map(|argument| {
            (argument.name.to_owned(), json!({ "type": "string", "description": argument.description }))
        })
        .collect();
    schema.insert("properties".into(), Value::Object(properties));
    let required: Vec<&str> =
        arguments.iter().filter(|argument| argument.required).map(|argument| argument.name).collect();
    if !required.is_empty() {
        schema.insert("required".into(), json!(required));
    }
    schema.insert("additionalProperties".into(), json!(false));
    Arc::new(schema)
}

/// The arguments of a call, checked against what the tool takes. One that is left out is an empty string.
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
            if !takes.iter().any(|argument| argument.name == name) {
                return invalid(format!("{tool}: unknown argument {name:?}"));
            }
            if !value.is_string() {
                return invalid(format!("{tool}: the argument {name} is not a string"));
            }
        }
        match takes.iter().find(|argument| argument.required && !values.contains_key(argument.name)) {
            Some(missing) => invalid(format!("{tool}: the argument {} is missing", missing.name)),
            None => Ok(Arguments { values }),
        }
    }

    /// The value of an argument.
    pub(super) fn take(&mut self, name: &str) -> String {
        match self.values.remove(name) {
            Some(Value::String(text)) => text,
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAKES: [Argument; 2] = [
        Argument { name: "to", description: "Recipient", required: true },
        Argument { name: "note", description: "Note", required: false },
    ];

    fn check(values: Value) -> Result<Arguments> {
        Arguments::check("send", &TAKES, values.as_object().unwrap().clone())
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
            let error = check(values).unwrap_err();
            assert_eq!(error.to_string(), message);
            assert_eq!(error.hint_text(), Some("send takes to, note"));
        }
        let mut right = check(json!({ "to": "a" })).unwrap();
        assert_eq!((right.take("to").as_str(), right.take("note").as_str()), ("a", ""));
    }
}
