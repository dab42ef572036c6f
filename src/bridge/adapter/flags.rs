//! The query options that Claude Code takes only when it starts (DECISIONS 17), as words of its command line.
//!
//! Every option is one word, `--name=value`: a value can then never be read as another option.

use crate::bridge::proto::{Field, Query, json};

/// The longest single word: the kernel refuses more than 128 KiB (execve(2), MAX_ARG_STRLEN).
const WORD_LIMIT: usize = 100 << 10;

/// The start options of a query, in a fixed order, so that equal lists mean an equal process.
///
/// # Errors
/// Names the field that has a wrong type or value.
pub(super) fn of(query: &Query) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    for (field, name, option, read) in OPTIONS {
        let Some(text) = query.field(field) else { continue };
        let value = read(text).ok_or_else(|| format!("query: the field {name} has a wrong type or value"))?;
        if value.contains('\0') {
            return Err(format!("query: the field {name} has a NUL character"));
        }
        if value.len() > WORD_LIMIT {
            return Err(format!("query: the field {name} is longer than {WORD_LIMIT} bytes"));
        }
        words.push(format!("{option}={value}"));
    }
    Ok(words)
}

type Reader = fn(&str) -> Option<String>;

const OPTIONS: [(Field, &str, &str, Reader); 9] = [
    (Field::MaxTurns, "maxTurns", "--max-turns", count),
    (Field::MaxBudgetUsd, "maxBudgetUsd", "--max-budget-usd", amount),
    (Field::Effort, "effort", "--effort", json::string),
    (Field::OutputFormat, "outputFormat", "--json-schema", schema),
    (Field::AllowedTools, "allowedTools", "--allowedTools", list),
    (Field::DisallowedTools, "disallowedTools", "--disallowedTools", list),
    (Field::Betas, "betas", "--betas", list),
    (Field::InitialAgent, "initialAgent", "--agent", json::string),
    (Field::Subagents, "subagents", "--agents", object),
];

fn count(text: &str) -> Option<String> {
    serde_json::from_str::<u32>(text).ok().filter(|n| *n > 0).map(|n| n.to_string())
}

fn amount(text: &str) -> Option<String> {
    serde_json::from_str::<f64>(text).ok().filter(|n| n.is_finite() && *n > 0.0).map(|n| n.to_string())
}

fn list(text: &str) -> Option<String> {
    serde_json::from_str::<Vec<String>>(text).ok().map(|words| words.join(","))
}

fn object(text: &str) -> Option<String> {
    text.starts_with('{').then(|| text.to_owned())
}

/// `{"type":"json_schema","schema":{…}}`: the schema.
fn schema(text: &str) -> Option<String> {
    let scan = json::scan(text, &["type", "schema"]).ok()?;
    let [kind, schema] = scan.fields;
    let known = kind.and_then(json::string).is_some_and(|kind| kind == "json_schema");
    schema.filter(|_| known).and_then(object)
}
