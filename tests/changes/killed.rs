//! KC-25: whoever is killed in the middle leaves the old or the new, and the same command again does the rest.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use saggar::session::snapshot::{SnapshotLimits, extract};

use super::trees::{Is, describe};
use super::{ID, Work, on_each};
use crate::oci::traced::command_killed_at;
use crate::support::rounds;

/// How many system calls a command makes, and after how many of them it is killed.
fn moments(work: &Work, words: &[&str], most: usize) -> Vec<usize> {
    let mut total = 0;
    let status = command_killed_at(&work.place, &work.session_command(words), |index, _| {
        total = index + 1;
        false
    });
    assert!(status.success(), "{words:?}");
    let wanted = most.min(total);
    (0..wanted).map(|number| number * total / wanted).collect()
}

fn kill(work: &Work, words: &[&str], at: usize) {
    command_killed_at(&work.place, &work.session_command(words), |index, _| index == at);
}

/// What a snapshot holds; it must be whole.
fn content(file: &Path) -> BTreeMap<PathBuf, Is> {
    let into = tempfile::tempdir_in("/var/tmp").unwrap();
    let at = File::open(into.path()).unwrap();
    extract(File::open(file).unwrap(), at.as_fd(), SnapshotLimits::default()).unwrap();
    describe(&into.path().join("workspace"), false)
}

as_each_caller! {
    fn a_killed_snapshot_leaves_the_old_one_or_the_new_one(caller) {
        let work = Work::new(caller, false);
        work.begin("for i in $(seq 20); do echo $i > f$i; done");
        let output = work.place.join("s.tar.zst");
        let words = ["snapshot", "--output", output.to_str().unwrap(), ID];
        let moments = moments(&work, &words, rounds(50, 200));
        let old = content(&output);
        fs::write(work.left().join("f1"), "another").unwrap();
        let new = describe(&work.left(), false);
        assert_ne!(old, new);
        let first = fs::read(&output).unwrap();
        let mut seen = [0, 0];
        for at in moments {
            fs::write(&output, &first).unwrap();
            caller.own(&output);
            kill(&work, &words, at);
            let is = content(&output);
            assert!(is == old || is == new, "at {at}");
            seen[usize::from(is == new)] += 1;
        }
        work.run(&words).success();
        assert_eq!(content(&output), new);
        assert!(!work.place.join("s.tar.zst.partial").exists(), "what the killed left is gone");
        assert!(seen[0] > 0, "{seen:?}");
    }

    fn a_killed_apply_leaves_each_file_old_or_new_and_can_be_run_again(caller) {
        on_each(caller, |work| {
            const SCRIPT: &str = "echo new > src/main; rm -r old; mkdir -p d/e; echo x > d/e/f; rm kept; mkdir kept; echo k > kept/k; echo y > y";
            work.begin(SCRIPT);
            let before = describe(&work.folder(), false);
            let moments = moments(&work, &["apply", ID], rounds(20, 100));
            let after = describe(&work.folder(), false);
            for at in moments {
                let work = Work::new(caller, work.overlay);
                work.begin(SCRIPT);
                kill(&work, &["apply", ID], at);
                for (path, is) in describe(&work.folder(), false) {
                    if path.starts_with(".saggar-apply") {
                        continue;
                    }
                    let known = [before.get(&path), after.get(&path)];
                    // A mode is the last thing that a directory gets.
                    let is_directory = matches!(is, Is::Directory { .. });
                    assert!(known.contains(&Some(&is)) || is_directory, "{} at {at}: {is:?}", path.display());
                }
                let again = work.run(&["apply", ID]);
                assert_eq!(again.code(), 0, "at {at}, overlay {}: {again:?}", work.overlay);
                let is = describe(&work.folder(), false);
                assert_eq!(is, after, "at {at}, overlay {}: {again:?}", work.overlay);
            }
        });
    }

    fn a_killed_restore_is_not_begun_or_is_finished_by_the_next_command(caller) {
        let work = Work::new(caller, false);
        work.begin("echo 1 > state; echo 1 > only1; mkdir -p $HOME/.claude; echo 1 > $HOME/.claude/state");
        let name = work.place.join("one.tar.zst");
        let name = name.to_str().unwrap();
        work.run(&["snapshot", "--output", name, ID]).success();
        let one = describe(&work.left(), false);
        let moments = moments(&work, &["restore", ID, name], rounds(50, 200));
        let mut seen = [0, 0];
        for at in moments {
            work.run(&["restore", ID, name]).success();
            fs::write(work.left().join("state"), "2\n").unwrap();
            fs::write(work.session().join("home/.claude/state"), "2\n").unwrap();
            fs::remove_file(work.left().join("only1")).unwrap();
            let two = describe(&work.left(), false);
            kill(&work, &["restore", ID, name], at);
            // Any command that has the session to itself.
            work.run(&["discard", ID, "no-such-name"]);
            let is = describe(&work.left(), false);
            let home = fs::read_to_string(work.session().join("home/.claude/state")).unwrap();
            assert!(is == one && home == "1\n" || is == two && home == "2\n", "at {at}: {home} {is:?}");
            assert!(!work.session().join("restore.ready").exists());
            seen[usize::from(is == one)] += 1;
        }
        assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
    }
}
