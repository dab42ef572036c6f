//! `saggar session diff`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::{ID, Work, on_each};
use crate::isolation::wrapped::finish;
use crate::support::process::Process;

/// Something of every kind.
const SCRIPT: &str = "printf 'one\\n2\\nthree\\n' > src/main; rm -r old; echo new > new; mkdir -p d/e; echo x > d/e/f; \
                      ln -s /etc/passwd link; chmod 700 kept; touch src/same; mkfifo pipe; printf x > $(printf 'a\\nb\\033')";

as_each_caller! {
    fn each_kind_of_change_is_one_line(caller) {
        on_each(caller, |work| {
            work.begin(SCRIPT);
            let lines = work.diff();
            assert_eq!(
                lines,
                [
                    "A a\\nb\\u{1b}",
                    "A d/",
                    "A d/e/",
                    "A d/e/f",
                    "M kept (mode 644 to 700)",
                    "A link -> /etc/passwd [link: it is a link that leads out of the folder]",
                    "A new",
                    "D old/",
                    "D old/a",
                    "D old/b",
                    "A pipe [refused: it is a FIFO]",
                    "M src/main",
                ],
                "overlay: {}", work.overlay
            );
            let only = work.run(&["diff", ID, "old", "./src/"]).success();
            assert_eq!(only, "D old/\nD old/a\nD old/b\nM src/main\n");
            let patch = work.run(&["diff", "--patch", ID, "src", "link"]).success();
            assert!(patch.contains("--- a/src/main\n+++ b/src/main\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"), "{patch}");
            assert!(patch.contains("--- /dev/null\n+++ b/link\n@@ -0,0 +1 @@\n+/etc/passwd\n"), "{patch}");
            let json: Value = serde_json::from_str(&work.run(&["diff", "--json", ID]).success()).unwrap();
            assert_eq!(json["folder"], work.folder().to_str().unwrap());
            let changes = json["changes"].as_array().unwrap();
            assert_eq!(changes.len(), lines.len());
            let kept = changes.iter().find(|change| change["path"] == "kept").unwrap();
            assert_eq!((&kept["change"], &kept["before"]["mode"], &kept["after"]["mode"]), (&"modified".into(), &"644".into(), &"700".into()));
            // Nothing of it has touched the folder.
            work.has("src/main", "one\ntwo\nthree\n");
            assert!(!work.folder().join("new").exists());
        });
    }

    /// Nothing is nothing, also where files were touched, written as they were, and renamed back.
    fn unchanged_content_is_not_reported_as_a_change(caller) {
        on_each(caller, |work| {
            work.begin("touch kept; cat src/main > x; cat x > src/main; rm x; mv old o; mv o old; mkdir t; rmdir t; chmod 600 kept; chmod 644 kept");
            assert_eq!(work.diff(), [""; 0], "overlay: {}", work.overlay);
        });
    }

    /// A directory that was replaced, and one that was renamed with all that is in it.
    fn replaced_entry_is_reported_as_removed_and_added(caller) {
        on_each(caller, |work| {
            work.begin("rm -r old; mkdir old; echo c > old/c; rm kept; mkdir kept; echo k > kept/k; mv src source; echo file > src");
            assert_eq!(
                work.diff(),
                [
                    "D kept", "A kept/", "A kept/k", "D old/a", "D old/b", "A old/c", "A source/", "A source/main",
                    "A source/same", "D src/", "A src", "D src/main", "D src/same",
                ],
                "overlay: {}", work.overlay
            );
        });
    }

    /// What the folder's owner did meanwhile is none of the agent's changes, and what both did is a conflict.
    fn later_edits_of_the_folder_are_distinguished_from_agent_changes(caller) {
        on_each(caller, |work| {
            work.begin("echo agent > src/main; rm kept; echo agent > both");
            work.write("src/main", "user");
            work.write("kept", "user, too");
            work.write("both", "user");
            work.write("users", "of the user");
            fs::remove_file(work.folder().join("old/a")).unwrap();
            assert_eq!(
                work.diff(),
                [
                    if work.overlay { "M both [conflict: it was changed in the folder]" } else { "M both [conflict: it was made in the folder, too]" },
                    "D kept [conflict: it was changed in the folder]",
                    "M src/main [conflict: it was changed in the folder]",
                ],
                "overlay: {}", work.overlay
            );
        });
    }

    fn diff_without_recorded_changes_is_refused_with_the_reason(caller) {
        let work = Work::new(caller, false);
        work.run(&["diff", ID]).refused(&["session work does not exist"]);
        work.run(&["diff", "../x"]).refused(&["../x"]);
        let command = work.start("true", &["--workspace", "."]);
        let ended = finish(Process::start(&work.place, command));
        assert_eq!(ended.code(), 0, "{ended:?}");
        work.run(&["diff", ID]).refused(&["works on", "itself", "--workspace-overlay"]);
        let outside = work.run(&["diff", ID, "../x"]);
        assert_eq!(outside.code(), 2, "{outside:?}");
    }

    /// KC-21: the changes of an overlay outlive the sandbox, and the next one sees them.
    fn changes_of_an_overlay_are_there_after_a_resume(caller) {
        let work = Work::new(caller, true);
        work.begin("echo first > src/main; rm kept; mkdir -p old2; mv old/a old2/a");
        let ended = work.resume("cat src/main; test ! -e kept && cat old2/a && echo second >> src/main");
        assert!(ended.stdout.contains("first\\na\\n"), "{ended:?}");
        assert_eq!(work.diff(), ["D kept", "D old/a", "A old2/", "A old2/a", "M src/main"]);
        let mode = fs::metadata(work.session()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "nobody else gets at the changes");
    }
}
