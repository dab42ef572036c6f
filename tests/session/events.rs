//! `saggar session events`: the stored events, whether a supervisor serves the session or not.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::stage::{Sessions, bridge, supervisor};

fn events(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

as_each_caller! {
    fn printed_events_are_those_of_a_replay(caller) {
        let sessions = Sessions::new(caller);
        let session = sessions.create("spooled", &[]);
        sessions.send("spooled", "run: echo one");
        let mut client = bridge(&session);
        client.send(&json!({ "cmd": "replay", "after": 0, "id": "r" }));
        let mut replayed = client.events_until(|event| event["id"] == "r");
        replayed.pop();
        let printed = events(&sessions.ok(&["events", "spooled"]));
        assert_eq!(printed, replayed);
        let numbers: Vec<u64> = printed.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
        assert_eq!(events(&sessions.ok(&["events", "--after", "3", "spooled"])), replayed[3..]);
        assert_eq!(sessions.ok(&["events", "--after", "1000000", "spooled"]), "");
    }

    fn events_are_printed_without_a_supervisor(caller) {
        let sessions = Sessions::new(caller);
        let session = sessions.create("spooled", &[]);
        sessions.send("spooled", "run: echo one");
        let served = sessions.ok(&["events", "spooled"]);
        let watch = supervisor(&session);
        watch.signal(Signal::SIGKILL);
        watch.wait_gone("the supervisor");
        assert_eq!(sessions.ok(&["events", "spooled"]), served);
        sessions.ok(&["end", "spooled"]);
        assert_eq!(sessions.ok(&["events", "spooled"]), served);
        sessions.run(&["events", "none"]).refused(125, &["none", "does not exist"]);
    }

    /// As the bridge of a container leaves them; a session's are in the same form.
    fn events_of_a_directory_are_those_of_its_session(caller) {
        let sessions = Sessions::new(caller);
        sessions.create("spooled", &[]);
        sessions.send("spooled", "run: echo one");
        let directory = sessions.directory("spooled");
        let directory = directory.to_str().unwrap();
        for after in ["0", "3"] {
            let printed = sessions.ok(&["events", "--after", after, "--spool", directory]);
            assert_eq!(printed, sessions.ok(&["events", "--after", after, "spooled"]));
            assert!(!printed.is_empty());
        }
        let empty = tempfile::tempdir().unwrap();
        std::fs::set_permissions(empty.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(sessions.ok(&["events", "--spool", empty.path().to_str().unwrap()]), "");
        sessions.run(&["events", "--spool", "/does/not/exist"]).refused(125, &["/does/not/exist: No such file"]);
        sessions.run(&["events", "--spool", directory, "spooled"]).refused(2, &["cannot be used with"]);
        sessions.run(&["events"]).refused(2, &["required"]);
    }
}
