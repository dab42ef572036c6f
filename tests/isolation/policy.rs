//! A policy that the agent can write takes away, and never gives.

use std::fs;

use super::wrapped::Wrap;

as_each_caller! {
    fn a_policy_in_the_workspace_that_asks_for_more_is_refused_by_name(caller) {
        let wrap = Wrap::new(caller);
        let widenings = [
            ("network.mode", "[network]\nmode = \"host\""),
            ("profile", "profile = \"nesting\""),
            ("files.ro", "[files]\nro = [\"/root\"]"),
            ("files.rw", "[files]\nrw = [\"/etc\"]"),
            ("files.home", "[files]\nhome = \"/root\""),
            ("env.pass", "[env]\npass = [\"AWS_SECRET_ACCESS_KEY\"]"),
            ("env.set", "[env.set]\nLD_PRELOAD = \"./evil.so\""),
            ("limits.memory", "[limits]\nmemory = \"1T\""),
            ("limits.pids", "[limits]\npids = 100000"),
            ("protect.git_config", "[protect]\ngit_config = false"),
            ("protections.landlock", "[protections]\nlandlock = \"prefer\""),
            ("api.socket", "[api]\nsocket = \"/run/docker.sock\""),
            ("sandbox.uid", "[sandbox]\nuid = 0"),
        ];
        for (key, document) in widenings {
            wrap.place.make_file("work/saggar.toml", document);
            wrap.sh("echo ran").refused(&["saggar.toml", key]);
        }
    }

    fn a_broken_policy_in_the_workspace_is_no_default(caller) {
        let wrap = Wrap::new(caller);
        for document in ["", "nonsense", "[limits]\nunknown = 1", "[limits]\npids = -1"] {
            wrap.place.make_file("work/saggar.toml", document);
            wrap.sh("echo ran").refused(&["saggar.toml"]);
        }
        fs::remove_file(wrap.work().join("saggar.toml")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", wrap.work().join("saggar.toml")).unwrap();
        wrap.sh("echo ran").refused(&["saggar.toml"]);
    }

    /// The program of an agent is not the business of `wrap`, which starts none; the log tells on request.
    fn a_policy_in_the_workspace_may_name_an_agent(caller) {
        let wrap = Wrap::new(caller);
        wrap.place.make_file("work/saggar.toml", "adapter = \"demo\"\nagent_cmd = \"claude\"\n[limits]\nnofile = 99\n");
        let mut command = wrap.command(&[], &["/bin/sh", "-c", "ulimit -n"]);
        command.env("SAGGAR_LOG", "debug");
        let ended = wrap.finish(command);
        assert!(ended.stderr.contains("adapter is for agents") && ended.stderr.contains("agent_cmd is"), "{ended:?}");
        assert_eq!(ended.success(), "99\n");
        wrap.place.make_file("work/saggar.toml", "adapter = \"demo\"\nprofile = \"nesting\"");
        wrap.sh("echo ran").refused(&["saggar.toml", "profile"]);
    }

    fn a_tighter_policy_in_the_workspace_is_taken(caller) {
        let wrap = Wrap::new(caller);
        wrap.place.make_file("work/saggar.toml", "[env]\ndeny = [\"LANG\"]\n[files]\nhide = [\".env\", \"keys\", \"missing\"]\n");
        wrap.place.make_file("work/.env", "SECRET");
        wrap.place.make_dir("work/keys", 0o755);
        wrap.place.make_file("work/keys/key", "SECRET");
        let script = "echo \"$LANG.\"; cat .env; ls -A keys; \
            mv .env x || rm .env || ln .env y || cat .env; mv keys z; rm -rf keys; cat keys/key z/key; exit 0";
        let seen = wrap.sh(script);
        assert!(!seen.stdout.contains("SECRET"), "{seen:?}");
        assert_eq!(seen.success().trim(), ".");
        assert_eq!(fs::read_to_string(wrap.work().join(".env")).unwrap(), "SECRET", "it is there on the host");
    }

    /// Covering a link would leave what it leads to.
    fn hiding_a_symbolic_link_is_refused_with_the_reason(caller) {
        let wrap = Wrap::new(caller);
        wrap.place.make_file("work/real", "SECRET");
        std::os::unix::fs::symlink("real", wrap.work().join("secret")).unwrap();
        wrap.place.make_file("work/saggar.toml", "[files]\nhide = [\"secret\"]\n");
        wrap.sh("cat real").refused(&["secret", "link"]);
    }

    /// The agent must not write its next policy, whatever the file is called.
    fn a_policy_file_that_was_read_from_the_workspace_is_protected(caller) {
        let wrap = Wrap::new(caller);
        wrap.place.make_dir("work/etc", 0o755);
        wrap.place.make_file("work/etc/mine.toml", "[network]\nmode = \"none\"\n");
        let script = "(echo x > etc/mine.toml) 2>&- && echo wrote; rm -f etc/mine.toml 2>&- && echo removed; mv etc x 2>&- && echo moved; exit 0";
        let said = wrap.run(&["--policy", "etc/mine.toml"], &["/bin/sh", "-c", script]).success();
        assert_eq!(said, "");
    }
}
