//! The seven scenarios inside saggar, over the bridge socket, as root and as an ordinary user.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::boxed_agent::{FOLDER_SAYS, Stage};
use crate::support::bridge_client::{BridgeClient, Outcome, SESSION};

/// What a turn said last; it ends in one `done` for the server's own session id.
pub(super) fn answer(outcome: &Outcome) -> &str {
    assert_eq!(outcome.end, json!({"ev": "done", "sessionId": SESSION}));
    let results: Vec<&Value> = outcome.of_type("result").collect();
    let [result] = results[..] else { panic!("one result a turn: {results:?}") };
    assert_eq!((&result["subtype"], &result["is_error"]), (&json!("success"), &json!(false)), "{result}");
    result["result"].as_str().expect("a result is text")
}

/// The texts of the partial messages, joined.
pub(super) fn parts(outcome: &Outcome) -> String {
    outcome.of_type("stream_event").filter_map(|line| line["event"]["delta"]["text"].as_str()).collect()
}

/// Starts a turn that streams without end, and reads to its first part.
pub(super) fn start_stream(client: &mut BridgeClient) {
    client.send(&json!({
        "cmd": "query", "prompt": "mock:stream", "sessionId": SESSION, "includePartialMessages": true,
    }));
    client.events_until(|event| event["data"]["event"]["type"] == "content_block_delta");
}

/// Reads to the agent's question, which leaves as a message, byte for byte the agent's own.
pub(super) fn question(client: &mut BridgeClient) -> Value {
    let asked = |event: &Value| event["data"]["type"] == "control_request";
    let event = client.events_until(asked).pop().expect("the question is the last event");
    let request = &event["data"]["request"];
    assert_eq!((&request["subtype"], &request["tool_name"]), (&json!("can_use_tool"), &json!("Write")));
    event["data"].clone()
}

/// Answers the question.
pub(super) fn respond(client: &mut BridgeClient, asked: &Value, response: &Value) {
    client.send(&json!({
        "type": "control_response",
        "response": {"subtype": "success", "request_id": asked["request_id"], "response": response},
    }));
}

as_each_caller! {
    /// BP-05, BP-07, BP-10: query, messages, one done, shutdown.
    fn a_turn(caller) {
        let stage = Stage::new(caller, &claude!());
        let runtime = stage.runtime(&[]);
        let mut client = runtime.connect();
        let outcome = client.turn("mock:say hello from the model");
        assert_eq!(answer(&outcome), "hello from the model");
        assert_eq!(parts(&outcome), "", "no partial messages unless they are asked for");
        assert_eq!(stage.api.turns().len(), 1, "a turn is one request");
        assert!(stage.api.last_turn().conversation_has(FOLDER_SAYS), "the agent has read its folder");
        runtime.shut_down(&mut client);
        assert_eq!(stage.api.other_requests(), [""; 0]);
    }

    /// BP-07, DECISIONS 16: the second turn is the same process and the same conversation.
    fn two_turns_in_one_process(caller) {
        let stage = Stage::new(caller, &claude!());
        let runtime = stage.runtime(&[]);
        let mut client = runtime.connect();
        assert_eq!(answer(&client.turn("mock:say one")), "one");
        let agent = runtime.agent();
        assert_eq!(answer(&client.turn("mock:say two")), "two");
        assert_eq!(runtime.agent().pid(), agent.pid());
        assert!(stage.api.last_turn().conversation_has("mock:say one"), "the second turn knows the first");
        runtime.shut_down(&mut client);
    }

    /// BP-07, DECISIONS 17: stream events go to the turn that asked for them.
    fn partial_messages(caller) {
        let stage = Stage::new(caller, &claude!());
        let runtime = stage.runtime(&[]);
        let mut client = runtime.connect();
        client.send(&json!({
            "cmd": "query", "prompt": "mock:say in three parts", "sessionId": SESSION,
            "includePartialMessages": true,
        }));
        let outcome = client.outcome();
        assert_eq!((answer(&outcome), parts(&outcome).as_str()), ("in three parts", "in three parts"));
        assert_eq!(parts(&client.turn("mock:say nothing in parts")), "");
        runtime.shut_down(&mut client);
    }

    /// Decision 2 of the requirements, RB-28 to RB-30: asked as a message, allowed by a line, done.
    fn a_permission_is_asked_and_allowed(caller) {
        let stage = Stage::new(caller, &claude!());
        let file = stage.place.work().join("made.txt");
        let runtime = stage.runtime(&[]);
        let mut client = runtime.connect();
        client.query(&format!("mock:write {} made by the agent", file.display()));
        let asked = question(&mut client);
        assert!(!file.exists(), "nothing is written before the answer");
        let allow = json!({"behavior": "allow", "updatedInput": asked["request"]["input"]});
        respond(&mut client, &asked, &allow);
        answer(&client.outcome());
        assert_eq!(fs::read_to_string(&file).unwrap(), "made by the agent");
        runtime.shut_down(&mut client);
    }

    /// RB-30: a denial reaches the model with its reason, and nothing is written.
    fn a_permission_is_asked_and_denied(caller) {
        let stage = Stage::new(caller, &claude!());
        let file = stage.place.work().join("made.txt");
        let runtime = stage.runtime(&[]);
        let mut client = runtime.connect();
        client.query(&format!("mock:write {} made by the agent", file.display()));
        let asked = question(&mut client);
        respond(&mut client, &asked, &json!({"behavior": "deny", "message": "not today"}));
        assert!(answer(&client.outcome()).contains("not today"));
        assert!(!file.exists());
        runtime.shut_down(&mut client);
    }

    /// A tool that nobody needs to be asked about writes in the workspace, at the path that it has outside.
    fn a_tool_call_writes_in_the_workspace(caller) {
        let stage = Stage::new(caller, &claude!());
        let runtime = stage.runtime(&[]);
        let mut client = runtime.connect();
        client.send(&json!({
            "cmd": "query", "prompt": "mock:run pwd > where.txt && echo it ran", "sessionId": SESSION,
            "allowedTools": ["Bash"],
        }));
        assert!(answer(&client.outcome()).contains("it ran"));
        let written = fs::read_to_string(stage.place.work().join("where.txt")).unwrap();
        assert_eq!(written.trim(), stage.place.work().to_str().unwrap());
        runtime.shut_down(&mut client);
    }

    /// BP-09, BP-26: one done, the model's stream is left, and the next turn is whole.
    fn an_interrupt_mid_stream(caller) {
        let stage = Stage::new(caller, &claude!());
        let runtime = stage.runtime(&[]);
        let mut client = runtime.connect();
        start_stream(&mut client);
        let agent = runtime.agent();
        client.send(&json!({"cmd": "interrupt"}));
        let outcome = client.outcome();
        assert_eq!(outcome.end, json!({"ev": "done", "sessionId": SESSION}));
        let result = outcome.of_type("result").next().expect("the agent closes its turn");
        assert_eq!(result["terminal_reason"], "aborted_streaming");
        stage.api.wait_for_abandoned_streams(1);
        assert_eq!(answer(&client.turn("mock:say still here")), "still here");
        assert_eq!(runtime.agent().pid(), agent.pid(), "an interrupt restarts nothing");
        runtime.shut_down(&mut client);
    }

    /// BP-27, KC-23, DECISIONS 16: the turn ends in one error; the next query goes on with the conversation.
    fn resume_after_the_agent_is_killed(caller) {
        let stage = Stage::new(caller, &claude!());
        let runtime = stage.runtime(&[]);
        let mut client = runtime.connect();
        answer(&client.turn("remember the word kiln. mock:say noted"));
        start_stream(&mut client);
        let agent = runtime.agent();
        agent.signal(Signal::SIGKILL);
        let end = client.outcome().end;
        assert_eq!(end["ev"], "error", "{end}");
        assert_eq!(answer(&client.turn("mock:say resumed")), "resumed");
        assert_ne!(runtime.agent().pid(), agent.pid());
        assert!(stage.api.last_turn().conversation_has("the word kiln"), "the earlier prompt is in the request");
        runtime.shut_down(&mut client);
    }

    /// BP-08, BP-35, KC-21: the sandbox goes with its runtime, and a new runtime goes on with the conversation.
    fn resume_after_the_runtime_is_killed(caller) {
        let stage = Stage::new(caller, &claude!());
        let runtime = stage.runtime(&[]);
        let mut client = runtime.connect();
        answer(&client.turn("remember the word kiln. mock:say noted"));
        start_stream(&mut client);
        runtime.kill();
        let runtime = stage.runtime(&["--resume"]);
        let mut client = runtime.connect();
        assert_eq!(answer(&client.turn("mock:say resumed")), "resumed");
        assert!(stage.api.last_turn().conversation_has("the word kiln"), "the earlier prompt is in the request");
        runtime.shut_down(&mut client);
    }
}
