//! `saggar session apply` and `discard`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::{ID, Work, on_each};

as_each_caller! {
    fn all_or_some_changes_are_taken_over(caller) {
        on_each(caller, |work| {
            work.begin("echo 1 > src/main; rm -r old; mkdir -p d/e; echo x > d/e/f; echo y > d/g; ln -s kept link; chmod 755 kept; echo s > s; chmod 700 d/e; rm src/same; mkdir src/same; echo z > src/same/z");
            let before = work.diff();
            let said = work.run(&["apply", ID, "d/e"]).success();
            assert_eq!(said, "A d/\nA d/e/\nA d/e/f\n", "with the directories above it");
            work.has("d/e/f", "x\n");
            assert!(!work.folder().join("d/g").exists() && work.folder().join("old/a").exists());
            assert_eq!(work.diff().len(), before.len() - 3, "overlay: {}: {before:?}", work.overlay);
            work.run(&["apply", "--dry-run", ID]).success();
            work.has("src/main", "one\ntwo\nthree\n");
            work.run(&["apply", ID]).success();
            assert_eq!(work.diff(), [""; 0]);
            work.has("src/main", "1\n");
            work.has("src/same/z", "z\n");
            assert!(!work.folder().join("old").exists());
            assert_eq!(fs::read_link(work.folder().join("link")).unwrap().to_str(), Some("kept"));
            let meta = |name: &str| work.folder().join(name).symlink_metadata().unwrap();
            assert_eq!(meta("kept").permissions().mode() & 0o7777, 0o755);
            assert_eq!(meta("d/e").permissions().mode() & 0o7777, 0o700);
            for name in ["d", "d/e", "d/e/f", "link", "kept", "src/main", "src/same"] {
                assert_eq!(meta(name).uid(), caller.uid().as_raw(), "{name}");
            }
            assert!(!work.folder().join(".saggar-apply").exists());
            // Later changes are compared with what was applied, and the agent sees it.
            work.resume("cat src/main; echo 2 >> src/main");
            assert_eq!(work.diff(), ["M src/main"], "overlay: {}", work.overlay);
            work.run(&["apply", ID]).success();
            work.has("src/main", "1\n2\n");
            assert_eq!(work.run(&["apply", ID]).success(), "nothing has changed\n");
        });
    }

    /// A link in place of a directory would bring names of its target under the pattern.
    fn link_to_what_a_pattern_protects_is_refused(caller) {
        on_each(caller, |work| {
            work.place.configure_user("protect.paths = ['ci/**', 'lib/*.x']\n");
            work.begin("mkdir real; echo x > real/b; ln -s real ci; ln -s real lib; ln -s real free");
            let ended = work.run(&["apply", ID]);
            ended.refused(&["ci: it is protected", "lib: it is protected"]);
            assert!(!ended.stderr.contains("free: it is protected"), "{ended:?}");
        });
    }

    /// Those that appeared in the session, too.
    fn names_that_a_pattern_of_the_policy_matches_are_protected(caller) {
        on_each(caller, |work| {
            work.place.configure_user("protect.paths = ['*.lock', 'ci/**']\n");
            work.begin("echo x > fine; mkdir -p a ci/b real; echo x > a/new.lock; echo x > ci/b/c; ln -s ../real ci/l; ln -s real other");
            let ended = work.run(&["apply", ID]);
            ended.refused(&["nothing was done", "a/new.lock: it is protected", "ci/b/c: it is protected"]);
            assert!(!ended.stderr.contains("other: it is protected"), "{ended:?}");
            assert!(!ended.stderr.contains("fine"), "{ended:?}");
            work.run(&["apply", ID, "fine"]).success();
            work.run(&["apply", "--allow-protected", ID]).success();
            work.has("a/new.lock", "x\n");
        });
    }

    /// DECISIONS 34. One name is enough, and then nothing is done at all.
    fn protected_names_are_refused_unless_they_are_allowed(caller) {
        on_each(caller, |work| {
            work.begin("echo x > fine; mkdir -p sub/.vscode sub/.claude; echo {} > sub/.vscode/tasks.json; echo {} > sub/.claude/settings.json; git init -q sub/repo; mkdir bare; cd bare; mkdir objects refs; echo 'ref: refs/heads/main' > HEAD; echo '[core]' > config");
            let ended = work.run(&["apply", ID]);
            ended.refused(&["nothing was done", "sub/repo/.git/config: it is protected", "--allow-protected", "bare/config"]);
            // Out of a copy the names are taken when the session ends; an overlay keeps them until they are applied.
            assert_eq!(ended.stderr.contains("sub/.vscode/tasks.json: it is protected"), work.overlay, "{ended:?}");
            assert!(!work.folder().join("fine").exists());
            work.run(&["apply", ID, "sub/repo/.git/config"]).refused(&["protected"]);
            assert!(!work.folder().join("sub").exists());
            work.run(&["apply", ID, "fine"]).success();
            work.has("fine", "x\n");
            if work.overlay {
                work.run(&["apply", "--allow-protected", ID, "sub/.vscode"]).success();
                work.has("sub/.vscode/tasks.json", "{}\n");
            }
        });
    }

    fn conflicts_are_refused_unless_by_force(caller) {
        on_each(caller, |work| {
            work.begin("echo agent > src/main; echo fine > fine; rm -r old");
            work.write("src/main", "user");
            work.write("old/c", "of the user");
            work.run(&["apply", ID, "src", "fine"]).refused(&["src/main: it was changed in the folder", "--force"]);
            assert!(!work.folder().join("fine").exists(), "nothing is half done");
            let old = work.run(&["apply", ID, "old"]);
            old.refused(&["old"]);
            assert!(work.folder().join("old/a").exists());
            work.run(&["apply", "--force", ID]).success();
            work.has("src/main", "agent\n");
            work.has("fine", "fine\n");
            if !work.overlay {
                work.has("old/c", "of the user");
            }
        });
    }

    /// A link in the folder leads wherever its owner likes, and is no way for changes.
    fn links_of_the_folder_are_never_followed(caller) {
        on_each(caller, |work| {
            work.begin("echo agent > src/main; echo agent > src/new; echo agent > kept");
            let outside = work.place.make_dir("outside", 0o755);
            let secret = work.place.make_file("outside/main", "secret");
            fs::rename(work.folder().join("src"), work.folder().join("src2")).unwrap();
            symlink(&outside, work.folder().join("src")).unwrap();
            work.own(&work.folder().join("src"));
            fs::remove_file(work.folder().join("kept")).unwrap();
            symlink(&secret, work.folder().join("kept")).unwrap();
            work.own(&work.folder().join("kept"));
            for options in [&["apply", ID][..], &["apply", ID, "src"], &["apply", ID, "kept"]] {
                assert_eq!(work.run(options).code(), 125, "overlay: {} {options:?}", work.overlay);
            }
            let forced = work.run(&["apply", "--force", ID]);
            assert_eq!(fs::read_to_string(&secret).unwrap(), "secret", "{forced:?}");
            assert!(!outside.join("new").exists(), "{forced:?}");
        });
    }

    fn set_id_bits_and_devices_are_refused(caller) {
        on_each(caller, |work| {
            work.begin("echo x > x; mkfifo pipe; echo y > y");
            let file = work.left().join("x");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o4755)).unwrap();
            for name in ["x", "pipe"] {
                work.run(&["apply", "--force", "--allow-protected", ID, name]).refused(&[name, "nothing was done"]);
            }
            work.run(&["apply", ID, "y"]).success();
            assert!(!work.folder().join("x").exists() && !work.folder().join("pipe").exists());
        });
    }

    fn all_or_some_changes_are_thrown_away(caller) {
        on_each(caller, |work| {
            work.begin("echo 1 > src/main; rm -r old; mkdir -p d/e; echo x > d/e/f; echo y > d/g; rm kept; mkdir kept; echo k > kept/k");
            work.run(&["discard", ID, "d/e", "kept", "src/main"]).success();
            assert_eq!(work.diff(), ["A d/", "A d/g", "D old/", "D old/a", "D old/b"], "overlay: {}", work.overlay);
            work.run(&["discard", ID, "old/a"]).refused(&["old", "as a whole"]);
            work.run(&["discard", ID, "missing"]).refused(&["nothing has changed there"]);
            work.run(&["discard", ID]).success();
            assert_eq!(work.diff(), [""; 0], "overlay: {}", work.overlay);
            let ended = work.resume("cat src/main old/a kept; test ! -e d && echo gone");
            assert!(ended.stdout.contains("one\\ntwo\\nthree\\na\\nkept\\ngone"), "{ended:?}");
        });
    }

    /// What an agent is at work on stays where it is.
    fn a_session_that_is_served_is_left_alone(caller) {
        on_each(caller, |work| {
            let socket = work.place.join("run/b.sock");
            let mut command = work.place.saggar();
            command.args(["agent", "--adapter", "demo", "--session", ID, "--bridge-socket"]).arg(&socket);
            command.args(work.overlay.then_some("--workspace-overlay")).arg("../agent");
            let mut agent = crate::support::process::Process::start(&work.place, command);
            let mut client = crate::support::bridge_client::BridgeClient::connect_when_listening(&socket);
            assert!(client.turn("run: echo x > new").is_done());
            assert_eq!(work.diff(), ["A new"]);
            for words in [&["apply", ID][..], &["discard", ID], &["restore", ID, "x"]] {
                work.run(words).refused(&["is being served"]);
            }
            client.send(&serde_json::json!({"cmd": "shutdown"}));
            assert_eq!(agent.wait().code(), Some(0));
            work.run(&["apply", ID]).success();
            work.has("new", "x\n");
        });
    }
}

/// As root what is made in somebody's folder is that somebody's.
#[test]
fn files_applied_as_root_belong_to_the_folder_owner() {
    let caller = match crate::support::caller::Caller::root() {
        Ok(caller) => caller,
        Err(why) => skip!("{why}"),
    };
    let work = Work::new(caller, true);
    let owner = 12345;
    for name in ["", "src", "src/main", "src/same", "old", "old/a", "old/b", "kept", "CLAUDE.md"] {
        std::os::unix::fs::lchown(work.folder().join(name), Some(owner), Some(owner)).unwrap();
    }
    work.begin("echo x > src/main; mkdir d; echo y > d/f; ln -s f d/l");
    work.run(&["apply", ID]).success();
    for name in ["src/main", "d", "d/f", "d/l"] {
        let meta = work.folder().join(name).symlink_metadata().unwrap();
        assert_eq!((meta.uid(), meta.gid()), (owner, owner), "{name}");
    }
}
