//! What died is seen, and goes on: new sandbox, same work tree, same conversation.

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::stage::{Sessions, agent, supervisor, text};
use crate::support::deadline::Deadline;
use crate::support::process::Watch;

/// Changes the record of a session behind saggar's back.
fn forge(sessions: &Sessions, name: &str, change: impl FnOnce(&mut Value)) {
    let path = sessions.directory(name).join("session.json");
    let mut record: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(record["version"], 1);
    change(&mut record);
    fs::write(path, record.to_string()).unwrap();
}

as_each_caller! {
    /// KC-21, KC-24: the supervisor is killed; the session says so, and goes on with what it had.
    fn kc_21_a_killed_supervisor_is_an_error_and_the_session_goes_on(caller) {
        let sessions = Sessions::new(caller);
        let session = sessions.create("cold", &[]);
        sessions.send("cold", "my name is Ann");
        sessions.send("cold", "run: echo kept > file");
        let (watch, inside) = (supervisor(&session), agent(&session));
        watch.signal(Signal::SIGKILL);
        watch.wait_gone("the supervisor");
        assert_eq!(sessions.state("cold"), ("error".into(), Some("lost".into())));
        let shown = sessions.show("cold");
        assert!(text(&shown, "cause").contains(&format!("process {}, was killed", watch.pid())), "{shown}");
        assert_eq!((&shown["supervisor"], &shown["bridgeSocket"]), (&Value::Null, &Value::Null));
        sessions.run(&["send", "cold", "hi"]).refused(125, &["it is not served", "saggar session resume cold"]);
        sessions.ok(&["resume", "cold"]);
        assert!(inside.is_gone_by(Deadline::after(std::time::Duration::ZERO)), "two agents with one conversation");
        let again = sessions.show("cold");
        assert_eq!(sessions.state("cold"), ("active".into(), None));
        assert_ne!((&again["sandbox"], &again["supervisor"]), (&session["sandbox"], &session["supervisor"]));
        assert_eq!((&again["workspace"], &again["created"]), (&session["workspace"], &session["created"]));
        assert!(sessions.send("cold", "recall").contains("my name is Ann"));
        assert!(sessions.send("cold", "run: grep -qx kept file").contains("code 0"));
    }

    /// KC-22: a supervisor that was killed, and whose process is still there, is not taken for one that serves.
    fn kc_22_dying_supervisor_is_not_taken_for_a_serving_one(caller) {
        let sessions = Sessions::new(caller);
        let mut session = sessions.create("dying", &[]);
        for round in 0..10 {
            supervisor(&session).signal(Signal::SIGKILL);
            sessions.ok(&["resume", "dying"]);
            let again = sessions.show("dying");
            assert_eq!(again["state"], "active", "round {round}: {again}");
            assert_ne!(again["sandbox"], session["sandbox"], "round {round}");
            session = again;
        }
    }

    /// KC-23: the agent is killed in a turn; its supervisor lives, and starts it again.
    fn kc_23_a_killed_agent_is_an_error_with_its_cause(caller) {
        let sessions = Sessions::new(caller);
        let session = sessions.create("crash", &[]);
        sessions.send("crash", "my name is Ann");
        let before = supervisor(&session).pid();
        let workspace = text(&session, "workspace");
        let mut client = crate::session::stage::bridge(&session);
        client.send(&json!({ "cmd": "query", "prompt": "run: echo x > up; sync up; sleep 1000", "sessionId": "crash" }));
        crate::support::wait::until_written(&Path::new(&workspace).join("up"));
        agent(&session).signal(Signal::SIGKILL);
        let end = client.outcome().end;
        assert!(end["error"].as_str().is_some_and(|why| why.contains("signal 9")), "{end}");
        let shown = sessions.show("crash");
        assert_eq!((text(&shown, "state"), text(&shown, "reason")), ("error".into(), "crash".into()));
        assert!(text(&shown, "cause").contains("killed by signal 9"), "{shown}");
        sessions.ok(&["resume", "crash"]);
        assert_eq!(sessions.state("crash"), ("active".into(), None));
        assert_eq!(supervisor(&sessions.show("crash")).pid(), before, "by the fast path");
        assert!(sessions.send("crash", "recall").contains("my name is Ann"));
        assert!(sessions.send("crash", "run: grep -qx x up").contains("code 0"));
    }

    /// KC-22: neither a pid that another process has now, nor one of another boot, is the supervisor.
    fn kc_22_recycled_pid_is_not_taken_for_the_supervisor(caller) {
        let sessions = Sessions::new(caller);
        let session = sessions.create("pid", &[]);
        sessions.send("pid", "my name is Ann");
        let watch = supervisor(&session);
        watch.signal(Signal::SIGKILL);
        watch.wait_gone("the supervisor");
        let forgeries: [fn(&mut Value); 2] = [
            // This very process has the pid now.
            |record| {
                record["supervisor"]["pid"] = json!(std::process::id());
                record["state"] = json!("active");
            },
            |record| {
                let now = saggar::state::process::ProcessId::current().unwrap();
                record["supervisor"] = json!({ "pid": now.pid, "startTime": now.start_time, "bootId": "another" });
                record["state"] = json!("paused");
            },
        ];
        for (round, forgery) in forgeries.into_iter().enumerate() {
            forge(&sessions, "pid", forgery);
            assert_eq!(sessions.state("pid"), ("error".into(), Some("lost".into())), "{round}");
            let cause = text(&sessions.show("pid"), "cause");
            assert!(cause.contains(["was killed", "ended with the machine"][round]), "{cause}");
            sessions.ok(&["resume", "pid"]);
            let said = sessions.send("pid", "recall");
            assert!(said.contains("my name is Ann"), "{round}: {said}");
            let watch = supervisor(&sessions.show("pid"));
            watch.signal(Signal::SIGKILL);
            watch.wait_gone("the supervisor");
        }
        // What is dead can be ended as it is.
        sessions.ok(&["end", "pid"]);
        assert_eq!(sessions.state("pid").0, "ended");
    }

    /// A polite end is no failure, whoever asks for it.
    fn a_supervisor_that_is_told_to_end_leaves_a_paused_session(caller) {
        let sessions = Sessions::new(caller);
        let session = sessions.create("polite", &[]);
        sessions.send("polite", "my name is Ann");
        crate::session::stage::bridge(&session).send(&json!({ "cmd": "shutdown" }));
        supervisor_gone(&session);
        assert_eq!(sessions.state("polite"), ("paused".into(), Some("shutdown".into())));
        sessions.ok(&["resume", "polite"]);
        let session = sessions.show("polite");
        supervisor(&session).signal(Signal::SIGTERM);
        supervisor_gone(&session);
        assert_eq!(sessions.state("polite"), ("paused".into(), Some("signal".into())));
        sessions.ok(&["resume", "polite"]);
        assert!(sessions.send("polite", "recall").contains("my name is Ann"));
    }

    /// KC-18: a start that fails is an error with its reason, and the next one is as good as the first.
    fn kc_18_a_resume_that_fails_is_an_error_with_its_reason(caller) {
        let sessions = Sessions::new(caller);
        let script = sessions.stage.place.make_file("agent", "#!/bin/sh\nread -r line\necho '{\"type\":\"end\"}'\nread -r line\n");
        let set = |mode: u32| {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(&script, fs::Permissions::from_mode(mode)).unwrap();
        };
        set(0o755);
        let path = script.to_str().unwrap();
        let work = sessions.stage.work();
        let words = ["create", "--json", "--session", "bin", "--adapter", "stream-json", "--agent-cmd", path, "--ro", path];
        let session = crate::session::stage::json(&sessions.ok(&[&words[..], &[work.to_str().unwrap()]].concat()));
        supervisor(&session).signal(Signal::SIGTERM);
        supervisor_gone(&session);
        set(0o644);
        sessions.run(&["resume", "bin"]).refused(126, &[path]);
        let shown = sessions.show("bin");
        assert_eq!((text(&shown, "state"), text(&shown, "reason")), ("error".into(), "start".into()), "{shown}");
        assert!(text(&shown, "cause").contains(path), "{shown}");
        set(0o755);
        sessions.ok(&["resume", "bin"]);
        assert_eq!(sessions.state("bin"), ("active".into(), None));
    }

    /// A session that a `saggar agent` serves in the foreground is shown as what it is, and resumed by the same.
    fn a_session_in_the_foreground_is_seen(caller) {
        let sessions = Sessions::new(caller);
        let served = sessions.stage.demo();
        let name = sessions.stage.name();
        let shown = sessions.show(&name);
        assert_eq!((text(&shown, "state"), text(&shown, "bridgeSocket")),
            ("active".into(), sessions.stage.socket().to_str().unwrap().into()));
        assert!(sessions.send(&name, "hi").contains("Hello"));
        served.end_by(Signal::SIGTERM);
        assert_eq!(sessions.state(&name), ("paused".into(), Some("signal".into())));
        sessions.run(&["resume", &name]).refused(125, &["not made by saggar session create", "saggar agent DIR"]);
    }

    /// A record that is damaged is no session that runs, and there is a way out.
    fn a_damaged_record_is_an_error_and_can_be_removed(caller) {
        let sessions = Sessions::new(caller);
        sessions.create("torn", &[]);
        sessions.ok(&["end", "torn"]);
        for text in ["", "{", "[]", "{\"version\":2}"] {
            fs::write(sessions.directory("torn").join("session.json"), text).unwrap();
            assert_eq!(sessions.state("torn"), ("error".into(), Some("lost".into())), "{text}");
        }
        sessions.run(&["resume", "torn"]).refused(125, &["not made by saggar session create"]);
        sessions.ok(&["remove", "torn"]);
        assert!(sessions.list().is_empty());
    }
}

fn supervisor_gone(session: &Value) {
    let pid = session["supervisor"]["pid"].as_u64().unwrap();
    if let Some(watch) = Watch::of(u32::try_from(pid).unwrap()) {
        watch.wait_gone("the supervisor");
    }
}
