//! What programs find at a path that the policy hides: an empty file or directory that takes no writes, and that no ordinary
//! tool trips over.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::ChildStdout;

use nix::sys::signal::Signal;

use super::wrapped::Wrap;
use crate::processes::account::family;
use crate::support::caller::Caller;
use crate::support::deadline::Deadline;
use crate::support::process::{Process, Watch};
use crate::support::wait;

/// A workspace with hidden paths, as the keys of `[files]`.
fn hiding(caller: Caller, hidden: &[&str]) -> Wrap {
    let wrap = Wrap::new(caller);
    // What it prints is compared with what the same commands print outside.
    wrap.place.configure_user("protections.quiet = true\n");
    let list: Vec<String> = hidden.iter().map(|path| format!("{path:?}")).collect();
    wrap.place.make_file("work/saggar.toml", &format!("[files]\nhide = [{}]\n", list.join(", ")));
    wrap
}

fn make(wrap: &Wrap, name: &str, content: &str, mode: u32) {
    let path = wrap.place.make_file(&format!("work/{name}"), content);
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A repository with everything that is there in its first commit.
const COMMIT: &str = "git init -q && git -c user.name=t -c user.email=t@t add -A && git -c user.name=t -c user.email=t@t commit -qm first";

macro_rules! needs_git {
    () => {
        if !Path::new("/usr/bin/git").exists() {
            skip!("there is no git");
        }
    };
}

as_each_caller! {
    fn a_hidden_file_is_an_empty_one(caller) {
        let wrap = hiding(caller, &[".env", "run.sh", "missing"]);
        make(&wrap, ".env", "SECRET", 0o640);
        make(&wrap, "run.sh", "SECRET", 0o755);
        make(&wrap, "plain", "x", 0o644);
        let said = wrap.sh("stat -c '%F %a %h %s' .env run.sh; stat -c '%u %g' plain .env run.sh | sort -u | wc -l; cat .env run.sh; ls missing 2>&-; exit 0");
        assert_eq!(said.success(), "regular empty file 640 0 0\nregular empty file 755 0 0\n1\n");
    }

    /// Else the next sandbox would find it elsewhere.
    fn what_holds_a_hidden_path_cannot_be_renamed(caller) {
        let wrap = hiding(caller, &["one/two/secret", "three/four"]);
        for directory in ["one", "one/two", "three", "three/four"] {
            wrap.place.make_dir(&format!("work/{directory}"), 0o755);
        }
        make(&wrap, "one/two/secret", "SECRET", 0o644);
        make(&wrap, "three/four/secret", "SECRET", 0o644);
        wrap.sh("! mv one 1 && ! mv one/two one/2 && ! mv three 3 && touch one/new && mv one/new one/newer").success();
        let said = wrap.sh("cat */*/secret */secret 2>&-; ls -d one/two/secret one/newer three/four");
        assert_eq!(said.success(), "one/newer\none/two/secret\nthree/four\n");
    }

    fn a_hidden_directory_is_an_empty_one(caller) {
        let wrap = hiding(caller, &["keys"]);
        wrap.place.make_dir("work/keys", 0o750);
        make(&wrap, "keys/key", "SECRET", 0o644);
        let said = wrap.sh("stat -c '%F %a' keys; stat -c '%u %g' . keys | sort -u | wc -l; ls -A keys; cat keys/key 2>&-; exit 0");
        assert_eq!(said.success(), "directory 750\n1\n");
    }

    /// Nothing is swallowed, and nothing of the host's changes.
    fn what_is_hidden_refuses_writes(caller) {
        let wrap = hiding(caller, &[".env", "keys"]);
        make(&wrap, ".env", "SECRET", 0o666);
        wrap.place.make_dir("work/keys", 0o777);
        make(&wrap, "keys/key", "SECRET", 0o666);
        for attempt in ["echo x >.env", "echo x >>.env", "echo x >keys/key", "mkdir keys/more", "chmod 600 .env", "touch .env"] {
            let ended = wrap.sh(&format!("LC_ALL=C; export LC_ALL; ({attempt}) 2>&1"));
            assert_ne!(ended.code(), 0, "{attempt}");
            assert!(ended.stdout.contains("Read-only file system"), "{attempt}: {ended:?}");
        }
        for attempt in ["rm -f .env", "mv .env x", "rmdir keys", "mv keys x", "ln .env x"] {
            assert_ne!(wrap.sh(&format!("({attempt}) 2>&-")).code(), 0, "{attempt}");
        }
        for name in [".env", "keys/key"] {
            assert_eq!(fs::read_to_string(wrap.work().join(name)).unwrap(), "SECRET");
        }
        assert_eq!(fs::metadata(wrap.work().join(".env")).unwrap().mode() & 0o777, 0o666);
    }

    fn trees_with_hidden_paths_are_copied(caller) {
        let wrap = hiding(caller, &[".env", "keys"]);
        make(&wrap, ".env", "SECRET", 0o600);
        wrap.place.make_dir("work/keys", 0o755);
        make(&wrap, "keys/key", "SECRET", 0o644);
        let said = wrap.sh("cp -r . /tmp/copy && tar -cf /tmp/t.tar . && cat /tmp/copy/.env && ls -A /tmp/copy/keys");
        assert_eq!((said.stderr.as_str(), said.stdout.as_str(), said.code()), ("", "", 0));
    }

    /// git records what the repository has, and not what covers it.
    fn git_records_a_hidden_file_as_it_is(caller) {
        needs_git!();
        let wrap = hiding(caller, &[".env", r"a b/\*.env", "run.sh", "nested/.env"]);
        wrap.place.make_dir("work/nested", 0o755);
        wrap.place.make_dir("work/a b", 0o755);
        make(&wrap, ".env", "SECRET", 0o644);
        make(&wrap, "run.sh", "SECRET", 0o755);
        make(&wrap, "nested/.env", "SECRET", 0o644);
        wrap.outside(&format!("cd nested && {COMMIT}"));
        make(&wrap, "a b/*.env", "SECRET", 0o600);
        make(&wrap, "a b/x.env", "shown", 0o644);
        make(&wrap, "code", "old", 0o644);
        wrap.outside(&format!("echo nested >.gitignore && {COMMIT}"));
        let script = "set -e; git() { command git -c user.name=t -c user.email=t@t \"$@\"; }; \
            git diff; git add -A; git diff --cached --exit-code; git diff; \
            echo new >code; echo new >'a b/x.env'; git commit -qam second; \
            cd nested; git add -A; git diff --cached --exit-code";
        let ended = wrap.sh(script);
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str(), ended.code()), ("", "", 0));
        let names = wrap.outside("git show --name-only --format= HEAD; git status --porcelain; git -C nested status --porcelain");
        assert_eq!(names, "a b/x.env\ncode\n", "and nothing else was recorded");
        assert_eq!(wrap.outside("git show HEAD:.env"), "SECRET");
    }

    /// git leaves hidden files alone, and looks at them again when the sandbox has ended.
    fn git_lives_with_hidden_files(caller) {
        needs_git!();
        const SPLIT: &str = "git config splitIndex.maxPercentChange 90 && git update-index --split-index";
        for (format, version, split, inside) in [
            ("sha1", "2", ":", ":"),
            ("sha256", "2", ":", ":"),
            ("sha1", "4", ":", ":"),
            ("sha1", "2", SPLIT, ":"),
            ("sha256", "4", SPLIT, "echo new >code; git commit -qam split"),
            ("sha1", "2", ":", "git update-index --split-index"),
        ] {
            let wrap = hiding(caller, &[".env", "keys", "a b/\"key\"", "skipped"]);
            for directory in ["keys", "keys/deep", "a b"] {
                wrap.place.make_dir(&format!("work/{directory}"), 0o755);
            }
            for name in [".env", "keys/key", "keys/deep/key", "a b/\"key\"", "skipped"] {
                make(&wrap, name, "SECRET", 0o644);
            }
            make(&wrap, "code", "old", 0o644);
            make(&wrap, "gone", "", 0o644);
            let first = COMMIT.replace("git init", &format!("git init --object-format={format}"));
            wrap.outside(&format!("{first} && git update-index --index-version {version} && {split}"));
            wrap.outside(&format!("git rm -q gone && echo >added && {COMMIT} && git update-index --skip-worktree skipped"));
            let listing = wrap.outside("git ls-files -t --stage");
            let script = "set -e; git() { command git -c user.name=t -c user.email=t@t \"$@\"; }; \
                git status --porcelain; git diff --exit-code; git add -A; git diff --cached --exit-code; \
                echo new >code; git stash -q; git stash pop -q; git commit -qam second; \
                git checkout -q -b other; git reset -q --hard HEAD^; git checkout -q .; git status --porcelain";
            let ended = wrap.sh(&format!("{script}; {inside}"));
            assert_eq!((ended.stdout.as_str(), ended.stderr.as_str(), ended.code()), ("", "", 0));
            let after = wrap.outside("git ls-files -t --stage");
            let paths = |listing: &str| listing.lines().map(|line| (line[..1].to_owned(), line.rsplit('\t').next().unwrap().to_owned())).collect::<Vec<_>>();
            assert_eq!(paths(&after), paths(&listing), "{split}; {inside}");
            assert!(after == listing || inside.contains("commit"), "{after}");
            assert_eq!(wrap.outside("cat .env keys/key keys/deep/key skipped; git status --porcelain; git fsck --cache --no-dangling"), "SECRET".repeat(4));
            // A change of the same length, which only the times show.
            make(&wrap, ".env", "secret", 0o644);
            assert_eq!(wrap.outside("git status --porcelain"), " M .env\n");
        }
    }

    /// The host's index stays as it is, and the overlay has one of its own, if git has not locked it.
    fn git_lives_with_hidden_files_in_an_overlay(caller) {
        needs_git!();
        let wrap = hiding(caller, &[".env", "keys", "one/.env"]);
        for directory in ["keys", "one"] {
            wrap.place.make_dir(&format!("work/{directory}"), 0o755);
        }
        for name in [".env", "keys/key", "one/.env"] {
            make(&wrap, name, "SECRET", 0o644);
        }
        make(&wrap, "code", "old", 0o644);
        wrap.outside(&format!("(cd one && {COMMIT} && git update-index --split-index) && echo one >.gitignore && {COMMIT}"));
        let state = "sha256sum .git/index one/.git/index; git ls-files -t; git rev-parse HEAD";
        let before = wrap.outside(state);
        let script = "set -e; git() { command git -c user.name=t -c user.email=t@t \"$@\"; }; \
            git status --porcelain; git -C one status --porcelain; git diff --exit-code; git add -A; git diff --cached --exit-code; \
            echo new >code; git stash -q; git stash pop -q; git commit -qam second; \
            git checkout -q -b other; git reset -q --hard HEAD^; git checkout -q .; git status --porcelain; \
            stat -c '%a %u' .git/index code | sort -u | wc -l";
        let overlay = |script: &str| wrap.run(&["--workspace-overlay"], &["/bin/sh", "-c", script]);
        let ended = overlay(script);
        assert_eq!((ended.stdout.as_str(), ended.code()), ("1\n", 0), "{ended:?}");
        assert_eq!(wrap.outside(state), before);
        wrap.outside(": >.git/index.lock");
        assert_eq!(overlay("git ls-files -t .env").success(), "H .env\n");
    }

    /// Repositories below the workspace, and a work tree whose index is elsewhere in it.
    fn git_lives_with_hidden_files_in_each_repository(caller) {
        needs_git!();
        let wrap = hiding(caller, &["one/.env", "two/.env", "one/below/.env"]);
        for directory in ["one", "one/below"] {
            wrap.place.make_dir(&format!("work/{directory}"), 0o755);
            make(&wrap, &format!("{directory}/.env"), "SECRET", 0o644);
        }
        wrap.outside(&format!("(cd one/below && {COMMIT}) && cd one && echo below >.gitignore && {COMMIT} && git worktree add -q ../two"));
        let all = "for tree in one one/below two; do git -C $tree status --porcelain; git -C $tree ls-files -t .env; done";
        assert_eq!(wrap.sh(all).success(), "S .env\n".repeat(3));
        assert_eq!(wrap.outside(all), "H .env\n".repeat(3));
    }

    /// The last of several sandboxes restores what it hides, however the others end.
    fn git_lives_with_hidden_files_in_two_sandboxes_at_once(caller) {
        needs_git!();
        let wrap = hiding(caller, &[".env", "key"]);
        make(&wrap, ".env", "SECRET", 0o644);
        make(&wrap, "key", "SECRET", 0o644);
        wrap.outside(COMMIT);
        let listing = || wrap.outside("git ls-files -t .env key");
        let start = |options: &[&str]| {
            // At the end of input it ends at once: git, killed, would leave the index locked.
            let script = "printf R; read -r line || exit 1; git status --porcelain; git ls-files -t .env key";
            let mut process = Process::start(&wrap.place, wrap.command(options, &["/bin/sh", "-c", script]));
            let stdout = process.take_ready_stdout();
            (process, stdout)
        };
        let both = "S .env\nS key\n";
        let finish = |(mut process, mut stdout): (Process, ChildStdout)| {
            process.take_stdin().write_all(b"\n").unwrap();
            let seen = Deadline::usual().read_to_end(&mut stdout).unwrap();
            assert!(process.wait().success());
            String::from_utf8(seen).unwrap()
        };
        for ends_by_itself in [true, false] {
            let first = start(&[]);
            let overlay = start(&["--workspace-overlay"]);
            let second = start(&[]);
            assert_eq!(listing(), both);
            if ends_by_itself {
                assert_eq!(finish(first), both);
            } else {
                let (mut process, _stdout) = first;
                let launcher = Watch::of(family(process.pid(), "saggar:launch").pid).unwrap();
                process.signal(Signal::SIGKILL);
                process.wait();
                launcher.wait_gone("the launcher");
            }
            assert_eq!(listing(), both);
            let third = start(&[]);
            assert_eq!(finish(second), both);
            assert_eq!(finish(third), both);
            assert_eq!(listing(), "H .env\nH key\n");
            // The index of the overlay is its own.
            assert_eq!(finish(overlay), both);
        }
    }

    /// Whatever ends the sandbox, and where git has the index locked at the end.
    fn git_looks_at_hidden_files_again_after_a_kill(caller) {
        needs_git!();
        let wrap = hiding(caller, &[".env"]);
        make(&wrap, ".env", "SECRET", 0o644);
        wrap.outside(COMMIT);
        let listing = |expected: &str| assert_eq!(wrap.outside("git ls-files -t"), format!("{expected} .env\nH saggar.toml\n"));
        let start = || {
            let mut process = Process::start(&wrap.place, wrap.command(&[], &["/bin/sh", "-c", "echo R; exec sleep 1000"]));
            process.take_ready_stdout();
            process
        };
        // The next start restores it. Root has one runtime directory on the host: the start of another test may be at it.
        let restored_by_a_start = || {
            let deadline = Deadline::usual();
            loop {
                assert_eq!(wrap.sh("true").success(), "");
                if !caller.is_root() || wrap.outside("git ls-files -t .env") == "H .env\n" {
                    return listing("H");
                }
                assert!(!deadline.remaining().is_zero(), "the index is not restored");
            }
        };

        let mut process = start();
        process.launcher();
        listing("S");
        process.signal(Signal::SIGKILL);
        process.wait();
        wait::until(&wrap.work().join(".git/index"), "be restored", |_| wrap.outside("git ls-files -t .env") == "H .env\n");

        let mut process = start();
        process.kill_launcher();
        process.signal(Signal::SIGKILL);
        process.wait();
        // Root has one runtime directory on the host, so that the command of another test may have restored it.
        if !caller.is_root() {
            listing("S");
        }
        restored_by_a_start();

        let lock = wrap.work().join(".git/index.lock");
        let ended = wrap.sh(": >.git/index.lock");
        assert_eq!(ended.code(), 0);
        listing("S");
        fs::remove_file(lock).unwrap();
        restored_by_a_start();
    }

    /// What the workspace is to be, it stays: the index of a repository is found by no link, and a broken one is left as it is.
    fn what_is_no_index_is_left_alone(caller) {
        needs_git!();
        let wrap = hiding(caller, &[".env"]);
        make(&wrap, ".env", "SECRET", 0o644);
        wrap.outside(COMMIT);
        for damage in ["cp .git/index outside; ln -sf ../outside .git/index", "rm .git/index; mkfifo .git/index", "rm -f .git/index; echo x >.git/index"] {
            wrap.outside(damage);
            let before = wrap.outside("stat -c '%F %s %y' .git/index; ls .git/*.lock 2>&-; sha256sum outside");
            let ended = wrap.sh("true");
            assert_eq!(ended.code(), 0, "{ended:?}");
            assert!(ended.stderr.contains("git shows hidden files as changed: the git index of"), "{ended:?}");
            assert_eq!(wrap.outside("stat -c '%F %s %y' .git/index; ls .git/*.lock 2>&-; sha256sum outside"), before, "{damage}");
        }
    }

    /// A file that the repository does not have is as empty there as it is inside.
    fn git_adds_nothing_of_a_hidden_file(caller) {
        needs_git!();
        let wrap = hiding(caller, &["key"]);
        make(&wrap, "code", "x", 0o644);
        wrap.outside(COMMIT);
        make(&wrap, "key", "SECRET", 0o644);
        let ended = wrap.sh("git add -A && git -c user.name=t -c user.email=t@t commit -qm second");
        assert_eq!((ended.stderr.as_str(), ended.code()), ("", 0));
        assert_eq!(wrap.outside("git show HEAD:key"), "");
    }

    fn explain_knows_what_is_hidden(caller) {
        let wrap = hiding(caller, &[".env", "keys"]);
        make(&wrap, ".env", "SECRET", 0o644);
        wrap.place.make_dir("work/keys", 0o755);
        make(&wrap, "keys/key", "SECRET", 0o644);
        let explain = |arguments: &[&str]| {
            let mut command = wrap.place.saggar();
            command.arg("explain").args(arguments);
            wrap.finish(command).success()
        };
        for (path, state, readable) in [(".env", "masked", true), ("keys", "masked", true), ("keys/key", "absent", false)] {
            let told: serde_json::Value = serde_json::from_str(&explain(&["--json", "--path", path])).unwrap();
            assert_eq!(
                (&told["state"], &told["readable"], &told["writable"], &told["creatable"], &told["host"]),
                (&state.into(), &readable.into(), &false.into(), &false.into(), &serde_json::Value::Null),
                "{path}: {told}"
            );
            let layer = told["decided_by"]["layer"].as_str().unwrap();
            assert!(layer.contains("saggar.toml"), "{path}: {told}");
        }
        let all: serde_json::Value = serde_json::from_str(&explain(&["--json"])).unwrap();
        let masks = all["files"]["masks"].as_array().unwrap();
        for (name, how) in [(".env", "an empty file covers it, read-only"), ("keys", "an empty directory covers it, read-only")] {
            let path = wrap.work().join(name);
            let row = masks.iter().find(|mask| mask["path"] == path.to_str().unwrap());
            assert_eq!(row.unwrap_or_else(|| panic!("no {name} in {masks:?}"))["how"], how);
        }
        assert!(explain(&[]).contains("an empty directory covers it, read-only"));
    }
}
