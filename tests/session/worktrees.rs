//! `session create --worktree`: a worktree of the caller's repository for each session.

use std::path::PathBuf;

use super::stage::{Sessions, supervisor, text};
use crate::support::caller::Caller;
use nix::sys::signal::Signal;

/// Sessions on a repository with a commit.
fn sessions(caller: Caller) -> Sessions {
    let sessions = Sessions::new(caller);
    sessions.stage.place.make_file("work/file", "one\n");
    let script = "git init -q -b main . && git config user.name t && git config user.email t@t && git add -A && git commit -qm first";
    sessions.outside(script);
    sessions
}

/// Runs a shell command in the sandbox of a session, which must succeed.
#[track_caller]
fn inside(sessions: &Sessions, name: &str, command: &str) {
    let said = sessions.send(name, &format!("run: {command}"));
    assert!(said.contains("code 0"), "{command}: {said}");
}

fn worktree(sessions: &Sessions, name: &str) -> PathBuf {
    sessions.stage.place.join("state/saggar/worktrees").join(name)
}

as_each_caller! {
    fn a_session_works_on_a_worktree_of_its_own(caller) {
        let sessions = sessions(caller);
        let created = sessions.create("one", &["--worktree", "fix-1"]);
        assert_eq!(text(&created, "workspace"), worktree(&sessions, "one").display().to_string());
        sessions.create("two", &["--worktree", "fix-2"]);
        for (name, word) in [("one", "uno"), ("two", "due")] {
            inside(&sessions, name, &format!("test -z \"$(git status --porcelain)\" && echo {word} > file && git commit -qam {word}"));
        }
        let log = "git log --format=%s%d main fix-1 fix-2 | sort && cat file && git status --porcelain";
        assert_eq!(sessions.outside(log), "due (fix-2)\nfirst (HEAD -> main)\nuno (fix-1)\none\n");
        // A session continues where it was.
        let watch = supervisor(&sessions.show("one"));
        watch.signal(Signal::SIGTERM);
        watch.wait_gone("the supervisor");
        sessions.ok(&["resume", "one"]);
        inside(&sessions, "one", "grep -qx uno file && git commit -q --allow-empty -m again");
        sessions.ok(&["end", "one"]);
        sessions.ok(&["remove", "one"]);
        sessions.ok(&["end", "--remove", "two"]);
        assert_eq!(sessions.outside("git worktree list | wc -l && git branch --format='%(refname:short)'"), "1\nfix-1\nfix-2\nmain\n");
        assert!(!worktree(&sessions, "one").exists());
    }

    fn changes_that_are_not_committed_are_not_lost(caller) {
        let sessions = sessions(caller);
        sessions.outside("git branch there");
        sessions.create("one", &["--worktree", "there"]);
        inside(&sessions, "one", "echo more > new");
        sessions.run(&["end", "--remove", "one"]).refused(125, &["worktrees/one", "untracked", "--force"]);
        sessions.run(&["remove", "one"]).refused(125, &["worktrees/one"]);
        let ended = sessions.run(&["prune"]);
        assert_ne!(ended.code, 0, "{ended:?}");
        assert_eq!(std::fs::read_to_string(worktree(&sessions, "one").join("new")).unwrap(), "more\n");
        sessions.ok(&["remove", "--force", "one"]);
        assert!(!worktree(&sessions, "one").exists());
        assert_eq!(sessions.outside("git worktree list | wc -l"), "1\n");
    }

    fn a_start_that_fails_leaves_neither_worktree_nor_branch(caller) {
        let sessions = sessions(caller);
        let work = sessions.stage.work().display().to_string();
        for (options, words) in [
            (&["--worktree", "new", "--agent-cmd", "/nonexistent/agent", "--adapter", "bridge"][..], &["not found"][..]),
            (&["--worktree", "main", "--adapter", "demo"], &["make a worktree of", "git: fatal:", "main"]),
            (&["--worktree", "a..b", "--adapter", "demo"], &["a..b"]),
            (&["--worktree", "-f", "--adapter", "demo"], &["-f"]),
            (&["--worktree", "new", "--workspace", "/var/tmp", "--adapter", "demo"], &["not a git repository"]),
            (&["--worktree", "new", "--adapter", "demo", "--memory", "1"], &["memory"]),
        ] {
            let ended = sessions.run(&[&["create", "--session", "one"], options, &[&work]].concat());
            assert_ne!(ended.code, 0, "{options:?}");
            for word in words {
                assert!(ended.stderr.contains(word), "{options:?}: {ended:?}");
            }
            assert_eq!(sessions.outside("git worktree list | wc -l && git branch | wc -l"), "1\n1\n", "{options:?}");
            assert!(!worktree(&sessions, "one").exists(), "{options:?}");
        }
    }

    /// An agent can leave commits on no branch, lock its worktree, and work in one that was removed.
    fn what_git_would_lose_stays_and_what_it_forgot_goes(caller) {
        let sessions = sessions(caller);
        sessions.create("one", &["--worktree", "w1"]);
        inside(&sessions, "one", "git checkout -q --detach && git commit -q --allow-empty -m lost && git worktree lock .");
        sessions.run(&["end", "--remove", "one"]).refused(125, &["on no branch", "session remove --force"]);
        sessions.outside("git worktree unlock ../state/saggar/worktrees/one; git branch kept worktrees/one/HEAD; git worktree lock ../state/saggar/worktrees/one");
        sessions.run(&["remove", "one"]).refused(125, &["locked"]);
        sessions.ok(&["remove", "--force", "one"]);
        sessions.create("one", &["--worktree", "w1"]);
        sessions.ok(&["end", "one"]);
        sessions.outside("rm -r ../state/saggar/worktrees/one");
        sessions.ok(&["remove", "one"]);
        assert_eq!(sessions.outside("git worktree list | wc -l"), "1\n");
        sessions.create("one", &["--worktree", "w1"]);
        sessions.ok(&["end", "--remove", "one"]);
    }

    /// The branch is an agent's work, and so is what the worktree contains.
    fn nothing_of_the_branch_or_the_worktree_runs_outside(caller) {
        let sessions = sessions(caller);
        let ran = sessions.stage.place.join("ran");
        let script = format!("#!/bin/sh\ntouch {}\ncat\n", ran.display());
        sessions.stage.place.make_file("work/evil", &script);
        sessions.outside("chmod +x evil; mkdir .hooks tools; cp evil .hooks/post-checkout; cp evil .hooks/post-index-change; cp evil tools/filter
            echo '*.dat filter=x' > .gitattributes; echo 1 > a.dat; git add -A; git commit -qm evil; git branch evil; rm -r tools/filter .hooks
            git config core.hooksPath .hooks; git config filter.x.clean ./tools/filter; git config filter.x.smudge ./tools/filter");
        sessions.create("one", &["--worktree", "evil"]);
        assert!(!ran.exists(), "at the creation");
        inside(&sessions, "one", "touch a.dat");
        sessions.ok(&["end", "one"]);
        sessions.ok(&["remove", "--force", "one"]);
        assert!(!ran.exists(), "at the removal");
        // A repository that a sandbox made while it runs was not searched yet.
        let free = sessions.stage.place.make_dir("free", 0o755);
        sessions.create("two", &["--workspace", free.to_str().unwrap()]);
        inside(&sessions, "two", "git init -q . && git -c user.name=t -c user.email=t@t commit -q --allow-empty -m first");
        sessions.run(&["create", "--session", "three", "--adapter", "demo", "--worktree", "w", free.to_str().unwrap()])
            .refused(125, &["could have written", "config"]);
        sessions.ok(&["end", "--remove", "two"]);
    }

    /// What could be written by another sandbox is not believed.
    fn a_git_file_that_a_running_sandbox_wrote_is_not_believed(caller) {
        let sessions = sessions(caller);
        let place = &sessions.stage.place;
        let (free, common) = (place.make_dir("free", 0o755), sessions.stage.work().join(".git"));
        sessions.outside("git worktree add -q ../wt");
        sessions.create("one", &["--workspace", free.to_str().unwrap()]);
        // It knows a part that names its workspace.
        std::fs::write(common.join("worktrees/wt/gitdir"), format!("{}\n", free.join(".git").display())).unwrap();
        inside(&sessions, "one", &format!("echo 'gitdir: {}' > .git", common.join("worktrees/wt").display()));
        let mut command = place.saggar();
        command.args(["wrap", "--", "ls", ".."]).current_dir(&free);
        let ended = sessions.stage.run(command);
        assert!(ended.stderr.contains("could have written .git"), "{ended:?}");
        assert_eq!(ended.stdout, "free\n");
        sessions.ok(&["end", "--remove", "one"]);
    }
}
