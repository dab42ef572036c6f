//! YAML as JSON, as far as manifests of Kubernetes use it.

use crate::error::{Context, Error, Result};
use serde_json::{Map, Number, Value};
use yaml_rust2::{Yaml, YamlLoader};

/// Parses the only document of a text.
///
/// # Errors
/// Fails if the text is no YAML, has several documents, or has what JSON cannot represent.
pub(super) fn parse(text: &str) -> Result<Value> {
    let documents = YamlLoader::load_from_str(text).context(|| "it is no YAML")?;
    match documents.as_slice() {
        [document] => to_json(document),
        documents => Err(Error::new(format!("it has {} documents instead of one", documents.len()))),
    }
}

fn to_json(yaml: &Yaml) -> Result<Value> {
    let unsupported = || Error::new(format!("{yaml:?} cannot be represented in JSON"));
    Ok(match yaml {
        Yaml::Null => Value::Null,
        Yaml::Boolean(value) => Value::Bool(*value),
        Yaml::Integer(number) => Value::from(*number),
        Yaml::Real(text) => {
            let number = text.parse().ok().and_then(Number::from_f64);
            Value::Number(number.ok_or_else(unsupported)?)
        }
        Yaml::String(text) => Value::String(text.clone()),
        Yaml::Array(items) => items.iter().map(to_json).collect::<Result<Vec<_>>>()?.into(),
        Yaml::Hash(entries) => {
            let entry = |(name, value): (&Yaml, &Yaml)| {
                let name = name.as_str().ok_or_else(|| Error::new(format!("the key {name:?} is no text")))?;
                Ok((name.to_owned(), to_json(value)?))
            };
            Value::Object(entries.iter().map(entry).collect::<Result<Map<_, _>>>()?)
        }
        Yaml::Alias(_) | Yaml::BadValue => return Err(unsupported()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn manifest_becomes_json() {
        let text = "a: [1, 1.5, true, ~, 'x']\nb: &b {c: \"8\"}\nd: *b\n";
        let expected = json!({ "a": [1, 1.5, true, null, "x"], "b": { "c": "8" }, "d": { "c": "8" } });
        assert_eq!(parse(text).unwrap(), expected);
        assert_eq!(parse("{\"kind\": \"Pod\"}").unwrap(), json!({ "kind": "Pod" }));
    }

    #[test]
    fn what_is_no_manifest_is_refused() {
        for (text, why) in [
            ("", "0 documents"),
            ("a: 1\n---\nb: 2\n", "2 documents"),
            ("a: [", "it is no YAML"),
            ("1: a", "is no text"),
            ("a: .nan", "cannot be represented"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }
}
