//! Numbers and depths that hid something once.

use std::fs;

use super::commands::quarantine;
use super::told::{Session, events, id, names};
use super::wrapped::run;
use crate::isolation::wrapped::Wrap;

as_each_caller! {
    fn a_repository_at_any_depth_is_found(caller) {
        let wrap = Wrap::new(caller);
        let _session = Session::of(&wrap.place);
        let script = "for n in $(seq 300); do mkdir d; cd d; done; git init -q . && git config core.fsmonitor evil";
        let ended = run(&wrap, &[], script);
        assert_eq!(ended.code(), 0, "{ended:?}");
        assert_eq!(names(&wrap.place), [format!("{}.git/config", "d/".repeat(300))]);
    }

    fn a_repository_beside_many_entries_is_found(caller) {
        let wrap = Wrap::new(caller);
        let _session = Session::of(&wrap.place);
        let script = "mkdir a; (cd a; seq 30000 | xargs touch); git init -q z; git -C z config core.fsmonitor evil";
        let ended = run(&wrap, &[], script);
        assert_eq!(ended.code(), 0, "{ended:?}");
        assert_eq!(names(&wrap.place), ["z/.git/config"]);
    }

    /// In one directory they go as a whole; in many, all go, some are named and all are counted.
    fn two_thousand_hooks_are_all_moved_and_counted(caller) {
        let wrap = Wrap::new(caller);
        let _session = Session::of(&wrap.place);
        let script = "git init -q a; (cd a/.git/hooks; seq 2000 | xargs touch; chmod +x *); \
            for n in $(seq 300); do mkdir -p b/$n/.git/hooks; printf '#!' > b/$n/.git/hooks/pre-commit; chmod +x b/$n/.git/hooks/pre-commit; done";
        let ended = run(&wrap, &[], script);
        assert_eq!(ended.code(), 0, "{ended:?}");
        assert_eq!(fs::read_dir(wrap.work().join("a/.git/hooks")).unwrap().count(), 0);
        assert!((1..=300).all(|n| !wrap.work().join(format!("b/{n}/.git/hooks/pre-commit")).exists()));
        let left = events(&wrap.place, "findings");
        assert_eq!((left.len(), left[0]["quarantined"].as_u64()), (1, Some(301)), "{left:?}");
        assert_eq!(events(&wrap.place, "quarantined").len(), 100);
        assert!(ended.stderr.contains("201 of them not named"), "{}", ended.stderr.lines().last().unwrap_or_default());
        let all = quarantine(&wrap, &["list", "--json", &id(&wrap.place)]).success();
        assert_eq!(all.lines().count(), 301);
    }

    /// A directory that its owner has closed to itself is still entered by git when it knows the name.
    fn a_closed_directory_hides_nothing(caller) {
        let wrap = Wrap::new(caller);
        let _session = Session::of(&wrap.place);
        let ended = run(&wrap, &[], "git init -q a/b; git -C a/b config core.fsmonitor evil; chmod 0311 a a/b a/b/.git");
        assert_eq!(ended.code(), 0, "{ended:?}");
        assert_eq!(names(&wrap.place), ["a/b/.git/config"]);
        wrap.outside("chmod -R u+rwX a");
    }
}
