//! The questions of the real agent: in the second dialect, answered by a rule, interrupted.

use std::fs;

use serde_json::{Value, json};

use super::boxed::{answer, question};
use super::boxed_agent::Stage;
use crate::support::bridge_client::BridgeClient;

fn user(content: &str, uuid: &str) -> Value {
    json!({"type": "user", "message": {"role": "user", "content": content}, "uuid": uuid})
}

/// Reads to the next line of this type.
fn next(client: &mut BridgeClient, kind: &str) -> Value {
    client.events_until(|line| line["type"] == kind).pop().expect("the line is the last one")
}

/// Reads to what the model says at the end of a turn: it repeats the result of its tool.
fn said(client: &mut BridgeClient, word: &str) -> Value {
    let has = |line: &Value| line["type"] == "assistant" && line.to_string().contains(word);
    client.events_until(has).pop().expect("the line is the last one")
}

as_each_caller! {
    /// RB-28 to RB-30: a turn of the second dialect, its question under a fresh name, and the answer.
    fn the_second_dialect_asks_and_allows(caller) {
        let stage = Stage::new(caller, &claude!());
        let file = stage.place.work().join("made.txt");
        let runtime = stage.runtime(&[]);
        let mut client = runtime.connect();
        client.send(&user("mock:say hello", "11111111-1111-4111-8111-111111111111"));
        said(&mut client, "hello");
        client.send(&user("mock:say again", "11111111-1111-4111-8111-111111111111"));
        let write = format!("mock:write {} made by the agent", file.display());
        client.send(&user(&write, "22222222-2222-4222-8222-222222222222"));
        let asked = next(&mut client, "control_request");
        assert_eq!((&asked["request"]["subtype"], &asked["request"]["tool_name"]), (&json!("can_use_tool"), &json!("Write")));
        assert!(!file.exists(), "nothing is written before the answer");
        let allow = json!({"behavior": "allow", "updatedInput": asked["request"]["input"]});
        client.send(&json!({
            "type": "control_response",
            "response": {"subtype": "success", "request_id": asked["request_id"], "response": allow},
        }));
        next(&mut client, "user");
        next(&mut client, "assistant");
        assert_eq!(fs::read_to_string(&file).unwrap(), "made by the agent");
        assert!(!stage.api.last_turn().conversation_has("mock:say again"), "RB-08: said twice, heard once");
        let mut other = runtime.connect();
        runtime.shut_down(&mut other);
        assert_eq!(next(&mut client, "result")["num_turns"], 0, "RB-36");
        client.expect_close();
    }

    /// `[permissions]`: the agent takes the answers that the policy gives, and nobody is asked.
    fn a_rule_of_the_policy_allows_and_denies(caller) {
        let stage = Stage::new(caller, &claude!());
        let work = stage.place.work();
        let rules = format!(
            "[permissions]\nallow = ['Write({0}/*)']\ndeny = ['Write({0}/no.txt)']\n", work.display()
        );
        let policy = stage.place.make_file("policy.toml", &rules);
        let runtime = stage.runtime(&["--policy", policy.to_str().unwrap()]);
        let mut client = runtime.connect();
        let outcome = client.turn(&format!("mock:write {} made by the agent", work.join("yes.txt").display()));
        answer(&outcome);
        assert!(outcome.of_type("control_request").next().is_none());
        assert_eq!(fs::read_to_string(work.join("yes.txt")).unwrap(), "made by the agent");
        let outcome = client.turn(&format!("mock:write {} made by the agent", work.join("no.txt").display()));
        assert!(answer(&outcome).contains("the policy of this sandbox denies it"), "{outcome:?}");
        assert!(!work.join("no.txt").exists());
        runtime.shut_down(&mut client);
    }

    /// RB-33: interrupted while it asks, the agent takes its question back in its own words, once, and the turn is
    /// done; a late yes makes nothing.
    fn an_interrupt_takes_the_question_back(caller) {
        let stage = Stage::new(caller, &claude!());
        let file = stage.place.work().join("made.txt");
        let runtime = stage.runtime(&[]);
        let mut client = runtime.connect();
        client.query(&format!("mock:write {} made by the agent", file.display()));
        let asked = question(&mut client);
        client.send(&json!({"cmd": "interrupt"}));
        let outcome = client.outcome();
        assert!(outcome.is_done());
        let back: Vec<&Value> = outcome.of_type("control_cancel_request").collect();
        assert_eq!(back.len(), 1, "{outcome:?}");
        assert_eq!(back[0]["request_id"], asked["request_id"]);
        client.send(&json!({
            "type": "control_response",
            "response": {"subtype": "success", "request_id": asked["request_id"], "response": {"behavior": "allow"}},
        }));
        assert_eq!(answer(&client.turn("mock:say still here")), "still here");
        assert!(!file.exists());
        runtime.shut_down(&mut client);
    }
}
