//! `saggar session snapshot` and `restore`, from one session into the same and into another.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::trees::describe;
use super::{ID, Work, on_each};

const SCRIPT: &str = "echo x > src/main; rm -r old; mkdir -p d/e; echo f > d/e/f; ln d/e/f d/g; ln -s /etc/shadow link; \
                      chmod 750 d; touch -d @1000000000.123456789 d/e/f; mkdir -p node_modules d/.git tmp; echo x > node_modules/x; \
                      echo x > a.lock; echo x > b.sock; mkfifo pipe; printf x > $(printf '\\377'); mkdir -p $HOME/.claude; \
                      echo transcript > $HOME/.claude/s.jsonl; truncate -s 3M sparse; echo end >> sparse; echo x > closed; chmod 0 closed";

as_each_caller! {
    fn a_snapshot_is_restored_exactly(caller) {
        on_each(caller, |work| {
            work.begin(SCRIPT);
            let ended = work.run(&["snapshot", ID]);
            assert!(ended.stderr.contains("pipe: it is a FIFO"), "{ended:?}");
            let path = ended.success().trim().to_owned();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
            let name = work.run(&["snapshot", "--list", ID]).success().trim().to_owned();
            assert!(path.ends_with(&name), "{path} {name}");
            let changes = work.diff();
            let closed = work.left().join("closed");
            assert_eq!(fs::metadata(&closed).unwrap().permissions().mode() & 0o7777, 0, "as it was");
            let is_left_out = |name: &str| {
                ["node_modules", "tmp", ".lock", ".sock", "pipe", ".git"].iter().any(|left| name.contains(left))
            };
            fs::set_permissions(&closed, fs::Permissions::from_mode(0o600)).unwrap();
            let mut before = describe(&work.left(), true);
            before.retain(|path, _| !is_left_out(path.to_str().unwrap_or_default()));

            work.resume("rm -rf d src/main; echo later > later; rm -rf $HOME/.claude/*; rm -f link; ln -s later link");
            work.run(&["restore", ID, &name]).success();
            assert_eq!(fs::metadata(&closed).unwrap().permissions().mode() & 0o7777, 0);
            fs::set_permissions(&closed, fs::Permissions::from_mode(0o600)).unwrap();
            let mut after = describe(&work.left(), true);
            // The device 0:0 of an overlay has a time that says nothing; the top has what was in it when.
            for tree in [&mut before, &mut after] {
                tree.remove(std::path::Path::new("old"));
                tree.remove(std::path::Path::new("later"));
            }
            assert_eq!(before, after, "overlay: {}", work.overlay);
            assert_eq!(fs::read_to_string(work.session().join("home/.claude/s.jsonl")).unwrap(), "transcript\n");
            let expected: Vec<&String> = changes.iter().filter(|line| !is_left_out(line)).collect();
            let lines = work.diff();
            assert_eq!(lines.iter().collect::<Vec<_>>(), expected, "overlay: {}", work.overlay);
            let sparse = fs::metadata(work.left().join("sparse")).unwrap();
            assert!(sparse.blocks() * 512 < 1 << 20, "{} blocks", sparse.blocks());
            // The agent goes on with it.
            let ended = work.resume("cat src/main d/g; test ! -e old && cat $HOME/.claude/s.jsonl");
            assert!(ended.stdout.contains("x\\nf\\ntranscript"), "{ended:?}");
            let refused = work.run(&["snapshot", "--remove", &path, ID]);
            assert!(refused.stderr.contains("the session has no such snapshot"), "{refused:?}");
            work.run(&["snapshot", "--remove", &name, ID]).success();
            assert!(!std::path::Path::new(&path).exists());
            assert_eq!(work.run(&["snapshot", "--list", ID]).success(), "");
            for name in ["restore.new", "restore.ready"] {
                assert!(!work.session().join(name).exists());
            }
        });
    }

    fn snapshot_with_option_all_is_restored_with_all_files(caller) {
        let work = Work::new(caller, false);
        work.begin(SCRIPT);
        let output = work.place.join("all.tar.zst");
        let output = output.to_str().unwrap();
        work.run(&["snapshot", "--all", "--output", output, ID]).success();
        fs::set_permissions(work.left().join("closed"), fs::Permissions::from_mode(0o600)).unwrap();
        let mut before = describe(&work.left(), false);
        work.run(&["restore", ID, output]).success();
        fs::set_permissions(work.left().join("closed"), fs::Permissions::from_mode(0o600)).unwrap();
        before.remove(std::path::Path::new("pipe"));
        assert_eq!(describe(&work.left(), false), before);
    }

    /// KC-21: what one session has goes on in another.
    fn snapshot_of_one_session_can_be_restored_in_another(caller) {
        on_each(caller, |work| {
            work.begin("echo x > new; rm kept; mkdir -p $HOME/.claude; echo t > $HOME/.claude/t");
            let output = work.place.join("s.tar.zst");
            work.run(&["snapshot", "--output", output.to_str().unwrap(), ID]).success();
            let other = Work::new(caller, work.overlay);
            other.begin("echo other > other");
            // As somebody would carry it over.
            let carried = other.place.join("s.tar.zst");
            fs::copy(&output, &carried).unwrap();
            caller.own(&carried);
            other.run(&["restore", ID, carried.to_str().unwrap()]).success();
            assert_eq!(other.diff(), ["D kept", "A new"], "overlay: {}", work.overlay);
            let ended = other.resume("cat new $HOME/.claude/t; test ! -e kept && echo gone");
            assert!(ended.stdout.contains("x\\nt\\ngone"), "{ended:?}");
        });
    }

    /// B10: what agents other than Claude Code keep in their home is in a snapshot too; a restore replaces that alone.
    fn state_of_other_agents_is_restored_and_nothing_beside_it(caller) {
        let work = Work::new(caller, false);
        work.begin(
            "cd $HOME; mkdir -p .codex/sessions .local/share/opencode/.cache .local/bin; echo one > .codex/sessions/a; \
             echo one > .local/share/opencode/.cache/db; echo one > .local/bin/tool; echo one > .profile",
        );
        let name = work.run(&["snapshot", ID]).success().trim().to_owned();
        work.resume(
            "cd $HOME; rm -r .codex; mkdir .codex; echo two > .codex/b; for f in .local/share/opencode/.cache/db .local/bin/tool \
             .profile; do echo two > $f; done; echo two > .local/share/opencode/new",
        );
        work.run(&["restore", ID, &name]).success();
        let home = work.session().join("home");
        let text = |path: &str| fs::read_to_string(home.join(path)).unwrap_or_default();
        assert_eq!((text(".codex/sessions/a"), text(".codex/b")), ("one\n".into(), String::new()));
        assert_eq!(text(".local/share/opencode/.cache/db"), "one\n");
        assert!(!home.join(".local/share/opencode/new").exists());
        assert_eq!((text(".local/bin/tool"), text(".profile")), ("two\n".into(), "two\n".into()));
        // With --all the whole home is.
        let all = work.run(&["snapshot", "--all", ID]).success().trim().to_owned();
        work.resume("cd $HOME; echo three > .profile; rm -r .local; echo three > .local");
        work.run(&["restore", ID, &all]).success();
        assert_eq!((text(".local/bin/tool"), text(".profile")), ("two\n".into(), "two\n".into()));
        assert_eq!(text(".local/share/opencode/.cache/db"), "one\n");
    }

    /// What stands in the way in the home is replaced, never followed, and blocks no restore.
    fn hostile_home_does_not_block_or_redirect_a_restore(caller) {
        let work = Work::new(caller, false);
        work.begin("cd $HOME; mkdir -p .codex .local/share/opencode; echo one > .codex/a; echo one > .local/share/opencode/a");
        let name = work.run(&["snapshot", ID]).success().trim().to_owned();
        let outside = work.place.join("outside");
        work.place.make_dir("outside", 0o755);
        work.place.make_dir("outside/share", 0o755);
        let home = work.session().join("home");
        for way in ["ln -s OUTSIDE .local", "mkdir .local; ln -s OUTSIDE/share .local/share", "mkdir -m 0 .local", "touch .local"] {
            let way = way.replace("OUTSIDE", outside.to_str().unwrap());
            work.resume(&format!("cd $HOME; chmod -f 700 .local; rm -rf .local .codex; {way}; mkdir -m 0 .codex"));
            work.run(&["restore", ID, &name]).success();
            for file in [".codex/a", ".local/share/opencode/a"] {
                assert_eq!(fs::read_to_string(home.join(file)).unwrap(), "one\n", "{way}");
            }
            assert_eq!(fs::read_dir(outside.join("share")).unwrap().count(), 0, "{way}");
            assert!(!home.join(".local").is_symlink() && !work.session().join("restore.ready").exists(), "{way}");
        }
    }

    /// A tree that its owner may not write is restored as it was.
    fn read_only_trees_are_restored(caller) {
        let work = Work::new(caller, false);
        work.begin("mkdir -p $HOME/.codex; echo one > $HOME/.codex/a; chmod 555 $HOME/.codex .");
        let name = work.run(&["snapshot", ID]).success().trim().to_owned();
        for _ in 0..2 {
            work.run(&["restore", ID, &name]).success();
            for directory in ["home/.codex", "workspace"] {
                let mode = fs::metadata(work.session().join(directory)).unwrap().permissions().mode();
                assert_eq!(mode & 0o7777, 0o555, "{directory}");
            }
        }
    }

    /// Of examples/hello, before any change to it, by the first version: snapshots are kept for years.
    fn snapshot_of_an_older_version_is_restored(caller) {
        let work = Work::new(caller, false);
        work.begin("echo x > new");
        let carried = work.place.join("hello.tar.zst");
        let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/changes/fixtures/hello.tar.zst");
        fs::copy(fixture, &carried).unwrap();
        caller.own(&carried);
        work.run(&["restore", ID, carried.to_str().unwrap()]).success();
        let names: Vec<_> = describe(&work.left(), false).into_keys().collect();
        assert_eq!(names, ["CLAUDE.md", "saggar.toml"].map(std::path::PathBuf::from));
    }

    fn a_snapshot_of_the_other_kind_is_refused(caller) {
        let (copy, overlay) = (Work::new(caller, false), Work::new(caller, true));
        copy.begin("echo x > new");
        overlay.begin("echo x > new");
        let output = overlay.place.join("s.tar.zst");
        overlay.run(&["snapshot", "--output", output.to_str().unwrap(), ID]).success();
        let carried = copy.place.join("s.tar.zst");
        fs::copy(&output, &carried).unwrap();
        caller.own(&carried);
        copy.run(&["restore", ID, carried.to_str().unwrap()]).refused(&["copy", "overlay"]);
        assert_eq!(copy.diff(), ["A new"]);
        assert!(!copy.session().join("restore.new").exists());
    }

    fn snapshot_and_restore_above_the_disk_limit_are_refused(caller) {
        let work = Work::new(caller, false);
        work.begin("truncate -s 5M large");
        let output = work.place.join("s.tar.zst");
        let output = output.to_str().unwrap();
        work.run(&["snapshot", "--disk", "4M", "--output", output, ID]).refused(&["large", "--disk"]);
        assert!(!fs::exists(output).unwrap() && !fs::exists(format!("{output}.partial")).unwrap());
        work.run(&["snapshot", "--output", output, ID]).success();
        assert!(fs::metadata(output).unwrap().len() < 100_000, "zeros take no room");
        work.run(&["restore", "--disk", "4M", ID, output]).refused(&["large", "--disk"]);
        assert!(!work.session().join("restore.new").exists());
        work.run(&["restore", ID, "missing"]).refused(&["no such snapshot"]);
    }
}
