//! What saggar depends on: licences that may be distributed with it, no crate twice, none that is banned, and crates.io
//! as the only source. deny.toml and server/deny.toml say the same to `cargo deny`, which is not needed for this.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// What a part of the repository is held to: the members that it is, and the file with its rules.
struct Part {
    rules: &'static str,
    is_member: fn(&str) -> bool,
}

/// The server is a program of its own, with some two hundred crates that the rest does without.
const PARTS: [Part; 2] = [
    Part { rules: "deny.toml", is_member: |name| name != "saggar-server" },
    Part { rules: "server/deny.toml", is_member: |name| name == "saggar-server" },
];

impl Part {
    /// The packages that a build of its members for our target takes, tests and build scripts included.
    fn packages(&self) -> Vec<Value> {
        let metadata = metadata();
        let name = |package: &Value| package["name"].as_str().unwrap().to_owned();
        let id = |package: &Value| package["id"].as_str().unwrap().to_owned();
        let packages = metadata["packages"].as_array().unwrap();
        let members: BTreeSet<&str> = strings(&metadata["workspace_members"]).collect();
        let is_start = |package: &&Value| members.contains(&*id(package)) && (self.is_member)(&name(package));
        let mut waiting: Vec<String> = packages.iter().filter(is_start).map(id).collect();
        assert!(!waiting.is_empty(), "{} has no members", self.rules);
        let nodes = metadata["resolve"]["nodes"].as_array().unwrap();
        let needed: BTreeMap<String, &Value> =
            nodes.iter().map(|node| (id(node), &node["dependencies"])).collect();
        let mut found = BTreeSet::new();
        while let Some(package) = waiting.pop() {
            if found.insert(package.clone()) {
                waiting.extend(strings(needed[&package]).map(str::to_owned));
            }
        }
        packages.iter().filter(|package| found.contains(&id(package))).cloned().collect()
    }

    /// A list of its rules.
    fn listed(&self, table: &str, key: &str) -> BTreeSet<String> {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(self.rules)).unwrap();
        let rules: toml::Table = text.parse().unwrap();
        let entries = rules[table][key].as_array().unwrap();
        let name = |entry: &toml::Value| entry.get("crate").unwrap_or(entry).as_str().unwrap().to_owned();
        entries.iter().map(name).collect()
    }
}

fn strings(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().unwrap().iter().map(|entry| entry.as_str().unwrap())
}

fn metadata() -> Value {
    let arguments =
        ["metadata", "--locked", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"];
    let output =
        Command::new(env!("CARGO")).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
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
    for part in PARTS {
        let allowed = part.listed("licenses", "allow");
        for package in part.packages() {
            let licence = package["license"].as_str().unwrap_or("none");
            assert!(may_be_distributed(licence, &allowed), "{}: {licence}", package["name"]);
        }
    }
    let only = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert!(may_be_distributed("(MIT OR GPL-3.0) AND ISC", &only(&["MIT", "ISC"])));
    assert!(!may_be_distributed("(MIT OR GPL-3.0) AND ISC", &only(&["MIT"])));
    assert!(!may_be_distributed("GPL-3.0", &only(&["MIT"])));
}

#[test]
fn each_crate_has_one_version() {
    for part in PARTS {
        let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for package in part.packages() {
            let version = package["version"].as_str().unwrap().to_owned();
            versions.entry(package["name"].as_str().unwrap().to_owned()).or_default().push(version);
        }
        let skipped = part.listed("bans", "skip");
        let mut more = Vec::new();
        for (name, versions) in versions {
            let is_skipped = |version: &&String| {
                skipped.iter().any(|skip| {
                    let (skipped, of) = skip.split_once('@').unwrap();
                    skipped == name && (*version == of || version.starts_with(&format!("{of}.")))
                })
            };
            if versions.iter().filter(|version| !is_skipped(version)).count() > 1 {
                more.push(format!("{name} in versions {versions:?}"));
            }
        }
        assert!(more.is_empty(), "{}: {}", part.rules, more.join(", "));
    }
}

#[test]
fn banned_crates_are_not_dependencies() {
    for part in PARTS {
        let banned = part.listed("bans", "deny");
        for package in part.packages() {
            let name = package["name"].as_str().unwrap();
            assert!(!banned.contains(name), "{name} is banned in {}", part.rules);
        }
    }
}

#[test]
fn everything_comes_from_one_registry() {
    for package in PARTS.iter().flat_map(Part::packages) {
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
