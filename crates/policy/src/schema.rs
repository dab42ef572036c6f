//! The JSON Schema of a policy file, generated from [`PolicyDocument`].

use super::document::PolicyDocument;
use schemars::generate::SchemaSettings;
use serde_json::Value;

/// The schema, for editors and for `saggar policy schema`.
pub fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<PolicyDocument>();
    schema.insert("title".into(), "saggar policy".into());
    schema.to_value()
}

/// Every key, as `limits.memory`, in the order of the schema.
pub(super) fn keys() -> Vec<String> {
    fn walk(table: &Value, prefix: &str, keys: &mut Vec<String>) {
        let properties = table.get("properties").and_then(Value::as_object);
        for (name, value) in properties.into_iter().flatten() {
            let key = format!("{prefix}{name}");
            if value.get("properties").is_some() {
                walk(value, &format!("{key}."), keys);
            } else {
                keys.push(key);
            }
        }
    }
    let mut keys = Vec::new();
    walk(&schema(), "", &mut keys);
    keys
}
