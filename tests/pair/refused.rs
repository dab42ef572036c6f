//! What a pair run cannot be.

use super::place::Pairs;

as_each_caller! {
    fn what_is_wrong_is_named_before_there_is_a_run(caller) {
        let pairs = Pairs::new(caller);
        let place = &pairs.stage.place;
        let folder = |name: &str| place.join(name).to_str().unwrap().to_owned();
        let (codex, empty) = (folder("codex"), place.make_dir("empty", 0o755).to_str().unwrap().to_owned());
        let odd = place.make_dir("a b", 0o755).to_str().unwrap().to_owned();
        place.make_file("a b/CLAUDE.md", "x");
        let run = ["run", "--task", "x"];
        for (more, code, words) in [
            (&["--worker", "/nonexistent"][..], 125, &["--worker /nonexistent: No such file"][..]),
            (&["--worker", &codex, "--reviewer", &codex], 125, &["two members of the pair run have one name"]),
            (&["--worker", &odd], 125, &["invalid agent name \"a b\""]),
            (&["--worker", &codex, "--reviewer", &empty], 125, &["it has no CLAUDE.md"]),
            (&["--worker", &codex, "--", "--nonsense"], 2, &["options of the worker", "saggar session create"]),
            (&["--worker", &codex, "--", "--mailbox", "9"], 2, &["options of the worker", "--mailbox"]),
            (&["--max-iterations", "0"], 2, &["--max-iterations"]),
            (&["/nonexistent"], 125, &["/nonexistent: No such file"]),
        ] {
            let ended = pairs.run(&[&run, more].concat());
            assert!(ended.code == code && words.iter().all(|word| ended.stderr.contains(word)), "{more:?}: {ended:?}");
        }
        let ended = pairs.run(&["run", "--task", "", "--worker", &codex, "--reviewer", &folder("claude")]);
        assert!(ended.code == 125 && ended.stderr.contains("has no content"), "{ended:?}");
        assert_eq!(pairs.ok(&["list"]), "");
        for words in [&["status", "1"][..], &["log", "1"], &["export", "1"], &["send", "1", "text"]] {
            let ended = pairs.run(words);
            assert!(ended.code == 125 && ended.stderr.contains("run 1 of "), "{words:?}: {ended:?}");
        }
        assert_eq!(pairs.sessions(), [""; 0]);
        assert!(!place.join("home/.agentpair").exists(), "reading makes no directories");
    }

    fn runs_that_are_not_there_or_no_pair_runs_are_refused(caller) {
        let pairs = Pairs::new(caller);
        let mut mailbox = pairs.stage.place.saggar();
        mailbox.args(["mcp", "mailbox", "--run", "1", "--as", "claude"]);
        assert_eq!(pairs.stage.run(mailbox).code, 0);
        for words in [&["status", "1"][..], &["resume", "1"], &["send", "1", "text"]] {
            let ended = pairs.run(words);
            assert!(ended.code == 125 && ended.stderr.contains("run 1 "), "{words:?}: {ended:?}");
        }
        for words in [&["status", "7"][..], &["log", "7"], &["watch", "7"], &["export", "7"], &["resume", "7"]] {
            let ended = pairs.run(words);
            assert!(ended.code == 125 && ended.stderr.contains("run 7 of "), "{words:?}: {ended:?}");
        }
        assert_eq!(pairs.stage.run(pairs.run_command(&[])).code, 0);
        let ended = pairs.run(&["send", "2", "--to", "nobody", "text"]);
        assert!(ended.code == 125 && ended.stderr.contains("nobody"), "{ended:?}");
    }
}
