//! BP-09, BP-10: a turn is ended in the middle, as often as a server likes.

use serde_json::json;

use super::served::Stage;
use crate::support::bridge_client::SESSION;

/// Moments, spread without a pattern: bits of a linear congruential generator.
fn pieces(round: u32) -> u32 {
    round.wrapping_mul(1_103_515_245).wrapping_add(12_345) >> 16 & 3
}

as_each_caller! {
    /// BP-09: at any moment, from before the agent has heard of the turn on, one `done` follows; BP-26: and
    /// nothing of the turn reaches the next.
    fn bp_09_two_hundred_interrupts_each_end_in_one_done(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let mut client = served.connect();
        for round in 0..200 {
            client.send(&json!({
                "cmd": "query", "prompt": "count: 100000", "sessionId": SESSION, "includePartialMessages": true,
            }));
            for _ in 0..pieces(round) {
                assert_eq!(client.event()["ev"], "message");
            }
            client.send(&json!({"cmd": "interrupt"}));
            assert_eq!(client.outcome().end, json!({"ev": "done", "sessionId": SESSION}), "round {round}");
        }
        // Idle, it is harmless and silent.
        for _ in 0..10 {
            client.send(&json!({"cmd": "interrupt"}));
        }
        let outcome = client.turn("hi");
        assert!(outcome.is_done());
        assert_eq!(outcome.of_type("result").count(), 1, "{outcome:?}");
        served.shut_down(&mut client);
    }

    /// DECISIONS 15: with an id, an interrupt is acknowledged by it; the turn has its own end.
    fn bp_09_an_interrupt_with_an_id_is_acknowledged(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let mut client = served.connect();
        client.send(&json!({"cmd": "query", "prompt": "count: 100000", "sessionId": SESSION, "id": "q"}));
        client.event();
        client.send(&json!({"cmd": "interrupt", "id": 7}));
        let is_done = |event: &serde_json::Value| event["ev"] == "done";
        let mut ids: Vec<String> = Vec::new();
        for _ in 0..2 {
            ids.push(client.events_until(is_done).pop().unwrap()["id"].to_string());
        }
        ids.sort();
        assert_eq!(ids, ["\"q\"", "7"]);
        served.shut_down(&mut client);
    }

    /// BP-10: in the middle of a turn and of a command, with daemons of both kinds: exit 0, and nothing lives.
    fn bp_10_shutdown_in_a_turn_ends_everything(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let mut client = served.connect();
        client.query("run: setsid sleep 1000 & (setsid sleep 1000 &); sleep 1000");
        client.event();
        let mut other = served.connect();
        other.send(&json!({"cmd": "exec", "command": "setsid sleep 1000 & : > up; sleep 1000", "timeout": 600000}));
        crate::support::wait::until_exists(&stage.work().join("up"));
        other.send(&json!({"cmd": "shutdown"}));
        let (status, stderr) = served.end();
        assert!(status.success(), "{status} {stderr}");
        assert_eq!(crate::kill::alive_in(&stage.work()), [0; 0]);
        assert!(!stage.socket().exists());
    }
}
