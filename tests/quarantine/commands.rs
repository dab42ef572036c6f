//! `saggar quarantine`: listed, restored, removed.

use std::fs;

use serde_json::Value;

use super::told::{Session, id, names};
use super::wrapped::run;
use crate::isolation::wrapped::{Ended, Wrap};

/// `saggar quarantine` with these words.
pub(super) fn quarantine(wrap: &Wrap, words: &[&str]) -> Ended {
    let mut command = wrap.place.saggar();
    command.arg("quarantine").args(words);
    wrap.finish(command)
}

/// Asserts that a file was not restored since another one exists at its path: nothing else has this exit status.
fn assert_other_file(ended: &Ended, path: &str) {
    assert_eq!((ended.code(), ended.stdout.as_str()), (3, ""), "{ended:?}");
    assert!(ended.stderr.contains(path) && ended.stderr.contains("--force"), "{ended:?}");
}

/// What is in the quarantine of the sandbox of this place: the path in the workspace.
fn listed(wrap: &Wrap) -> Vec<String> {
    let text = quarantine(wrap, &["list", "--json", &id(&wrap.place)]).success();
    let work = format!("{}/", wrap.work().display());
    let path = |line: &str| {
        let item: Value = serde_json::from_str(line).unwrap();
        assert!(fs::symlink_metadata(item["at"].as_str().unwrap()).is_ok(), "{item}");
        assert_eq!(item["workspace"], wrap.work().to_str().unwrap());
        item["path"].as_str().unwrap().trim_start_matches(&work).to_owned()
    };
    text.lines().map(path).collect()
}

as_each_caller! {
    fn quarantined_items_are_listed_restored_and_removed(caller) {
        let wrap = Wrap::new(caller);
        let _session = Session::of(&wrap.place);
        let script = "echo evil > .bashrc; mkdir .vscode; echo x > .vscode/tasks.json; ln -s /etc/passwd .envrc; git init -q a; git -C a config core.pager evil; exit 0";
        let ended = run(&wrap, &[], script);
        assert_eq!(ended.code(), 0, "{ended:?}");
        let id = id(&wrap.place);
        assert!(ended.stderr.contains(&format!("saggar quarantine restore {id}")), "{}", ended.stderr);
        let mut all = listed(&wrap);
        all.sort();
        assert_eq!(all, [".bashrc", ".envrc", ".vscode", "a/.git/config"]);
        let table = quarantine(&wrap, &["list"]).success();
        assert!(table.contains("sets core.pager") && table.contains(&id), "{table}");

        quarantine(&wrap, &["restore", &id, ".vscode", "a/.git/config"]).success();
        assert_eq!(fs::read_to_string(wrap.work().join(".vscode/tasks.json")).unwrap(), "x\n");
        assert_eq!(wrap.outside("git -C a config core.pager"), "evil\n");
        quarantine(&wrap, &["remove", &id, ".envrc"]).success();
        assert_eq!(listed(&wrap), [".bashrc"]);

        // What is there by now stays.
        wrap.place.make_file("work/.bashrc", "mine");
        assert_other_file(&quarantine(&wrap, &["restore", &id]), ".bashrc");
        assert_eq!(fs::read_to_string(wrap.work().join(".bashrc")).unwrap(), "mine");
        quarantine(&wrap, &["restore", "--force", &id]).success();
        assert_eq!(fs::read_to_string(wrap.work().join(".bashrc")).unwrap(), "evil\n");
        assert_eq!(listed(&wrap), [".bashrc"], "what was there is in quarantine now");
        quarantine(&wrap, &["remove", &id]).success();
        assert_eq!(listed(&wrap), [""; 0]);
        quarantine(&wrap, &["restore", &id, "9"]).refused(&["find 9"]);
    }

    /// A link in the place of a directory on the way back is not followed.
    fn nothing_is_restored_over_a_link(caller) {
        let wrap = Wrap::new(caller);
        let _session = Session::of(&wrap.place);
        let outside = wrap.place.make_dir("other", 0o755);
        let ended = run(&wrap, &[], "mkdir sub; echo evil > sub/.envrc");
        assert_eq!(ended.code(), 0, "{ended:?}");
        assert_eq!(names(&wrap.place), ["sub/.envrc"]);
        wrap.outside("rmdir sub && ln -s ../other sub");
        let refused = quarantine(&wrap, &["restore", &id(&wrap.place)]);
        assert_eq!(refused.code(), 125, "{refused:?}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        assert_eq!(listed(&wrap), ["sub/.envrc"]);
    }

    /// A file that took the place of another is overwritten only as long as it is that file.
    fn a_copy_that_was_changed_since_stays(caller) {
        let wrap = Wrap::new(caller);
        let _session = Session::of(&wrap.place);
        run(&wrap, &[], "git init -q a; git -C a config core.pager evil");
        wrap.outside("git -C a config user.name me");
        assert_other_file(&quarantine(&wrap, &["restore", &id(&wrap.place)]), "a/.git/config");
        assert_eq!(wrap.outside("git -C a config user.name; git -C a config core.pager || true"), "me\n");
    }
}
