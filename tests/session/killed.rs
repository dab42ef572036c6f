//! Kill -9 of the agent, of the supervisor and of both, again and again, at any moment: what is said is true, every
//! session can go on or be ended, and nothing is left running.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::stage::{Sessions, agent, supervisor, text};
use crate::kill::wait_for_nothing;
use crate::support::bridge_client::BridgeClient;
use crate::support::process::Watch;
use crate::support::rounds;

/// As good as chance, and the same each time (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// Whether what is said of a session is what the kernel says.
#[track_caller]
fn is_true(sessions: &Sessions, shown: &Value) {
    let state = text(shown, "state");
    let pid = shown["supervisor"]["pid"].as_u64();
    match (state.as_str(), pid) {
        ("active", Some(pid)) => assert!(fs::metadata(format!("/proc/{pid}")).is_ok(), "{shown}"),
        // By its agent, or by its supervisor.
        ("error", _) => assert!(shown["cause"].is_string(), "{shown}"),
        _ => panic!("{shown}; {:?}", sessions.list()),
    }
}

as_each_caller! {
    fn kill_at_random(caller) {
        let sessions = Sessions::new(caller);
        sessions.create("hit", &[]);
        assert!(sessions.send("hit", "my name is Ann").contains("Ann"));
        let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
        for round in 0..rounds(20, 200) {
            let session = sessions.show("hit");
            assert_eq!(text(&session, "state"), "active", "{round}: {session}");
            let (watch, inside) = (supervisor(&session), agent(&session));
            let mut client = BridgeClient::connect(text(&session, "bridgeSocket").as_ref());
            // Longer than a loaded machine takes to kill it: a turn that ends by itself is done, and no error.
            client.send(&json!({ "cmd": "query", "prompt": "run: sleep 5; echo slept", "sessionId": "hit" }));
            // The moment is what this test is about; nothing is waited for.
            std::thread::sleep(Duration::from_millis(chance.below(40)));
            let hit: Vec<&Watch> = match chance.below(3) {
                0 => vec![&inside],
                1 => vec![&watch],
                _ => vec![&inside, &watch],
            };
            for one in &hit {
                one.signal(Signal::SIGKILL);
            }
            for one in &hit {
                one.wait_gone("what was killed");
            }
            if hit.len() == 1 && hit[0].pid() == inside.pid() {
                // Its supervisor has heard of it when the turn has ended. An agent that died before its turn began is
                // started again for it.
                let outcome = client.outcome();
                let is_whole = || outcome.messages.iter().any(|message| message.to_string().contains("slept\\n"));
                assert!(outcome.end["ev"] == "error" || is_whole(), "{round}: {outcome:?}");
            }
            is_true(&sessions, &sessions.show("hit"));
            sessions.ok(&["resume", "hit"]);
            assert!(inside.is_gone_by(crate::support::deadline::Deadline::after(Duration::ZERO)), "{round}: the old agent lives");
            let said = sessions.send("hit", "recall");
            assert!(said.contains("my name is Ann"), "{round}: {said}");
        }
        let directory = sessions.directory("hit");
        sessions.ok(&["end", "--remove", "hit"]);
        assert!(!directory.exists());
        wait_for_nothing(&directory, Duration::ZERO);
    }
}
