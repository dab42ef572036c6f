//! `saggar wrap`: the work tree of the user, the end of the sandbox.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::told::{Session, ends_with, events, moved, names, telling};
use crate::isolation::wrapped::{Ended, Wrap};
use crate::support::process::Process;

pub(super) fn run(wrap: &Wrap, options: &[&str], script: &str) -> Ended {
    let options = [&["--quiet-degraded"], options].concat();
    let saggar = wrap.command(&options, &["/bin/sh", "-c", script]);
    wrap.finish(telling(&wrap.place, &saggar))
}

as_each_caller! {
    fn new_protected_names_are_quarantined_and_reported_and_others_stay(caller) {
        let wrap = Wrap::new(caller);
        let session = Session::of(&wrap.place);
        wrap.place.make_file("work/.profile", "mine");
        let script = "echo evil > .bashrc; mkdir -p .claude/hooks .vscode; echo {} > .claude/settings.json; \
            echo x > .claude/notes; echo x > .vscode/tasks.json; echo {} > .mcp.json; echo x > saggar.toml; echo x > work.txt";
        let ended = run(&wrap, &[], script);
        assert_eq!(ended.code(), 0, "{ended:?}");
        let expected = [".bashrc", ".claude/hooks", ".claude/settings.json", ".mcp.json", ".vscode", "saggar.toml"];
        assert_eq!(names(&wrap.place), expected);
        for (path, to) in moved(&wrap.place) {
            assert!(to.starts_with(session.0.join("quarantine")), "{}", to.display());
            assert!(ends_with(&to, path.rsplit('/').next().unwrap()), "{}", to.display());
            assert!(ended.stderr.contains(to.to_str().unwrap()), "the user is told: {}", ended.stderr);
            if path == ".vscode" {
                assert_eq!(fs::read_to_string(to.join("tasks.json")).unwrap(), "x\n");
            }
        }
        assert_eq!(fs::read_to_string(wrap.work().join(".profile")).unwrap(), "mine");
        assert!(wrap.work().join(".claude/notes").exists() && wrap.work().join("work.txt").exists());
        assert_eq!(fs::metadata(&session.0).unwrap().mode() & 0o777, 0o700);
    }

    /// The `.git` of a worktree or of a submodule is a file that decides where git's directory is.
    fn a_pointer_to_a_git_directory_that_was_there_stays(caller) {
        let wrap = Wrap::new(caller);
        let _session = Session::of(&wrap.place);
        for pointer in ["gitdir: ../real\n", "gitdir: /nonexistent/x\n"] {
            wrap.place.make_file("work/.git", pointer);
            let ended = run(&wrap, &[], "echo gitdir: .evil > .git; rm -f .git; mv .git x; echo x > file");
            assert_eq!(names(&wrap.place), [""; 0], "{ended:?}");
            assert_eq!(fs::read_to_string(wrap.work().join(".git")).unwrap(), pointer, "{ended:?}");
        }
    }

    fn run_without_new_protected_names_creates_no_quarantine(caller) {
        let wrap = Wrap::new(caller);
        let session = Session::of(&wrap.place);
        assert_eq!(run(&wrap, &[], "echo x > file").stderr, "");
        assert!(!session.0.exists());
    }

    /// The time limit is no way around it.
    fn a_timeout_is_an_end_too(caller) {
        let wrap = Wrap::new(caller);
        let _session = Session::of(&wrap.place);
        let ended = run(&wrap, &["--timeout", "2s"], "echo evil > .bashrc; exec sleep 1000");
        assert_eq!(ended.code(), 124);
        assert_eq!(names(&wrap.place), [".bashrc"]);
    }

    /// A repository of the agent's own loses its hooks and two keys, and is still one.
    fn a_new_repository_loses_what_git_would_run(caller) {
        let wrap = Wrap::new(caller);
        let _session = Session::of(&wrap.place);
        let init = "git init -q . && git config user.name t && git config user.email t@t && git config core.hooksPath /tmp/h && \
            git config core.fsmonitor ./evil && git config include.path ../evil && echo x > a && git add a && \
            git -c core.hooksPath=/dev/null -c core.fsmonitor= commit -qm one; \
            printf '#!/bin/sh\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit; ln -s /bin/true .git/hooks/post-commit";
        let script = format!("{init}; mkdir sub; cd sub; {init}; exit 0");
        let ended = run(&wrap, &[], &script);
        assert_eq!(ended.code(), 0, "{ended:?}");
        let in_one = ["config", "hooks/post-commit", "hooks/pre-commit"];
        let mut expected: Vec<String> =
            ["", "sub/"].iter().flat_map(|at| in_one.map(|name| format!("{at}.git/{name}"))).collect();
        expected.sort();
        assert_eq!(names(&wrap.place), expected);
        let why = &events(&wrap.place, "quarantined").iter().find(|event| event["path"].as_str().unwrap().ends_with("config")).unwrap()["why"].clone();
        assert_eq!(why, "sets core.fsmonitor, core.hookspath, include.path");
        for at in [".", "sub"] {
            let said = wrap.outside(&format!("cd {at} && git config --local -l && git log --oneline | wc -l && git status --porcelain -uno"));
            assert!(!said.contains("hookspath") && !said.contains("fsmonitor") && !said.contains("include"), "{said}");
            assert!(said.contains("user.name=t") && said.contains("\n1\n"), "{said}");
            assert!(wrap.work().join(at).join(".git/hooks").is_dir());
        }
    }

    /// The user's own repositories in the work tree: what they had stays, and nothing that git would run is added.
    fn an_older_repository_keeps_what_it_had(caller) {
        let wrap = Wrap::new(caller);
        let _session = Session::of(&wrap.place);
        wrap.outside("git init -q sub && cd sub && git config core.hooksPath mine && printf '#!' > .git/hooks/pre-push && chmod +x .git/hooks/pre-push; touch ../done; ls ..");
        let script = "cd sub; git config user.name t; git config core.pager evil; printf '#!' > .git/hooks/pre-commit; exit 0";
        let ended = run(&wrap, &[], script);
        assert_eq!(ended.code(), 0, "{ended:?}");
        assert_eq!(names(&wrap.place), [""; 0]);
        assert!(events(&wrap.place, "reported").is_empty());
        assert_eq!(wrap.outside("cd sub && git config core.hooksPath; git config user.name; git config core.pager || true"), "mine\n");
        assert!(wrap.work().join("sub/.git/hooks/pre-push").exists());
        assert!(!wrap.work().join("sub/.git/hooks/pre-commit").exists());
        // Nothing changed, nothing said.
        assert_eq!(run(&wrap, &[], "true").stderr, "");
    }

    fn a_bare_repository_keeps_nothing_that_git_would_run(caller) {
        let wrap = Wrap::new(caller);
        let _session = Session::of(&wrap.place);
        let ended = run(&wrap, &[], "git init -q --bare deep/er/repo; git init -q --bare other; git -C other config core.fsmonitor x");
        assert_eq!(ended.code(), 0, "{ended:?}");
        assert!(events(&wrap.place, "reported").is_empty());
        assert_eq!(names(&wrap.place), ["other/config"]);
        assert_eq!(wrap.outside("git -C deep/er/repo rev-parse --is-bare-repository; git -C other rev-parse --is-bare-repository"), "true\ntrue\n");
    }

    /// A linked worktree and a submodule's directory in a repository that is protected otherwise.
    fn git_directories_inside_gits_own_are_looked_at(caller) {
        let wrap = Wrap::new(caller);
        let _session = Session::of(&wrap.place);
        wrap.outside("git init -q -b main .; git config user.name t; git config user.email t@t; git commit -qm x --allow-empty");
        let script = "git worktree add -q wt; git init -q --bare .git/modules/a/b; git config -f .git/modules/a/b/config core.fsmonitor x; \
            mkdir .git/worktrees/evil; echo ../../../evil > .git/worktrees/evil/commondir; exit 0";
        let ended = run(&wrap, &[], script);
        assert_eq!(ended.code(), 0, "{ended:?}");
        assert_eq!(names(&wrap.place), [".git/modules/a/b/config", ".git/worktrees/evil/commondir"]);
        wrap.outside("cd wt && git status && git commit -qm y --allow-empty");
    }

    /// The host saves a protected file by a rename, which takes the protection away, and a program writes into the new
    /// file before it is killed.
    fn a_file_that_lost_its_protection_is_what_it_was(caller) {
        let wrap = Wrap::new(caller);
        let _session = Session::of(&wrap.place);
        wrap.place.make_file("work/.bashrc", "mine\n");
        let script = "echo up; until echo evil > .bashrc; do :; done 2>/dev/null; exec sleep 1000";
        let mut process = Process::start(&wrap.place, telling(&wrap.place, &wrap.command(&[], &["/bin/sh", "-c", script])));
        std::io::Read::read_exact(&mut process.take_stdout(), &mut [0; 3]).unwrap();
        wrap.outside("echo mine > new && mv new .bashrc");
        process.wait();
        assert_eq!(fs::read_to_string(wrap.work().join(".bashrc")).unwrap(), "mine\n", "{}", process.stderr());
    }
}
