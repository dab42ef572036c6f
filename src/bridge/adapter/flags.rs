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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::proto::{Command, Request};

    fn words(fields: &str) -> Result<Vec<String>, String> {
        let line = format!(r#"{{"cmd":"query","prompt":"p","sessionId":"s",{fields}}}"#);
        match Command::parse(line.into_bytes().into()).unwrap().unwrap().request {
            Request::Query(query) => of(&query),
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
            &format!(r#""effort":"{}""#, "x".repeat(WORD_LIMIT + 1)),
        ] {
            assert!(words(fields).is_err(), "{fields}");
        }
        assert_eq!(words(r#""maxTurns":null"#), Ok(vec![]));
    }
}
