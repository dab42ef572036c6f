//! Limits that change while a sandbox runs. What the kernel's files say of it is proved in guests (tests/vm/agents.rs).

use serde_json::{Value, json};

use super::client::{ControlClient, serve, socket};
use crate::bridge::served::Stage;

/// Whether the memory of the sandbox of this state is limited.
fn counts_memory(state: &Value) -> bool {
    state["degraded"].as_array().unwrap().iter().all(|lack| lack["what"] != "memory")
}

fn limits(limits: Value) -> Value {
    json!({ "limits": limits })
}

as_each_caller! {
    /// A limit of time holds from the call on, counted from the start.
    fn a_limit_of_time_is_moved_both_ways(caller) {
        let stage = Stage::new(caller);
        let served = serve(&stage, &["--adapter", "demo", "--timeout", "3s"]);
        let mut client = ControlClient::connect(&socket(&stage));
        assert_eq!(client.call("update", &limits(json!({ "timeout": "1h" }))), json!({ "generation": 2 }));
        // Longer than it would have had.
        let slept = client.call("exec", &json!({ "command": "sleep 4; echo over" }));
        assert_eq!(slept["stdout"], "over\n");
        assert_eq!(client.get("state")["generation"], 2);
        // It is over by what now holds.
        client.ask("update", &limits(json!({ "timeout": "4s" })));
        let (status, said) = served.end();
        assert_eq!(status.code(), Some(124), "{said}");
        assert!(!socket(&stage).exists());
    }

    /// The time without a command begins where it began; a command ends it.
    fn idle_timeout_can_be_changed_on_a_running_sandbox(caller) {
        let stage = Stage::new(caller);
        let served = serve(&stage, &["--adapter", "demo"]);
        let mut client = ControlClient::connect(&socket(&stage));
        client.get("events.subscribe");
        assert_eq!(client.call("update", &limits(json!({ "idle": "50ms" }))), json!({ "generation": 2 }));
        assert_eq!(client.event(), json!({ "event": "updated", "id": stage.name(), "generation": 2 }));
        let exited = client.event();
        assert_eq!((&exited["event"], &exited["limit"]), (&json!("exited"), &json!("idle")), "{exited}");
        assert_eq!(served.end().0.code(), Some(124));
    }

    /// What cannot change is refused by its name, and nothing else of the call is done either.
    fn update_with_an_immutable_setting_changes_nothing(caller) {
        let stage = Stage::new(caller);
        let served = serve(&stage, &["--adapter", "demo"]);
        let mut client = ControlClient::connect(&socket(&stage));
        let memory = counts_memory(&client.get("state"));
        for (params, kind, words) in [
            (json!({}), "params", &["nothing to change"][..]),
            (limits(json!({})), "params", &["no limit is named"]),
            (limits(json!({ "memry": "1G", "timeout": "1ms" })), "params", &["memry"]),
            (limits(json!({ "timeout": "soon" })), "params", &["soon"]),
            (limits(json!({ "pids": 0, "timeout": "1ms" })), "params", &["limits.pids"]),
            (limits(json!({ "disk": "2G", "timeout": "1ms" })), "unsupported", &["limits.disk", "cannot change", "start it"]),
            (json!({ "limits": { "timeout": "1ms" }, "network": { "allow": [] } }), "params", &["one after the other"]),
            (json!({ "network": { "mode": "host" } }), "params", &["unknown field", "mode"]),
            (json!({ "resources": { "pids": { "limit": 5 } } }), "params", &["limits", "saggar-policy(5)"]),
            (json!({ "limits": { "timeout": "1ms" }, "generation": 7 }), "state", &["generation is 1", "not 7"]),
        ] {
            let (name, said) = client.refused("update", &params);
            assert_eq!(name, kind, "{params}: {said}");
            for word in words {
                assert!(said.contains(word), "no {word:?} in: {said}");
            }
        }
        if !memory {
            let (name, said) = client.refused("update", &limits(json!({ "memory": "1G", "timeout": "1ms" })));
            assert_eq!(name, "unsupported", "{said}");
            assert!(said.contains("the limit memory") && said.contains("saggar doctor"), "{said}");
        }
        assert_eq!(client.get("state")["generation"], 1);
        let generation = json!({ "limits": { "timeout": "1h" }, "generation": 1 });
        assert_eq!(client.call("update", &generation), json!({ "generation": 2 }));
        client.get("shutdown");
        assert!(served.end().0.success());
    }
}
