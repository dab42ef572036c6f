//! The query options that Claude Code accepts only at its start (DECISIONS 17), as command line arguments.
//!
//! Every option is one argument, `--name=value`, so that a value cannot be parsed as another option.

use crate::proto::{QueryCommand, QueryField, json};

/// Maximum length of one argument, in bytes. The kernel rejects more than 128 KiB (execve(2), MAX_ARG_STRLEN).
const MAX_ARGUMENT: usize = 100 << 10;

/// The start options of a query, in a fixed order, so that equal lists mean an equal process.
///
/// # Errors
/// Names the field with an invalid type or value.
pub(super) fn start_flags(query: &QueryCommand) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    for (field, name, option, read) in START_OPTIONS {
        let Some(text) = query.field(field) else { continue };
        let value = read(text).ok_or_else(|| format!("query: the field {name} has a wrong type or value"))?;
        if value.contains('\0') {
            return Err(format!("query: the field {name} has a NUL character"));
        }
        if value.len() > MAX_ARGUMENT {
            return Err(format!("query: the field {name} is longer than {MAX_ARGUMENT} bytes"));
        }
        words.push(format!("{option}={value}"));
    }
    Ok(words)
}

type OptionParser = fn(&str) -> Option<String>;

const START_OPTIONS: [(QueryField, &str, &str, OptionParser); 9] = [
    (QueryField::MaxTurns, "maxTurns", "--max-turns", parse_count),
    (QueryField::MaxBudgetUsd, "maxBudgetUsd", "--max-budget-usd", parse_amount),
    (QueryField::Effort, "effort", "--effort", json::parse_string),
    (QueryField::OutputFormat, "outputFormat", "--json-schema", parse_schema),
    (QueryField::AllowedTools, "allowedTools", "--allowedTools", parse_list),
    (QueryField::DisallowedTools, "disallowedTools", "--disallowedTools", parse_list),
    (QueryField::Betas, "betas", "--betas", parse_list),
    (QueryField::InitialAgent, "initialAgent", "--agent", json::parse_string),
    (QueryField::Subagents, "subagents", "--agents", parse_object),
];

fn parse_count(text: &str) -> Option<String> {
    serde_json::from_str::<u32>(text).ok().filter(|n| *n > 0).map(|n| n.to_string())
}

fn parse_amount(text: &str) -> Option<String> {
    serde_json::from_str::<f64>(text).ok().filter(|n| n.is_finite() && *n > 0.0).map(|n| n.to_string())
}

fn parse_list(text: &str) -> Option<String> {
    serde_json::from_str::<Vec<String>>(text).ok().map(|words| words.join(","))
}

fn parse_object(text: &str) -> Option<String> {
    text.starts_with('{').then(|| text.to_owned())
}

/// The schema in `{"type":"json_schema","schema":{…}}`.
fn parse_schema(text: &str) -> Option<String> {
    let scan = json::scan(text, &["type", "schema"]).ok()?;
    let [kind, schema] = scan.fields;
    let known = kind.and_then(json::parse_string).is_some_and(|kind| kind == "json_schema");
    schema.filter(|_| known).and_then(parse_object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{BridgeCommand, CommandBody};

    fn words(fields: &str) -> Result<Vec<String>, String> {
        let line = format!(r#"{{"cmd":"query","prompt":"p","sessionId":"s",{fields}}}"#);
        match BridgeCommand::parse(line.into_bytes().into()).unwrap().unwrap().body {
            CommandBody::Query(query) => start_flags(&query),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn decision_17_every_start_option_is_one_word() {
        let fields = r#""subagents":{"a":{}},"betas":["b","c"],"maxTurns":3,"effort":"--dangerous","maxBudgetUsd":0.5,
            "outputFormat":{"type":"json_schema","schema":{"x":1}},"initialAgent":"a","allowedTools":[]"#;
        assert_eq!(
            words(&fields.replace('\n', "")).unwrap(),
            [
                "--max-turns=3",
                "--max-budget-usd=0.5",
                "--effort=--dangerous",
                "--json-schema={\"x\":1}",
                "--allowedTools=",
                "--betas=b,c",
                "--agent=a",
                "--agents={\"a\":{}}",
            ]
        );
    }

    #[test]
    fn wrong_types_nul_and_endless_words_are_refused() {
        for fields in [
            r#""maxTurns":0"#,
            r#""maxTurns":1.5"#,
            r#""maxBudgetUsd":-1"#,
            r#""effort":{}"#,
            r#""outputFormat":{"type":"text"}"#,
            r#""allowedTools":"Read""#,
            r#""betas":[1]"#,
            r#""subagents":[]"#,
            r#""initialAgent":"a\u0000""#,
            &format!(r#""effort":"{}""#, "x".repeat(MAX_ARGUMENT + 1)),
        ] {
            assert!(words(fields).is_err(), "{fields}");
        }
        assert_eq!(words(r#""maxTurns":null"#), Ok(vec![]));
    }
}
