//! What saggar depends on: licences that may be distributed with it, no crate twice, none that is banned, and crates.io
//! as the only source. deny.toml says the same to `cargo deny`, which is not needed for this.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The packages that a build for our target takes, tests and build scripts included.
fn packages() -> Vec<Value> {
    let arguments =
        ["metadata", "--locked", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"];
    let output =
        Command::new(env!("CARGO")).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    match metadata["packages"].take() {
        Value::Array(packages) => packages,
        other => panic!("no packages: {other}"),
    }
}

/// A list of deny.toml.
fn listed(table: &str, key: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("deny.toml")).unwrap();
    let rules: toml::Table = text.parse().unwrap();
    let entries = rules[table][key].as_array().unwrap();
    let name = |entry: &toml::Value| entry.get("crate").unwrap_or(entry).as_str().unwrap().to_owned();
    entries.iter().map(name).collect()
}

/// Whether one of the licences that may be chosen is allowed: an expression of SPDX without nested parentheses.
fn may_be_distributed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let expression = expression.replace(" / ", " OR ").replace('/', " OR ");
    let all = |side: &str| side.split(" AND ").all(|licence| allowed.contains(licence.trim()));
    if let Some((choice, rest)) = expression.strip_prefix('(').and_then(|text| text.split_once(") AND ")) {
        return choice.split(" OR ").any(all) && all(rest);
    }
    expression.split(" OR ").any(all)
}

#[test]
fn every_licence_is_allowed() {
    let allowed = listed("licenses", "allow");
    for package in packages() {
        let licence = package["license"].as_str().unwrap_or("none");
        assert!(may_be_distributed(licence, &allowed), "{}: {licence}", package["name"]);
    }
    let only = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert!(may_be_distributed("(MIT OR GPL-3.0) AND ISC", &only(&["MIT", "ISC"])));
    assert!(!may_be_distributed("(MIT OR GPL-3.0) AND ISC", &only(&["MIT"])));
    assert!(!may_be_distributed("GPL-3.0", &allowed));
}

#[test]
fn each_crate_has_one_version() {
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages() {
        let version = package["version"].as_str().unwrap().to_owned();
        versions.entry(package["name"].as_str().unwrap().to_owned()).or_default().push(version);
    }
    let skipped = listed("bans", "skip");
    for (name, versions) in versions {
        let is_skipped = |version: &&String| {
            skipped.iter().any(|skip| {
                let (skipped, of) = skip.split_once('@').unwrap();
                skipped == name && (*version == of || version.starts_with(&format!("{of}.")))
            })
        };
        let counted: Vec<&String> = versions.iter().filter(|version| !is_skipped(version)).collect();
        assert!(counted.len() <= 1, "{name} is there in versions {versions:?}");
    }
}

#[test]
fn banned_crates_are_not_dependencies() {
    let banned = listed("bans", "deny");
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        assert!(!banned.contains(name), "{name} is banned in deny.toml");
    }
}

#[test]
fn everything_comes_from_one_registry() {
    for package in packages() {
        // A member of the workspace has no source, and lies in it; so would a crate by a path elsewhere.
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let ours = package["source"].is_null() && manifest.starts_with(env!("CARGO_MANIFEST_DIR"));
        assert!(
            ours || package["source"] == CRATES_IO,
            "{} comes from {}",
            package["name"],
            package["source"]
        );
    }
}
