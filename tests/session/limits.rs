//! Limits of time, and what a session costs that waits.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::stage::{Sessions, agent, bridge, control, status, supervisor, text};
use crate::support::deadline::Deadline;

/// The most private memory of a supervisor that waits, in KiB.
const PRIVATE_MOST: u64 = 3 * 1024;

/// Waits until a session is in this state.
fn until(sessions: &Sessions, name: &str, state: &str) -> Value {
    let deadline = Deadline::usual();
    loop {
        let shown = sessions.show(name);
        if shown["state"] == state {
            return shown;
        }
        assert!(!deadline.remaining().is_zero(), "not {state}: {shown}");
        deadline.pause();
    }
}

/// Pages of its own, in KiB (proc_pid_smaps(5)). Not `Private_Clean`: those of the program's file are shared as soon as a
/// second sandbox runs, and the kernel can drop them.
fn private(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let lines = text.lines().filter(|line| line.starts_with("Private_Dirty:"));
    lines.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum()
}

as_each_caller! {
    /// DECISIONS 13: a session is paused by its limit, not killed, and goes on after it.
    fn a_limit_by_the_clock_pauses_a_session(caller) {
        let sessions = Sessions::new(caller);
        let session = sessions.create("late", &["--timeout", "5s"]);
        let served = supervisor(&session);
        let mut client = bridge(&session);
        client.query("run: while :; do sleep 0.01; done");
        let paused = until(&sessions, "late", "paused");
        assert_eq!(paused["reason"], "timeout");
        if !caller.is_root() {
            // Nothing can be frozen: it is on disk that it can go on, and then the supervisor ends.
            served.wait_gone("the supervisor");
        } else {
            assert_eq!(paused["supervisor"], session["supervisor"]);
            assert_eq!(control(&session).get("state")["status"], "paused");
            // A limit that was reached does not end it as soon as it goes on.
            sessions.ok(&["resume", "late"]);
            assert_eq!(sessions.state("late").0, "active");
            client.send(&json!({ "cmd": "interrupt" }));
            client.outcome();
            assert!(sessions.send("late", "hi").contains("Hello"));
            until(&sessions, "late", "paused");
        }
        sessions.ok(&["resume", "late"]);
        assert_eq!(sessions.state("late").0, "active");
    }

    /// DECISIONS 13: a policy may say kill. Nothing of it is left running, and it goes on by the cold path.
    fn a_policy_may_kill_a_session_at_its_limit_by_the_clock(caller) {
        let sessions = Sessions::new(caller);
        let policy = sessions.stage.place.make_file("kill.toml", "[limits]\nat_timeout = 'kill'\n");
        let session = sessions.create("killed", &["--policy", policy.to_str().unwrap()]);
        let (served, agent) = (supervisor(&session), agent(&session));
        sessions.send("killed", "this is remembered");
        let turn = json!({ "cmd": "query", "prompt": "run: while :; do sleep 0.01; done", "sessionId": "killed" });
        bridge(&session).send(&turn);
        // Not from the start: on a machine under load all this takes its time.
        control(&session).call("update", &json!({ "limits": { "timeout": "1ms" } }));
        for watch in [&served, &agent] {
            watch.wait_gone("what a session at its limit had running");
        }
        assert_eq!(sessions.state("killed"), ("paused".into(), Some("timeout".into())));
        assert!(sessions.show("killed")["supervisor"].is_null());
        sessions.ok(&["resume", "killed"]);
        assert_ne!(sessions.show("killed")["sandbox"], session["sandbox"]);
        assert!(sessions.send("killed", "recall").contains("this is remembered"));
    }

    /// KC-26: only who waits is put away, only after the limit, and can go on.
    fn kc_26_idle_session_is_paused_after_its_limit(caller) {
        let sessions = Sessions::new(caller);
        let policy = sessions.stage.place.make_file("idle.toml", "[limits]\nidle = '1h'\n");
        let session = sessions.create("idle", &["--policy", policy.to_str().unwrap()]);
        let watch = supervisor(&session);
        sessions.send("idle", "this is remembered");
        let mut client = bridge(&session);
        let mut server = control(&session);
        let prompt = "run: while :; do sleep 0.01; done";
        client.send(&json!({ "cmd": "query", "prompt": prompt, "sessionId": "idle" }));
        let deadline = Deadline::usual();
        while server.get("state")["session"]["busy"] != true {
            assert!(!deadline.remaining().is_zero(), "the turn does not begin");
        }
        // Not from the start: on a machine under load all this takes its time.
        server.call("update", &json!({ "limits": { "idle": "1ms" } }));
        // Longer than the limit, and not idle.
        let long = Instant::now();
        while long.elapsed() < Duration::from_millis(50) {
            assert_eq!(server.get("state")["status"], "running");
        }
        // Nor is it while a command of a server runs.
        let command = server.ask("exec", &json!({ "command": "until [ -e end ]; do sleep 0.01; done" }));
        client.send(&json!({ "cmd": "interrupt" }));
        let mut other = control(&session);
        while other.get("state")["session"]["busy"] == true {
            assert!(!deadline.remaining().is_zero(), "the turn does not end");
        }
        let long = Instant::now();
        while long.elapsed() < Duration::from_millis(50) {
            assert_eq!(other.get("state")["status"], "running");
        }
        other.call("files.write", &json!({ "path": "end", "content": "" }));
        assert_eq!(server.answer(command)["result"]["exitCode"], 0);
        watch.wait_gone("the supervisor of an idle session");
        assert_eq!(sessions.state("idle"), ("paused".into(), Some("idle".into())));
        sessions.ok(&["resume", "idle"]);
        assert!(sessions.send("idle", "recall").contains("this is remembered"));
    }

    /// A session whose start takes longer than its limit does not idle meanwhile.
    fn a_session_that_starts_is_not_idle(caller) {
        let sessions = Sessions::new(caller);
        let policy = sessions.stage.place.make_file("idle.toml", "[limits]\nidle = '1ms'\n");
        sessions.create("hasty", &["--policy", policy.to_str().unwrap()]);
        assert_eq!(until(&sessions, "hasty", "paused")["reason"], "idle");
    }

    /// A session whose agent was ended because it was idle is active, and can be resumed later.
    fn session_with_an_idle_agent_is_active_and_can_be_resumed(caller) {
        let sessions = Sessions::new(caller);
        let policy = sessions.stage.place.make_file("idle.toml", "[limits]\nagent_idle = '1ms'\n");
        let session = sessions.create("resting", &["--policy", policy.to_str().unwrap()]);
        let watch = supervisor(&session);
        let ended = || {
            let deadline = Deadline::usual();
            while control(&sessions.show("resting")).get("state")["pid"] != 0 {
                assert!(!deadline.remaining().is_zero(), "the agent runs");
                deadline.pause();
            }
        };
        assert!(!sessions.send("resting", "this is remembered").is_empty());
        ended();
        assert_eq!(sessions.state("resting"), ("active".into(), None));
        assert!(sessions.send("resting", "recall").contains("this is remembered"));
        ended();
        watch.signal(Signal::SIGKILL);
        watch.wait_gone("the supervisor");
        sessions.ok(&["resume", "resting"]);
        assert!(sessions.send("resting", "recall").contains("this is remembered"));
        ended();
        assert_eq!(sessions.state("resting"), ("active".into(), None));
    }

    /// A supervisor that waits costs little, and does nothing at all.
    fn a_supervisor_that_waits_costs_little_and_never_wakes(caller) {
        // Nobody but root sees into a supervisor.
        if !crate::support::caller::Caller::current().is_root() {
            skip!("this test needs to be started as root");
        }
        let sessions = Sessions::new(caller);
        let session = sessions.create("calm", &[]);
        sessions.send("calm", "hi");
        let pid = supervisor(&session).pid();
        // What the turn left to be done is done when it has answered twice.
        for _ in 0..2 {
            control(&session).get("state");
        }
        let memory = private(pid);
        assert!(memory < PRIVATE_MOST, "{memory} KiB");
        let wakes = || ["voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"].map(|name| status(pid, name));
        let deadline = Deadline::usual();
        let mut before = wakes();
        // The end of the last connection may be told a moment later.
        let waited = loop {
            // A span without a wake is what is measured; no event tells of what does not happen.
            std::thread::sleep(Duration::from_secs(2));
            let now = wakes();
            if now == before {
                break true;
            }
            before = now;
            assert!(!deadline.remaining().is_zero(), "it never comes to rest");
        };
        assert!(waited);
        supervisor(&session).signal(Signal::SIGTERM);
        eprintln!("{memory} KiB: {}", text(&session, "id"));
    }
}
