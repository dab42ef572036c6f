use super::*;
use crate::{EffectivePolicy, HomeSource, PolicyLayer};
use proptest::prelude::*;
use saggar_sys::testing::cases;

fn rules(allow: &[&str], deny: &[&str], ask: &[&str]) -> PermissionPolicy {
    let rules = |texts: &[&str]| {
        texts.iter().map(|text| Setting::new(text.parse().unwrap(), &PolicyLayer::CommandLine)).collect()
    };
    PermissionPolicy {
        allow: rules(allow),
        deny: rules(deny),
        ask: rules(ask),
        ..PermissionPolicy::built_in()
    }
}

fn bash(command: &str) -> String {
    serde_json::json!({ "command": command }).to_string()
}

fn word(ruling: &PermissionRuling) -> &'static str {
    match ruling {
        PermissionRuling::Allow(_) => "allow",
        PermissionRuling::Deny(_) => "deny",
        PermissionRuling::Ask => "ask",
    }
}

#[test]
fn a_denial_stands_over_a_demand_to_ask_and_that_over_an_allowance() {
    let all = rules(&["Bash", "Read"], &["Bash(rm *)"], &["Bash(git push*)"]);
    for (command, expected) in
        [("ls", "allow"), ("git push x", "ask"), ("rm x", "deny"), ("git status", "allow")]
    {
        assert_eq!(word(&all.rule_on("Bash", &bash(command))), expected, "{command}");
    }
    assert_eq!(word(&all.rule_on("Write", "{}")), "ask", "what no rule speaks of is asked");
    assert_eq!(
        all.rule_on("Bash", &bash("rm x")),
        PermissionRuling::Deny("Bash(rm *) (command line)".into())
    );
    let everything = rules(&["*"], &["mcp__*"], &[]);
    assert_eq!(word(&everything.rule_on("mcp__db__drop", "{}")), "deny");
    assert_eq!(
        word(&everything.rule_on("Bash", "not JSON")),
        "allow",
        "a rule for a whole tool reads no input"
    );
}

#[test]
fn a_pattern_permits_one_plain_command_and_denies_it_wherever_it_stands() {
    let permits = rules(&["Bash(git *)", "Bash(make && make test)"], &[], &[]);
    for (command, expected) in [
        ("git status", "allow"),
        ("make && make test", "allow"),
        ("git status; rm -rf /", "ask"),
        ("git status && rm x", "ask"),
        ("git status | sh", "ask"),
        ("git log $(rm x)", "ask"),
        ("git log `rm x`", "ask"),
        ("git log > /etc/x", "ask"),
        ("git log\nrm x", "ask"),
        ("git log ${IFS}", "ask"),
        ("git", "ask"),
        ("gitx status", "ask"),
    ] {
        assert_eq!(word(&permits.rule_on("Bash", &bash(command))), expected, "{command}");
    }
    let denies = rules(&["Bash"], &["Bash(rm *)"], &[]);
    for command in ["rm x", "true; rm x", "a && rm x", "a|rm x", "(rm x)", "a\n  rm x", "`rm x`", "$(rm x)"] {
        assert_eq!(word(&denies.rule_on("Bash", &bash(command))), "deny", "{command}");
    }
}

#[test]
fn a_path_that_could_mean_another_is_not_permitted_and_is_denied() {
    let input = |path: &str| serde_json::json!({ "file_path": path }).to_string();
    let permits = rules(&["Write(/work/*)"], &[], &[]);
    for (path, expected) in [
        ("/work/a/b", "allow"),
        ("/work/../etc/passwd", "ask"),
        ("/work/./a", "ask"),
        ("/work//a", "ask"),
        ("/worker", "ask"),
    ] {
        assert_eq!(word(&permits.rule_on("Write", &input(path))), expected, "{path}");
    }
    let denies = rules(&["Read"], &["Read(/work/secret/*)"], &[]);
    for path in ["/work/secret/a", "/work/x/../secret/a", "/work//secret/./a", "/work/secret/../secret/a"] {
        assert_eq!(word(&denies.rule_on("Read", &input(path))), "deny", "{path}");
    }
}

#[test]
fn a_star_in_a_host_does_not_reach_beyond_it() {
    let input = |url: &str| serde_json::json!({ "url": url }).to_string();
    let permits = rules(&["WebFetch(https://*.example.org/*)"], &[], &[]);
    for (url, expected) in [
        ("https://a.example.org/x?y", "allow"),
        ("https://a.b.example.org/", "allow"),
        ("https://evil.test/.example.org/", "ask"),
        ("https://evil.test?.example.org/", "ask"),
        ("https://evil.test#.example.org/", "ask"),
        ("https://u@evil.test\\.example.org/", "ask"),
    ] {
        assert_eq!(word(&permits.rule_on("WebFetch", &input(url))), expected, "{url}");
    }
}

#[test]
fn what_no_rule_can_read_is_not_permitted_and_is_denied() {
    let long = bash(&"x".repeat(100_000));
    for input in ["{\"command\":7}", "{\"command\":[\"ls\"]}", "not JSON", "[]", long.as_str()] {
        assert_eq!(word(&rules(&["Bash(*)"], &[], &[]).rule_on("Bash", input)), "ask", "{:.40}", input);
        assert_eq!(
            word(&rules(&["Bash"], &["Bash(rm *)"], &[]).rule_on("Bash", input)),
            "deny",
            "{:.40}",
            input
        );
    }
    // A missing field does not match a pattern.
    assert_eq!(word(&rules(&["Grep"], &["Grep(/etc/*)"], &[]).rule_on("Grep", "{}")), "allow");
    // Of two fields with one name the last counts, as for the agent.
    let twice = r#"{"command":"ls","command":"rm x"}"#;
    assert_eq!(word(&rules(&["Bash(ls)"], &[], &[]).rule_on("Bash", twice)), "ask");
}

#[test]
fn rules_are_shown_as_they_are_written_and_bad_ones_say_what_is_wrong() {
    for text in ["Bash", "Bash(git *)", "*", "mcp__x__*", "mcp__x(name=a(b)*)", "Read(/a b/*)"] {
        assert_eq!(text.parse::<PermissionRule>().unwrap().to_string(), text);
    }
    let complaint = |text: &&str| text.parse::<PermissionRule>().unwrap_err().to_string();
    let bad = [
        "",
        "(x)",
        "Bash(",
        "Bash()",
        "Bash(x",
        "Ba sh",
        "Bash)",
        "mcp__x(a)",
        "mcp__x(=b)",
        "mcp__x(a=)",
        "*(x)",
        "Bash(\u{1b}[2J)",
    ];
    insta::assert_snapshot!(bad.iter().map(complaint).collect::<Vec<_>>().join("\n"), @r#"
    rule "" names no tool; write TOOL, Bash(PATTERN) or TOOL(FIELD=PATTERN), where * is any text
    rule "(x)" names no tool; write TOOL, Bash(PATTERN) or TOOL(FIELD=PATTERN), where * is any text
    rule "Bash(" does not end in a bracket; write TOOL, Bash(PATTERN) or TOOL(FIELD=PATTERN), where * is any text
    rule "Bash()" has an empty pattern; write TOOL, Bash(PATTERN) or TOOL(FIELD=PATTERN), where * is any text
    rule "Bash(x" does not end in a bracket; write TOOL, Bash(PATTERN) or TOOL(FIELD=PATTERN), where * is any text
    rule "Ba sh" has a character that no tool's name has; write TOOL, Bash(PATTERN) or TOOL(FIELD=PATTERN), where * is any text
    rule "Bash)" has a character that no tool's name has; write TOOL, Bash(PATTERN) or TOOL(FIELD=PATTERN), where * is any text
    rule "mcp__x(a)" does not name the field of this tool that its pattern matches; write TOOL, Bash(PATTERN) or TOOL(FIELD=PATTERN), where * is any text
    rule "mcp__x(=b)" does not name the field of this tool that its pattern matches; write TOOL, Bash(PATTERN) or TOOL(FIELD=PATTERN), where * is any text
    rule "mcp__x(a=)" does not name the field of this tool that its pattern matches; write TOOL, Bash(PATTERN) or TOOL(FIELD=PATTERN), where * is any text
    rule "*(x)" does not name the field of this tool that its pattern matches; write TOOL, Bash(PATTERN) or TOOL(FIELD=PATTERN), where * is any text
    rule "Bash(\u{1b}[2J)" has a character that cannot be shown; write TOOL, Bash(PATTERN) or TOOL(FIELD=PATTERN), where * is any text
    "#);
}

#[test]
fn rb_21_modes_are_permitted_by_name() {
    let mut permissions = PermissionPolicy::built_in();
    assert_eq!(permissions.may_set_mode("plan"), Ok(PermissionMode::Plan));
    assert!(permissions.may_set_mode("bypassPermissions").unwrap_err().contains("permissions.modes"));
    assert!(permissions.may_set_mode("plann").unwrap_err().contains("did you mean"));
    permissions.modes = Some(Setting::new(
        PermissionModes(vec![PermissionMode::BypassPermissions]),
        &PolicyLayer::CommandLine,
    ));
    assert_eq!(permissions.may_set_mode("bypassPermissions"), Ok(PermissionMode::BypassPermissions));
    assert!(permissions.may_set_mode("plan").unwrap_err().contains("does not permit"));
    assert_eq!(EffectivePolicy::built_in(HomeSource::Tmp).permissions, PermissionPolicy::built_in());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(3000), failure_persistence: None, ..ProptestConfig::default() })]

    /// The glob matcher gives the results of a simple recursive matcher.
    #[test]
    fn a_glob_is_what_a_recursive_reading_says(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
        fn plain(pattern: &[u8], text: &[u8]) -> bool {
            match pattern {
                [] => text.is_empty(),
                [b'*', rest @ ..] => (0..=text.len()).any(|at| plain(rest, &text[at..])),
                [first, rest @ ..] => text.first() == Some(first) && plain(rest, &text[1..]),
            }
        }
        prop_assert_eq!(glob::matches(&pattern, &text, |_| true), plain(pattern.as_bytes(), text.as_bytes()));
    }

    /// Additional denials and rules to ask never allow more.
    #[test]
    fn what_takes_away_never_gives(
        tool in proptest::sample::select(&["Bash", "Read", "mcp__x"][..]),
        command in "[a-z ;|/]{0,10}",
        allow in proptest::collection::vec(proptest::sample::select(&["Bash", "Bash(a*)", "*", "Read(/*)"][..]), 0..3),
        more in proptest::collection::vec(proptest::sample::select(&["Bash(b*)", "Bash", "Read", "mcp__*"][..]), 0..3),
    ) {
        let input = serde_json::json!({ "command": command, "file_path": command }).to_string();
        let before = rules(&allow, &[], &[]).rule_on(tool, &input);
        let denied = rules(&allow, &more, &[]).rule_on(tool, &input);
        let asked = rules(&allow, &[], &more).rule_on(tool, &input);
        prop_assert!(word(&denied) != "allow" || word(&before) == "allow");
        prop_assert!(word(&asked) != "allow" || word(&before) == "allow");
        prop_assert!(word(&asked) != "deny");
    }
}
