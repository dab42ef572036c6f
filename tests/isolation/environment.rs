//! KC-09, KC-10: the environment is built, not filtered.

use super::wrapped::{Ended, Wrap};
use std::collections::BTreeMap;

/// What every program gets when the caller has none of the passed names.
const ALWAYS: [&str; 7] =
    ["CLAUDE_CODE_TMPDIR", "CLAUDE_CONFIG_DIR", "HOME", "IS_SANDBOX", "LANG", "PATH", "SHLVL"];

fn variables(ended: Ended) -> BTreeMap<String, String> {
    let text = ended.success();
    let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

as_each_caller! {
    /// KC-09: 200 host variables, among them secrets and everything that makes a program run other code.
    fn of_two_hundred_host_variables_only_the_listed_arrive(caller) {
        let wrap = Wrap::new(caller);
        let known = [
            "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GITHUB_TOKEN", "GH_TOKEN", "SSH_AUTH_SOCK", "DATABASE_URL",
            "OPENAI_API_KEY", "NPM_TOKEN", "DOCKER_HOST", "KUBECONFIG", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT",
            "NODE_OPTIONS", "PYTHONSTARTUP", "PYTHONPATH", "PERL5OPT", "RUBYOPT", "BASH_ENV", "ENV", "PROMPT_COMMAND",
            "GIT_SSH_COMMAND", "GIT_EXTERNAL_DIFF", "GCONV_PATH", "GLIBC_TUNABLES", "JAVA_TOOL_OPTIONS", "IFS", "PS4",
            "HTTP_PROXY", "https_proxy", "DBUS_SESSION_BUS_ADDRESS", "XAUTHORITY", "DISPLAY", "WAYLAND_DISPLAY",
            "XDG_CONFIG_HOME", "SUDO_USER", "USER", "LOGNAME", "MAIL", "OLDPWD", "TMPDIR", "LC_ALL", "TZDIR", "anthropic_api_key",
        ];
        let mut command = wrap.command(&[], &["/usr/bin/env", "-0"]);
        for name in known {
            command.env(name, "poison");
        }
        // LD_PRELOAD must not break saggar itself: the loader says so on stderr and goes on.
        for number in known.len()..200 {
            command.env(format!("POISON_{number}"), "poison");
        }
        command.env("ANTHROPIC_API_KEY", "sk-test").env("TERM", "dumb").env("HOME", "/nonexistent");
        let inside = variables(wrap.finish(command));
        let mut expected: Vec<&str> = ALWAYS.into_iter().filter(|name| *name != "SHLVL").collect();
        expected.extend(["ANTHROPIC_API_KEY", "TERM"]);
        expected.sort_unstable();
        assert_eq!(inside.keys().collect::<Vec<_>>(), expected);
        assert!(inside.values().all(|value| value != "poison"), "{inside:?}");
        assert_eq!(inside["ANTHROPIC_API_KEY"], "sk-test");
        assert_eq!(inside["HOME"], "/home/agent");
    }

    /// KC-09: not in the memory of another process either.
    fn no_process_inside_shows_another_environment(caller) {
        let wrap = Wrap::new(caller);
        let mut command = wrap.command(&[], &["/bin/sh", "-c", "cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'"]);
        command.env("SAGGAR_TEST_POISON", "poison");
        let seen = wrap.finish(command).success();
        assert!(seen.contains("IS_SANDBOX=1"), "{seen}");
        assert!(!seen.to_lowercase().contains("poison"), "{seen}");
    }

    /// KC-10: on top, by name; a loader's variable when it is named.
    fn named_variables_are_passed_and_set(caller) {
        let wrap = Wrap::new(caller);
        let options = ["--env", "PASSED", "--env", "SET=a=b", "--env", "EMPTY=", "--env", "NODE_OPTIONS=--no-warnings"];
        let mut command = wrap.command(&options, &["/usr/bin/env", "-0"]);
        command.env("PASSED", "through").env("NODE_OPTIONS", "--require=/evil.js").env("OTHER", "not named");
        let inside = variables(wrap.finish(command));
        assert_eq!(inside["PASSED"], "through");
        assert_eq!(inside["SET"], "a=b");
        assert_eq!(inside["EMPTY"], "");
        assert_eq!(inside["NODE_OPTIONS"], "--no-warnings");
        assert!(!inside.contains_key("OTHER"));
    }

    fn env_all_passes_all_variables_but_those_that_saggar_sets(caller) {
        let wrap = Wrap::new(caller);
        let mut command = wrap.command(&["--env-all", "--env", "SET=own"], &["/usr/bin/env", "-0"]);
        command.env("PASSED", "a b\n\"c").env("AWS_SECRET", "too").env("SET", "of the caller");
        let inside = variables(wrap.finish(command));
        assert_eq!((inside["PASSED"].as_str(), inside["AWS_SECRET"].as_str()), ("a b\n\"c", "too"));
        assert_eq!((inside["SET"].as_str(), inside["HOME"].as_str()), ("own", "/home/agent"));
        assert!(!inside.contains_key("XDG_RUNTIME_DIR") && !inside.contains_key("SAGGAR_STATE_DIR"));
    }
}
