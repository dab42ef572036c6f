//! New sessions that start from a snapshot (`session create --from`).

use std::fs;

use nix::sys::signal::Signal;

use super::stage::{Sessions, supervisor, text};
use crate::support::process::Watch;

/// Takes a snapshot of a session; its path.
fn snapshot(sessions: &Sessions, options: &[&str]) -> String {
    sessions.ok(&[&["snapshot"], options, &["first"]].concat()).trim().to_owned()
}

as_each_caller! {
    /// B10: the workspace and the conversation of one session, while it is served, begin another.
    fn session_from_a_snapshot_continues_the_conversation_on_the_same_files(caller) {
        for options in [&[][..], &["--workspace-overlay"]] {
            let sessions = Sessions::new(caller);
            sessions.stage.place.make_file("work/old", "old");
            sessions.create("first", options);
            sessions.send("first", "my name is Ann");
            sessions.send("first", "run: echo new > new; rm old; mkdir -p $HOME/.codex; echo t > $HOME/.codex/t");
            let file = snapshot(&sessions, &[]);
            sessions.send("first", "run: echo later > later");

            let fork = sessions.create("fork", &[options, &["--from", &file]].concat());
            assert_eq!(text(&fork, "state"), "active");
            assert!(sessions.send("fork", "recall").contains("my name is Ann"), "{options:?}");
            let holds = |name: &str, script: &str| {
                let said = sessions.send(name, &format!("run: {script}"));
                assert!(said.contains("code 0"), "{options:?}: {name}: {script}: {said}");
            };
            holds("fork", "grep -qx new new && grep -qx t $HOME/.codex/t && test ! -e later && test ! -e old");
            // Each goes its own way.
            holds("fork", "echo fork > new");
            holds("first", "grep -qx new new && grep -qx later later");
            assert_eq!(sessions.ok(&["diff", "fork"]), "A new\nD old\n", "{options:?}");

            // A later start needs the snapshot no more.
            sessions.ok(&["end", "--remove", "first"]);
            let served = supervisor(&sessions.show("fork"));
            served.signal(Signal::SIGKILL);
            served.wait_gone("the supervisor");
            sessions.ok(&["resume", "fork"]);
            assert!(sessions.send("fork", "recall").contains("my name is Ann"));
            holds("fork", "grep -qx fork new");
        }
    }

    /// Clients of the first session continue with the second one.
    fn session_continues_the_events_of_another(caller) {
        let sessions = Sessions::new(caller);
        sessions.create("first", &[]);
        sessions.send("first", "my name is Ann");
        let file = snapshot(&sessions, &[]);
        let events = sessions.ok(&["events", "first"]);
        let stored = sessions.stage.place.join("events");
        fs::write(&stored, &events).unwrap();
        caller.own(&stored);
        let stored = stored.to_str().unwrap();
        let last = events.lines().count();
        let next = (last + 10).to_string();
        sessions.create("second", &["--from", &file, "--events", stored, "--next-event", &next]);
        assert_eq!(sessions.ok(&["events", "second"]).lines().take(last).collect::<Vec<_>>(), events.lines().collect::<Vec<_>>());
        assert!(sessions.send("second", "recall").contains("my name is Ann"));
        let after = sessions.ok(&["events", "second"]);
        let gap = format!("{{\"ev\":\"gap\",\"from\":{},\"to\":{}}}", last + 1, last + 9);
        assert_eq!(after.lines().nth(last), Some(gap.as_str()));
        assert!(after.lines().nth(last + 1).unwrap().contains(&format!("\"seq\":{next}}}")), "{after}");
        // A later start reads the file no more.
        fs::remove_file(stored).unwrap();
        let served = supervisor(&sessions.show("second"));
        served.signal(Signal::SIGKILL);
        served.wait_gone("the supervisor");
        sessions.ok(&["resume", "second"]);
        sessions.send("second", "again");
        assert!(sessions.ok(&["events", "second"]).starts_with(&after));
    }

    fn refused_snapshot_leaves_no_session(caller) {
        let sessions = Sessions::new(caller);
        sessions.create("first", &[]);
        let file = snapshot(&sessions, &[]);
        let work = sessions.stage.work();
        let (work, broken) = (work.to_str().unwrap(), sessions.stage.place.join("broken.tar.zst"));
        fs::write(&broken, &fs::read(&file).unwrap()[..100]).unwrap();
        caller.own(&broken);
        for (options, why) in [
            (&["--from", "missing.tar.zst"][..], "missing.tar.zst"),
            (&["--from", broken.to_str().unwrap()], "snapshot"),
            (&["--workspace-overlay", "--from", &file], "overlay"),
            (&["--from", &file, "--events", broken.to_str().unwrap()], "cannot import events"),
            (&["--next-event", "2"], "--events"),
        ] {
            let words = ["create", "--session", "none", "--adapter", "demo"];
            let ended = sessions.run(&[&words, options, &[work]].concat());
            assert!(ended.code != 0 && ended.stderr.contains(why), "{options:?}: {ended:?}");
            assert!(!sessions.directory("none").exists(), "{options:?}");
        }
    }

    /// A command on the session takes the snapshot through its supervisor, which alone may read the trees meanwhile.
    fn snapshot_of_a_served_session_is_taken_by_its_supervisor(caller) {
        let sessions = Sessions::new(caller);
        let first = sessions.create("first", &[]);
        sessions.send("first", "run: mkfifo pipe; mkdir node_modules; echo x > node_modules/x");
        let ended = sessions.run(&["snapshot", "first"]);
        assert!(ended.stderr.contains("pipe: it is a FIFO"), "{ended:?}");
        let all = snapshot(&sessions, &["--all"]);
        assert_ne!(ended.stdout.trim(), all);
        assert_eq!(sessions.ok(&["snapshot", "--list", "first"]).lines().count(), 2);
        for option in [&["--output", "x.tar.zst"][..], &["--disk", "1M"]] {
            let words = [&["snapshot"], option, &["first"]].concat();
            sessions.run(&words).refused(2, &[option[0], "served"]);
        }
        let pid = first["supervisor"]["pid"].as_u64().unwrap();
        assert!(Watch::of(u32::try_from(pid).unwrap()).is_some(), "it serves");
        let size = |file: &str| fs::metadata(file).unwrap().len();
        assert!(size(&all) > size(ended.stdout.trim()), "--all holds more");
    }
}
