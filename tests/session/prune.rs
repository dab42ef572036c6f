//! `session prune` and `session remove` of several sessions: what goes, what stays, and what a failure leaves.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::stage::{Sessions, supervisor, text};

fn names(sessions: &Sessions) -> Vec<String> {
    sessions.list().iter().map(|session| text(session, "id")).collect()
}

/// Sets the time of the last change of a session that has ended.
fn set_changed(sessions: &Sessions, name: &str, changed: &str) {
    let file = sessions.directory(name).join("session.json");
    let mut record: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    record["changed"] = changed.into();
    fs::write(file, record.to_string()).unwrap();
}

as_each_caller! {
    fn ended_sessions_are_removed_and_others_stay(caller) {
        let sessions = Sessions::new(caller);
        for name in ["old", "new", "served", "paused"] {
            sessions.create(name, &[]);
        }
        for name in ["old", "new"] {
            sessions.ok(&["end", name]);
        }
        set_changed(&sessions, "old", "2026-01-01T00:00:00Z");
        assert_eq!(sessions.ok(&["prune", "--older-than", "1h", "--dry-run"]), "would remove old (ended)\n");
        assert_eq!(names(&sessions).len(), 4);
        assert_eq!(sessions.ok(&["prune", "--keep", "1"]), "removed old (ended)\n");
        assert!(!sessions.directory("old").exists());
        assert_eq!(sessions.ok(&["prune", "--older-than", "1h"]), "nothing to remove\n");
        assert_eq!(sessions.ok(&["prune"]), "removed new (ended)\n");
        // Its supervisor serves it.
        assert_eq!(sessions.ok(&["prune", "--state", "paused,error,ended"]), "nothing to remove\n");
        let watch = supervisor(&sessions.show("paused"));
        watch.signal(Signal::SIGTERM);
        watch.wait_gone("the supervisor");
        assert_eq!(sessions.ok(&["prune"]), "nothing to remove\n");
        assert_eq!(sessions.ok(&["prune", "--state", "paused"]), "removed paused (paused)\n");
        assert_eq!(names(&sessions), ["served"]);
        sessions.ok(&["end", "--remove", "served"]);
    }

    fn several_sessions_are_removed_also_if_one_cannot_be(caller) {
        let sessions = Sessions::new(caller);
        for name in ["a", "b", "served"] {
            sessions.create(name, &[]);
        }
        for name in ["a", "b"] {
            sessions.ok(&["end", name]);
        }
        sessions.run(&["remove", "a", "served", "none", "b"]).refused(125, &["served", "1 more could not be removed"]);
        assert_eq!(names(&sessions), ["served"]);
        sessions.ok(&["end", "--remove", "served"]);
    }

    /// That is not the same as no session.
    fn sessions_that_cannot_be_read_are_an_error(caller) {
        let sessions = Sessions::new(caller);
        assert_eq!(names(&sessions), [""; 0]);
        let state = sessions.stage.place.join("state/saggar");
        if caller.is_root() {
            return;
        }
        sessions.create("a", &[]);
        sessions.ok(&["end", "a"]);
        let mode = fs::metadata(&state).unwrap().permissions();
        fs::set_permissions(&state, fs::Permissions::from_mode(0o000)).unwrap();
        let outcomes = [&["list"][..], &["prune"]].map(|words| sessions.run(words));
        fs::set_permissions(&state, mode).unwrap();
        for ended in outcomes {
            ended.refused(125, &["saggar/sessions", "ermission denied"]);
        }
        sessions.ok(&["remove", "a"]);
    }
}
