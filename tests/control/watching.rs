//! Events and log entries.

use serde_json::{Value, json};

use super::client::{ControlClient, serve, socket};
use crate::bridge::served::Stage;

/// Says on its stderr what it was asked.
const ECHO: &str = "#!/bin/sh\nwhile read -r line; do for at in 1 2 3 4 5; do echo \"said $at\" >&2; done; \
    echo '{\"type\":\"result\",\"subtype\":\"success\"}'; done\n";

as_each_caller! {
    /// KC-32: entries have numbers and times, and a reader goes on after the last that it has.
    fn kc_32_log_entries_are_read_by_cursor(caller) {
        let stage = Stage::new(caller);
        let script = stage.script("agent", ECHO);
        let served = serve(&stage, &["--adapter", "stream-json", "--agent-cmd", &script]);
        let mut client = ControlClient::connect(&socket(&stage));
        let mut server = served.connect();
        server.turn("go");
        let mut entries: Vec<Value> = Vec::new();
        // The agent's stderr is read in its own time.
        while entries.len() < 5 {
            let after = entries.last().map_or(0, |entry| entry["index"].as_u64().unwrap());
            let mut page = client.call("logs", &json!({ "after": after, "limit": 2 }));
            let page = page["entries"].as_array_mut().unwrap();
            assert!(page.len() <= 2);
            entries.append(&mut page.drain(..).filter(|entry| entry["text"].as_str().unwrap().contains("said")).collect());
        }
        let texts: Vec<&str> = entries.iter().map(|entry| entry["text"].as_str().unwrap()).collect();
        assert_eq!(texts, ["said 1", "said 2", "said 3", "said 4", "said 5"]);
        assert!(entries.windows(2).all(|pair| pair[0]["index"].as_u64() < pair[1]["index"].as_u64()));
        assert!(entries.iter().all(|entry| entry["level"] == "info" && entry["ts"].as_u64() > Some(1_700_000_000_000)));
        served.shut_down(&mut server);
    }

    /// What goes to --status-fd is heard here too, to the end; by those who asked for it.
    fn control_client_gets_events_until_the_exit(caller) {
        let stage = Stage::new(caller);
        let served = serve(&stage, &["--adapter", "demo"]);
        let mut deaf = ControlClient::connect(&socket(&stage));
        let mut client = ControlClient::connect(&socket(&stage));
        client.get("events.subscribe");
        let mut server = served.connect();
        assert!(server.turn("run: echo evil > .bashrc").is_done());
        let event = client.event();
        assert_eq!(event["event"], "quarantined", "{event}");
        assert_eq!(event["path"], stage.work().join(".bashrc").to_str().unwrap());
        deaf.get("state");
        assert!(deaf.heard.is_empty());
        deaf.get("shutdown");
        let event = client.event();
        assert_eq!((&event["event"], &event["quarantined"]), (&json!("findings"), &json!(1)), "{event}");
        let event = client.event();
        assert_eq!((&event["event"], &event["reason"], &event["exit_code"]), (&json!("exited"), &json!("exit"), &json!(0)));
        assert!(served.end().0.success());
    }
}
