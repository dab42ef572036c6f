//! saggar-policy(5) against the schema, and the environment of saggar(1) against the built-in list.

use super::page::Page;
use saggar::spec::policy::parse::PolicyFormat;
use saggar::spec::policy::{EffectivePolicy, HomeSource, PolicyDocument, Protection, schema};
use serde_json::Value;
use std::collections::BTreeSet;

/// Every key, as `limits.memory`.
fn keys(table: &Value, prefix: &str, keys: &mut BTreeSet<String>) {
    for (name, value) in table["properties"].as_object().into_iter().flatten() {
        let key = format!("{prefix}{name}");
        if value["properties"].is_object() {
            self::keys(value, &format!("{key}."), keys);
        } else {
            keys.insert(key);
        }
    }
}

#[test]
fn every_key_of_the_schema_has_its_entry_and_no_other() {
    let mut known = BTreeSet::new();
    keys(&schema(), "", &mut known);
    assert!(known.contains("limits.memory"), "the schema was not understood: {known:?}");
    let page = Page::read("saggar-policy.5");
    page.agrees("keys", &page.tags("Va"), &known.iter().map(String::as_str).collect());
}

#[test]
fn every_key_says_its_default_and_what_a_folder_may_say() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/man/saggar-policy.5");
    let source = std::fs::read_to_string(path).unwrap();
    for entry in source.split("\n.It Va ").skip(1) {
        let key = entry.lines().next().unwrap();
        let entry = entry.split("\n.El").next().unwrap();
        for word in ["\nDefault", "\nFolder:"] {
            assert!(entry.contains(word), "{key} does not say {}", word.trim());
        }
    }
}

#[test]
fn every_protection_is_listed_with_its_default() {
    let page = Page::read("saggar-policy.5");
    let names: Vec<String> = Protection::ALL.iter().map(ToString::to_string).collect();
    page.agrees("protections", &page.tags("Cm"), &names.iter().map(String::as_str).collect());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/man/saggar-policy.5");
    let source = std::fs::read_to_string(path).unwrap();
    for protection in Protection::ALL {
        let row = format!(
            ".It Cm {protection} Ta {}d Ta ",
            match protection.default_strength().to_string() {
                strength if strength == "prefer" => "preferre".to_owned(),
                strength => strength,
            }
        );
        assert!(source.contains(&row), "no row {row:?}");
    }
}

#[test]
fn every_variable_that_is_passed_is_in_the_environment_of_saggar_1() {
    let page = Page::read("saggar.1");
    let listed = page.tags_in("ENVIRONMENT", "Ev");
    let policy = EffectivePolicy::built_in(HomeSource::Tmp);
    let missing: Vec<_> =
        policy.env.rules.keys().map(|name| name.as_str()).filter(|name| !listed.contains(name)).collect();
    assert!(missing.is_empty(), "saggar.1 lacks variables: {missing:?}");
}

/// The default policy as it is shipped, and the same with every commented value taken in.
#[test]
fn the_shipped_default_policy_names_nothing_and_shows_every_key_rightly() {
    fn named(table: &toml::Table, prefix: &str, keys: &mut BTreeSet<String>) {
        for (name, value) in table {
            match value {
                toml::Value::Table(table) if !["set", "io", "hugetlb"].contains(&name.as_str()) => {
                    named(table, &format!("{prefix}{name}."), keys)
                }
                _ => drop(keys.insert(format!("{prefix}{name}"))),
            }
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/defaults.toml");
    let shipped = std::fs::read_to_string(path).unwrap();
    let parse = |text: &str| {
        let document = saggar::spec::policy::parse::parse(path, PolicyFormat::Toml, text.as_bytes());
        document.unwrap_or_else(|error| panic!("{error}"))
    };
    // A limit that a file names is required: a default that named one would refuse to start on many hosts.
    assert_eq!(parse(&shipped), PolicyDocument::default(), "the shipped policy names a value");

    // A comment has a space after its mark, a value has none.
    let is_value = |line: &str| line.starts_with('#') && !line.starts_with("# ") && line.len() > 1;
    let taken: Vec<&str> =
        shipped.lines().map(|line| if is_value(line) { &line[1..] } else { line }).collect();
    let taken = taken.join("\n");
    // Of the two ways to the API a policy has one.
    parse(&taken.replace("socket = \"/run/model-api.sock\"\n", ""));
    let (mut shown, mut known) = (BTreeSet::new(), BTreeSet::new());
    named(&taken.parse().unwrap(), "", &mut shown);
    keys(&schema(), "", &mut known);
    assert_eq!(shown, known);
}
