//! `saggar policy` and `saggar completions`, and how what is printed ends.

use super::{json, saggar, stdout};
use crate::support::caller::Caller;
use crate::support::place::Place;

#[test]
fn a_good_policy_is_ok_and_a_bad_one_is_named() {
    let place = Place::new(Caller::current());
    place.make_file("work/good.toml", "[limits]\nmemory = \"64M\"\n");
    place.make_file("work/bad.toml", "[limits]\nmemroy = \"64M\"\n");
    let good = stdout(saggar(&place, &["policy", "check", "good.toml"]), 0);
    assert_eq!(good, "good.toml: ok\n");
    let both = stdout(saggar(&place, &["policy", "check", "good.toml", "bad.toml", "absent.toml"]), 1);
    let problems: Vec<&str> = both.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(problems.len(), 2, "{both}");
    assert!(problems[0].contains("bad.toml") && problems[0].contains("memroy"), "{both}");
    assert!(problems[1].contains("absent.toml"), "{both}");
}

#[test]
fn the_schema_is_json_and_knows_the_keys() {
    let place = Place::new(Caller::current());
    let schema = json(saggar(&place, &["policy", "schema"]), 0);
    assert!(schema["properties"]["limits"]["properties"]["memory"].is_object(), "{schema}");
}

#[test]
fn every_shell_is_completed() {
    let place = Place::new(Caller::current());
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = stdout(saggar(&place, &["completions", shell]), 0);
        assert!(
            script.contains("explain") && script.contains("stats") && script.contains("saggar"),
            "{shell}"
        );
        // Values of a fixed set as well; what PowerShell is given has none.
        for value in ["nesting", "stream-json", "landlock-scope"] {
            assert!(shell == "powershell" || shell == "elvish" || script.contains(value), "{shell}: {value}");
        }
    }
}

/// `saggar explain | head` ends as quietly as any program.
#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let place = Place::new(Caller::current());
    let commands: [&[&str]; 6] = [
        &["stats"],
        &["explain"],
        &["explain", "--json"],
        &["wrap", "--dry-run", "--", "true"],
        &["policy", "schema"],
        &["completions", "zsh"],
    ];
    for args in commands {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = saggar(&place, args);
        let ended = command.stdout(writer).output().unwrap();
        assert_eq!(
            (ended.status.code(), String::from_utf8_lossy(&ended.stderr).as_ref()),
            (Some(0), ""),
            "{args:?}"
        );
    }
}
