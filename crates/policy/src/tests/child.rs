//! Tests of the program's environment.

use super::*;
use std::ffi::{OsStr, OsString};

/// The program's environment as `NAME=VALUE (layer)`.
fn child(policy: &EffectivePolicy, caller: &[(&str, &str)], fixed: &[(&str, &str)]) -> Vec<String> {
    let caller = caller.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let fixed: Vec<(&str, &OsStr)> = fixed.iter().map(|(name, value)| (*name, OsStr::new(*value))).collect();
    let text = |text: OsString| text.into_string().unwrap();
    let result = program_environment(policy, caller, &fixed).into_iter();
    result.map(|(name, value, layer)| format!("{}={} ({layer})", text(name), text(value))).collect()
}

#[test]
fn kc_09_of_two_hundred_poisoned_variables_none_gets_in() {
    let mut caller: Vec<(String, String)> = (0..200).map(|i| (format!("POISON_{i}"), "x".into())).collect();
    for name in [
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "SSH_AUTH_SOCK",
        "GITHUB_TOKEN",
        "GH_TOKEN",
        "NPM_TOKEN",
        "DATABASE_URL",
        "PGPASSWORD",
        "REDIS_URL",
        "OPENAI_API_KEY",
        "STRIPE_SECRET_KEY",
        "DOCKER_HOST",
        "LD_PRELOAD",
        "NODE_OPTIONS",
        "HOME",
        "CLAUDE_CONFIG_DIR",
        "path",
        "PATH_",
        "LANG",
        "ANTHROPIC_API_KEY",
        "TERM",
    ] {
        caller.push((name.into(), "x".into()));
    }
    caller.push(("TERM".into(), "the first counts".into()));
    let caller: Vec<(&str, &str)> =
        caller.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let held = EffectivePolicy::built_in(HomeSource::Tmp);
    assert_eq!(
        child(&held, &caller, &[("HOME", "/home/agent")]),
        [
            "ANTHROPIC_API_KEY=x (built-in)",
            "HOME=/home/agent (built-in)",
            "LANG=x (built-in)",
            "TERM=x (built-in)"
        ]
    );
}

#[test]
fn kc_10_loader_variables_get_in_when_an_operator_names_them() {
    let scratch = Scratch::with(&[(
        "user/config.toml",
        "env.pass = ['NODE_OPTIONS']\nenv.set = { LD_PRELOAD = 'a.so' }",
    )]);
    let caller = [("NODE_OPTIONS", "--x"), ("LD_PRELOAD", "evil.so"), ("PERL5OPT", "-x")];
    let got = child(&scratch.effective(), &caller, &[]);
    let layer = scratch.path("user/config.toml").display().to_string();
    assert_eq!(got, [format!("LD_PRELOAD=a.so ({layer})"), format!("NODE_OPTIONS=--x ({layer})")]);
}

#[test]
fn the_strongest_word_on_a_variable_wins() {
    let scratch = Scratch::with(&[
        ("etc/config.toml", "env.set = { ISSUE = 'operator', IS_SANDBOX = '2', GONE = '1' }"),
        (
            "agent/saggar.toml",
            "env.set = { FIXED = 'folder', OWN = 'folder' }\nenv.deny = ['GONE', 'LANG', 'GIVEN']",
        ),
    ]);
    let arguments = ["PATH", "GIVEN=1"].map(|text| text.parse().unwrap());
    let held = scratch
        .load_with(PolicyOptions { env: arguments.to_vec(), ..PolicyOptions::default() })
        .unwrap()
        .effective;
    let caller = [("PATH", "/a:/b"), ("LANG", "C"), ("FIXED", "caller")];
    let fixed = [("PATH", "/a"), ("FIXED", "saggar"), ("IS_SANDBOX", "1"), ("HOME", "/home/agent")];
    let got =
        child(&held, &caller, &fixed).join("\n").replace(scratch.directory.path().to_str().unwrap(), "");
    insta::assert_snapshot!(got, @r"
    FIXED=saggar (built-in)
    HOME=/home/agent (built-in)
    ISSUE=operator (/etc/config.toml)
    IS_SANDBOX=2 (/etc/config.toml)
    OWN=folder (agent folder saggar.toml)
    PATH=/a:/b (command line)
    ");
}
