//! A validator for the part of JSON Schema that the OpenAPI document uses. It is stricter than JSON Schema: an object
//! with declared properties has no others, and an unknown keyword is an error.

use serde_json::{Map, Value};

/// Keywords that restrict no value, or only those of requests.
const OTHER_KEYWORDS: [&str; 10] = [
    "description",
    "default",
    "additionalProperties",
    "propertyNames",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "pattern",
    "properties",
];

/// The schemas of a document.
pub struct Schemas<'a>(&'a Value);

type Checked = Result<(), String>;

impl<'a> Schemas<'a> {
    /// Those of an OpenAPI document.
    pub fn of(document: &'a Value) -> Self {
        Schemas(document)
    }

    /// Checks a value; `at` is its place.
    ///
    /// # Errors
    /// Names the first difference.
    pub fn check(&self, schema: &Value, value: &Value, at: &str) -> Checked {
        let schema = self.merged(schema)?;
        for (keyword, rule) in &schema {
            match keyword.as_str() {
                "type" => check_type(rule, value, at),
                "format" => check_format(rule, value, at),
                "enum" => {
                    require(rule.as_array().unwrap().contains(value), at, || format!("is none of {rule}"))
                }
                "minimum" => check_bound(value, at, |number| number >= rule.as_f64().unwrap()),
                "maximum" => check_bound(value, at, |number| number <= rule.as_f64().unwrap()),
                "required" => check_required(rule, value, at),
                "items" => self.check_items(rule, value, at),
                "oneOf" => self.check_alternatives(rule, value, at),
                other if OTHER_KEYWORDS.contains(&other) => Ok(()),
                other => Err(format!("{at}: the test does not know the keyword {other}")),
            }?;
        }
        let Value::Object(fields) = value else { return Ok(()) };
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, field) in fields {
            let at = format!("{at}/{name}");
            match (properties.and_then(|properties| properties.get(name)), schema.get("additionalProperties"))
            {
                (Some(property), _) | (None, Some(property)) => self.check(property, field, &at)?,
                (None, None) if properties.is_none() => {}
                (None, None) => return Err(format!("{at}: the document lacks the field")),
            }
        }
        Ok(())
    }

    /// Follows a reference, and joins the parts of `allOf`.
    fn merged(&self, schema: &Value) -> Result<Map<String, Value>, String> {
        if let Some(path) = schema["$ref"].as_str() {
            let target = path.strip_prefix('#').and_then(|path| self.0.pointer(path));
            return self.merged(target.ok_or_else(|| format!("the document lacks {path}"))?);
        }
        let mut merged = schema.as_object().cloned().ok_or("a schema is no object")?;
        let Some(parts) = merged.remove("allOf") else { return Ok(merged) };
        for part in parts.as_array().unwrap() {
            for (keyword, rule) in self.merged(part)? {
                match (merged.get_mut(&keyword), rule) {
                    (Some(Value::Object(all)), Value::Object(more)) => all.extend(more),
                    (Some(Value::Array(all)), Value::Array(more)) => all.extend(more),
                    (_, rule) => drop(merged.insert(keyword, rule)),
                }
            }
        }
        Ok(merged)
    }

    fn check_items(&self, schema: &Value, value: &Value, at: &str) -> Checked {
        let mut items = value.as_array().into_iter().flatten().enumerate();
        items.try_for_each(|(index, item)| self.check(schema, item, &format!("{at}/{index}")))
    }

    fn check_alternatives(&self, alternatives: &Value, value: &Value, at: &str) -> Checked {
        let checks = alternatives.as_array().unwrap().iter().map(|schema| self.check(schema, value, at));
        let failed: Vec<String> = checks.clone().filter_map(Result::err).collect();
        let fitting = checks.len() - failed.len();
        require(fitting == 1, at, || format!("fits {fitting} alternatives: {}", failed.join("; ")))
    }
}

fn require(holds: bool, at: &str, difference: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(format!("{at}: the value {}", difference())) }
}

fn check_type(rule: &Value, value: &Value, at: &str) -> Checked {
    let is_type = |name: &Value| match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("the test does not know the type {other}"),
    };
    let holds = rule.as_array().map_or_else(|| is_type(rule), |names| names.iter().any(is_type));
    require(holds, at, || format!("{value} is not of type {rule}"))
}

/// Checks the formats of texts. Those of numbers are names of types.
fn check_format(rule: &Value, value: &Value, at: &str) -> Checked {
    let Some(text) = value.as_str() else { return Ok(()) };
    let holds = match rule.as_str().unwrap() {
        // With milliseconds, in UTC.
        "date-time" => text.parse::<jiff::Timestamp>().is_ok() && text.len() == 24 && text.ends_with('Z'),
        "uuid" => text.len() == 36 && uuid::Uuid::parse_str(text).is_ok(),
        other => panic!("the test does not know the format {other} of a response"),
    };
    require(holds, at, || format!("{text:?} has not the format {rule}"))
}

fn check_bound(value: &Value, at: &str, is_inside: impl Fn(f64) -> bool) -> Checked {
    require(value.as_f64().is_none_or(is_inside), at, || format!("{value} is out of bounds"))
}

fn check_required(names: &Value, value: &Value, at: &str) -> Checked {
    let Some(fields) = value.as_object() else { return Ok(()) };
    let missing = names.as_array().unwrap().iter().find(|name| !fields.contains_key(name.as_str().unwrap()));
    require(missing.is_none(), at, || format!("has no field {}", missing.unwrap()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_that_differ_from_their_schema_are_found() {
        let document = json!({ "base": { "type": "object", "required": ["a"], "properties": { "a": { "type": "integer" } } } });
        let schema = json!({
            "allOf": [
                { "$ref": "#/base" },
                { "type": "object", "required": ["b"], "properties": {
                    "b": { "type": ["string", "null"], "format": "date-time" },
                    "c": { "type": "array", "items": { "enum": ["x"] } },
                    "d": { "type": "object", "additionalProperties": { "type": "number", "minimum": 0 } },
                    "e": { "oneOf": [{ "type": "null" }, { "$ref": "#/base" }] },
                    "f": {}
                } }
            ]
        });
        let check = |value: Value| Schemas::of(&document).check(&schema, &value, "body");
        let full = json!({ "a": 1, "b": "2026-11-28T01:02:03.004Z", "c": ["x"], "d": { "k": 0.5 }, "e": { "a": 2 }, "f": { "z": 1 } });
        assert_eq!(check(full), Ok(()));
        assert_eq!(check(json!({ "a": 1, "b": null, "e": null })), Ok(()));
        for (value, place) in [
            (json!({ "b": null }), "\"a\""),
            (json!({ "a": 1 }), "\"b\""),
            (json!({ "a": 1.5, "b": null }), "body/a"),
            (json!({ "a": 1, "b": "yesterday" }), "body/b"),
            (json!({ "a": 1, "b": null, "c": ["y"] }), "body/c/0"),
            (json!({ "a": 1, "b": null, "d": { "k": -1 } }), "body/d/k"),
            (json!({ "a": 1, "b": null, "e": { "a": 1, "z": 1 } }), "body/e/z"),
            (json!({ "a": 1, "b": null, "z": 1 }), "body/z"),
            (json!([]), "body"),
        ] {
            let difference = check(value.clone()).unwrap_err();
            assert!(difference.contains(place), "{value}: {difference}");
        }
        let unknown = Schemas::of(&document).check(&json!({ "not": {} }), &json!(1), "body");
        assert!(unknown.unwrap_err().contains("keyword not"));
    }
}
