//! `explain --host` and the network section: what would happen to a connection, and which layer says so.

use super::{json, saggar, stdout};
use crate::support::caller::Caller;
use crate::support::place::Place;
use serde_json::{Value, json};

const POLICY: &str = r#"
[network]
allow = ["api.example.com", "*.example.org:443,8443", "10.1.0.0/16:5432", "[2001:db8::]/32:443"]
deny = ["evil.example.org", "10.1.9.0/24"]
"#;

/// What explain says of a connection: its state, and the layer that decides.
fn explained(place: &Place, options: &[&str], to: &str) -> (String, String) {
    let mut command = saggar(place, &["explain", "--json", "--host", to]);
    command.args(options);
    let answer = json(command, 0);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&answer["state"]), text(&answer["decided_by"]["layer"]))
}

as_each_caller! {
    /// Each destination by the rule that speaks of it, with its layer.
    fn a_connection_is_explained_by_its_rule(caller) {
        let place = Place::new(caller);
        let file = place.make_file("policy.toml", POLICY);
        let file = file.to_str().unwrap();
        let options = ["--policy", file, "--allow-host", "extra.example:22", "--deny-host", "api.example.com:80"];
        for (to, state, layer) in [
            ("api.example.com:443", "relayed", file),
            ("API.example.com.:443", "relayed", file),
            ("api.example.com:80", "refused", "command line"),
            ("api.example.com:22", "refused", "command line"),
            ("extra.example:22", "relayed", "command line"),
            ("a.b.example.org:8443", "relayed", file),
            ("example.org:443", "refused", "command line"),
            ("evil.example.org:443", "refused", file),
            ("anything.example:53", "answered", "built-in"),
            ("8.8.8.8:53", "answered", "built-in"),
            ("10.1.2.3:5432", "relayed", file),
            ("10.1.9.3:5432", "refused", file),
            ("10.2.2.3:5432", "refused", "command line"),
            ("[2001:db8:7::1]:443", "relayed", file),
            ("127.0.0.1:443", "refused", "built-in"),
            ("169.254.169.254:80", "refused", "built-in"),
            ("[fe80::1]:443", "refused", "built-in"),
        ] {
            let (found, by) = explained(&place, &options, to);
            assert!(found == state && by.ends_with(layer), "{to}: {found} by {by}");
        }
        assert_eq!(explained(&place, &[], "api.example.com:443"), ("refused".into(), "built-in".into()));
        assert_eq!(explained(&place, &["--net", "host"], "127.0.0.1:1"), ("open".into(), "command line".into()));
    }

    /// The section lists what was said, by whom; the file for resolvers is saggar's.
    fn the_network_section_lists_every_rule(caller) {
        let place = Place::new(caller);
        let file = place.make_file("policy.toml", POLICY);
        let options = ["explain", "--json", "--policy", file.to_str().unwrap(), "--allow-host", "extra.example:22"];
        let network = &json(saggar(&place, &options), 0)["network"];
        assert_eq!((&network["value"], &network["layer"]), (&json!("policy"), &json!("command line")));
        let rules: Vec<(&str, &str)> = network["rules"]
            .as_array()
            .unwrap()
            .iter()
            .map(|rule| (rule["key"].as_str().unwrap(), rule["value"].as_str().unwrap()))
            .collect();
        assert_eq!(
            rules,
            [
                ("network.allow", "api.example.com"),
                ("network.allow", "*.example.org:443,8443"),
                ("network.allow", "10.1.0.0/16:5432"),
                ("network.allow", "[2001:db8::]/32:443"),
                ("network.allow", "extra.example:22"),
                ("network.deny", "evil.example.org"),
                ("network.deny", "10.1.9.0/24"),
            ]
        );
        assert_eq!(network["rules"][4]["layer"], "command line");
        let text = stdout(saggar(&place, &["explain", "--allow-host", "extra.example:22"]), 0);
        assert!(text.contains("\n  allow  extra.example:22 (command line)\n"), "{text}");
        assert!(text.contains("/etc/resolv.conf"), "{text}");
    }
}

/// What is no destination is told its cure, as a mistake on the command line.
#[test]
fn invalid_destination_is_a_usage_error() {
    let place = Place::new(Caller::current());
    for (to, cure) in [
        ("https://api.example.com/v1", "write the host alone: api.example.com"),
        ("api.example.com", "write api.example.com:443"),
        ("*.example.com:443", "write one name"),
        ("10.0.0.0/8:443", "write one"),
        ("2001:db8::1", "write it in brackets: [2001:db8::1]"),
        ("a b:443", "which no name of a host has"),
        ("127.1:80", "write an address as 192.0.2.7"),
        ("", "is empty"),
    ] {
        let output = saggar(&place, &["explain", "--host", to]).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{to}: {error}");
        assert!(error.contains(cure), "{to}: {error}");
    }
}

/// A folder cannot open a network, and nobody starts one that reaches nothing.
#[test]
fn a_network_is_opened_by_operators_and_reaches_something() {
    let place = Place::new(Caller::current());
    let nothing = saggar(&place, &["explain", "--net", "policy"]).output().unwrap();
    let error = String::from_utf8_lossy(&nothing.stderr).into_owned();
    assert_eq!(nothing.status.code(), Some(125), "{error}");
    assert!(error.contains("its rules allow nothing") && error.contains("--allow-host"), "{error}");
    place.make_file("work/saggar.toml", "network.allow = ['api.example.com']\n");
    let widening = saggar(&place, &["explain"]).output().unwrap();
    let error = String::from_utf8_lossy(&widening.stderr).into_owned();
    assert_eq!(widening.status.code(), Some(125), "{error}");
    assert!(error.contains("asks for network.allow = api.example.com"), "{error}");
}
