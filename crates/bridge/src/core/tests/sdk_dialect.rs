//! The SDK dialect, line by line.

use super::*;
use saggar_policy::{PermissionMode, PermissionModes, PolicyLayer, Setting};
use serde_json::json;

fn world() -> World {
    let config = BridgeConfig { session_name: "s9".into(), pid: 77, ..BridgeConfig::default() };
    let mut world = World::with(config, Box::new(StreamJsonAdapter::new()), Script::stream_json);
    world.open(1);
    world
}

fn user(text: &str, uuid: &str) -> String {
    json!({"type": "user", "message": {"role": "user", "content": text}, "uuid": uuid}).to_string()
}

fn request(id: &str, request: Value) -> String {
    json!({"type": "control_request", "request_id": id, "request": request}).to_string()
}

impl World {
    /// The lines that a connection received after its `ready`, by type; for responses with the subtype.
    fn bare(&self, conn: u64) -> Vec<String> {
        let events = self.events(conn);
        assert_eq!(events[0], json!({"ev": "ready"}));
        let kind = |line: &Value| {
            let kind = line["type"].as_str().unwrap_or_else(|| panic!("not a bare line: {line}")).to_owned();
            match line["response"]["subtype"].as_str() {
                Some(subtype) => format!("{kind}:{subtype}"),
                None => kind,
            }
        };
        events[1..].iter().map(kind).collect()
    }

    /// The prompts that the agent received.
    fn prompts(&self) -> Vec<Value> {
        let told = self.agent.iter().flat_map(|agent| &agent.told);
        told.filter(|line| line["type"] == "user").map(|line| line["message"]["content"].clone()).collect()
    }
}

#[test]
fn decision_18_the_first_object_decides_and_a_turn_is_bare_lines() {
    let mut world = world();
    world.say(1, "garbage");
    assert_eq!(world.last(1)["ev"], "error", "undecided, bad lines are answered");
    world.heard.get_mut(&ConnId(1)).unwrap().truncate("{\"ev\":\"ready\"}\n".len());
    world.say(1, &user("quick", "u1"));
    assert_eq!(world.bare(1), ["assistant"], "RB-01: neither init nor result");
    assert_eq!(world.prompts(), ["quick"]);
    assert_eq!(world.agent.as_ref().unwrap().told[0]["uuid"], "u1", "RB-14");
    // RB-06, RB-12, RB-13: from now on other lines are ignored.
    for ignored in
        ["garbage", "{}", "[]", "3", r#"{"cmd":"shutdown"}"#, r#"{"type":"assistant"}"#, "\u{1}", ""]
    {
        world.say(1, ignored);
    }
    assert_eq!(world.bare(1), ["assistant"]);
    assert!(!world.shut);
    // A connection of the command dialect keeps its dialect.
    world.open(2);
    world.query(2, "quick", "");
    world.say(2, &user("quick", "u2"));
    assert!(world.last(2)["error"].as_str().unwrap().contains("second dialect"));
    assert_eq!(world.kinds(2), ["ready", "system", "assistant", "result", "done", "error"]);
}

#[test]
fn rb_07_to_09_echoes_and_repetitions_are_dropped() {
    let mut world = world();
    world.say(1, &user("a", "u1"));
    world.say(1, &user("a", "u1"));
    assert_eq!(world.prompts(), ["a"], "RB-08");
    let none = json!({"type": "user", "message": {"content": "b"}}).to_string();
    world.say(1, &none);
    world.say(1, &none);
    assert_eq!(world.prompts(), ["a", "b", "b"], "RB-09");
    // RB-07: the server sends a message of the agent back.
    world.say(1, &user(r#"{"type":"assistant","uuid":"posted"}"#, "u2"));
    let before = world.prompts().len();
    world.say(1, &user("c", "posted"));
    assert_eq!(world.prompts().len(), before);
    // A message that did not pass the filter is no echo.
    world.say(1, &user(r#"{"type":"system","subtype":"status","uuid":"inner"}"#, "u3"));
    world.say(1, &user("d", "inner"));
    assert_eq!(world.prompts().last().unwrap(), "d");
    // RB-39: the messages of an earlier connection are remembered.
    world.bridge.conn_closed(ConnId(1));
    world.open(2);
    let before = world.prompts().len();
    world.say(2, &user("a", "u1"));
    world.say(2, &user("c", "posted"));
    assert_eq!(world.prompts().len(), before);
    world.bridge.restore_seen_messages(["told".to_owned()], ["taken".to_owned()]);
    world.say(2, &user("x", "told"));
    world.say(2, &user("x", "taken"));
    assert_eq!(world.prompts().len(), before, "RB-39: seeded from a history");
}

#[test]
fn rb_38_what_is_told_is_remembered_before_it_leaves() {
    let mut world = world();
    world.lively = false;
    world.say(1, &user("wait", "u1"));
    for number in 0..2000 {
        let line = format!("{{\"type\":\"assistant\",\"uuid\":\"p{number}\"}}\n");
        world.bridge.agent_output(line.as_bytes());
        // The core has not sent the line yet.
        world.bridge.conn_input(ConnId(1), format!("{}\n", user("echo", &format!("p{number}"))).as_bytes());
    }
    world.act();
    assert!(world.bridge.queue.is_empty());
}

#[test]
fn rb_10_the_sets_are_as_large_as_they_are_told_to_be() {
    let mut world = World::with(
        BridgeConfig { max_remembered: 3, ..BridgeConfig::default() },
        Box::new(StreamJsonAdapter::new()),
        Script::stream_json,
    );
    world.open(1);
    for uuid in ["a", "b", "c", "d", "d", "b", "a"] {
        world.say(1, &user(uuid, uuid));
    }
    assert_eq!(world.prompts(), ["a", "b", "c", "d", "a"]);
}

#[test]
fn a_message_that_finds_no_place_may_come_again() {
    let mut world = world();
    world.lively = false;
    for number in 0..=65 {
        world.say(1, &user("wait", &format!("u{number}")));
    }
    world.say(1, &user("wait", "u65"));
    assert_eq!(world.bridge.queue.len(), 64 + 2, "the refusals have their place");
    assert!(world.bridge.has_received("u64") && !world.bridge.has_received("u65"));
}

#[test]
fn rb_14_rb_15_what_a_message_says_is_cleaned() {
    let mut world = world();
    world.say(1, &user("", "u0"));
    let image = r#"{"type":"user","uuid":"u1","message":{"role":"user","content":[{"type":"image","source":{"type":"base64","mediaType":"image/png","data":"AA"}},{"type":"text","text":"hi"}]}}"#;
    world.say(1, image);
    let expected = json!([
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}},
        {"type": "text", "text": "hi"},
    ]);
    assert_eq!(world.prompts(), [expected]);
}

#[test]
fn rb_17_to_26_control_requests_are_answered_at_once() {
    let mut world = world();
    world.say(1, &request("r1", json!({"subtype": "initialize"})));
    assert_eq!(world.last(1)["response"]["response"]["pid"], 77);
    assert_eq!(world.last(1)["session_id"], "s9");
    for (at, (body, error)) in [
        (json!({"subtype": "set_model", "model": "m"}), None),
        (json!({"subtype": "set_model", "model": 7}), Some("set_model: the model is not a name")),
        (json!({"subtype": "set_max_thinking_tokens", "max_thinking_tokens": 9}), None),
        (
            json!({"subtype": "set_max_thinking_tokens", "max_thinking_tokens": -1}),
            Some("set_max_thinking_tokens: max_thinking_tokens is not a number of tokens"),
        ),
        (json!({"subtype": "set_permission_mode", "mode": "plan"}), None),
        (
            json!({"subtype": "set_permission_mode", "mode": "bypassPermissions"}),
            Some("the policy does not name the permission mode bypassPermissions in permissions.modes"),
        ),
        (json!({"subtype": "interrupt"}), None),
        (json!({"subtype": "fly"}), Some("REPL bridge does not handle control_request subtype: fly")),
        (
            json!({"subtype": "can_use_tool"}),
            Some("REPL bridge does not handle control_request subtype: can_use_tool"),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("é{at}");
        world.say(1, &request(&id, body.clone()));
        let mut response = json!({"subtype": "success", "request_id": id});
        if let Some(error) = error {
            response["subtype"] = "error".into();
            response["error"] = error.into();
        }
        let expected = json!({"type": "control_response", "response": response, "session_id": "s9"});
        assert_eq!(world.last(1), expected, "{body}");
    }
    // RB-19 to RB-21: the next turn uses the settings.
    world.say(1, &user("quick", "u1"));
    let asked: Vec<Value> =
        world.agent.as_ref().unwrap().told.iter().map(|line| line["request"].clone()).collect();
    assert_eq!(
        asked[..3],
        [
            json!({"subtype": "set_model", "model": "m"}),
            json!({"subtype": "set_max_thinking_tokens", "max_thinking_tokens": 9}),
            json!({"subtype": "set_permission_mode", "mode": "plan"}),
        ]
    );
    // Without a model, and with null tokens, the agent's defaults apply again.
    world.say(1, &request("r2", json!({"subtype": "set_model"})));
    world.say(1, &request("r3", json!({"subtype": "set_max_thinking_tokens", "max_thinking_tokens": null})));
    world.say(1, &user("quick", "u2"));
    let told = &world.agent.as_ref().unwrap().told;
    assert!(told.iter().any(|line| line["request"]["model"] == "default"));
    assert!(
        told.iter().any(|line| line["request"]
            == json!({"subtype": "set_max_thinking_tokens", "max_thinking_tokens": null}))
    );
}

#[test]
fn rb_26_a_request_is_answered_once_and_its_second_delivery_changes_nothing() {
    let mut world = world();
    let first = request("r1", json!({"subtype": "set_model", "model": "old"}));
    world.say(1, &first);
    world.say(1, &first);
    assert_eq!(world.bare(1), ["control_response:success"]);
    world.say(1, &request("r2", json!({"subtype": "set_model", "model": "new"})));
    // The server reconnects and sends everything again.
    world.open(2);
    world.say(2, &first);
    assert_eq!(world.bare(2), ["control_response:success"], "who asks hears an answer");
    world.say(2, &user("quick", "u1"));
    assert_eq!(world.agent.as_ref().unwrap().told[0]["request"]["model"], "new");
    // A repeated interrupt of an earlier turn does not end the running one.
    let interrupt = request("r3", json!({"subtype": "interrupt"}));
    world.say(2, &interrupt);
    world.say(2, &user("wait", "u2"));
    world.open(3);
    world.say(3, &interrupt);
    assert!(world.bridge.is_busy());
    assert_eq!(world.bare(3), ["control_response:success"]);
}

#[test]
fn rb_22_without_modes_there_is_no_false_success() {
    let mut world = World::relay(Script::relay);
    world.open(1);
    world.say(1, &request("r", json!({"subtype": "set_permission_mode", "mode": "plan"})));
    assert_eq!(
        world.last(1)["response"]["error"],
        "set_permission_mode is not supported in this context (onSetPermissionMode callback not registered)"
    );
    // A native agent receives a message as a query.
    world.say(1, &user("quick", "u1"));
    assert_eq!(world.bare(1), ["control_response:error", "assistant"]);
    assert_eq!(world.agent.as_ref().unwrap().told.last().unwrap()["cmd"], "query");
}

#[test]
fn rb_21_named_modes_bind_both_dialects() {
    let mut config = BridgeConfig::default();
    config.permissions.modes =
        Some(Setting::new(PermissionModes(vec![PermissionMode::Plan]), &PolicyLayer::CommandLine));
    let mut world = World::with(config, Box::new(StreamJsonAdapter::new()), Script::stream_json);
    world.open(1);
    world.query(1, "quick", r#","permissionMode":"acceptEdits""#);
    assert!(world.last(1)["error"].as_str().unwrap().contains("does not permit"), "{}", world.last(1));
    world.query(1, "quick", r#","permissionMode":"plan""#);
    assert_eq!(world.last(1)["ev"], "done");
}

#[test]
fn rb_23_an_interrupt_ends_the_turn_and_an_idle_one_is_success() {
    let mut world = world();
    world.say(1, &user("wait", "u1"));
    world.say(1, &request("r1", json!({"subtype": "interrupt"})));
    assert!(!world.bridge.is_busy());
    world.say(1, &request("r2", json!({"subtype": "interrupt"})));
    assert_eq!(world.bare(1), ["assistant", "control_response:success", "control_response:success"]);
}

#[test]
fn rb_25_outbound_only_changes_nothing() {
    let mut world = world();
    world.say(1, r#"{"cmd":"set","outboundOnly":true}"#);
    assert_eq!(world.last(1)["ev"], "done", "a set decides no dialect");
    world.heard.get_mut(&ConnId(1)).unwrap().truncate("{\"ev\":\"ready\"}\n".len());
    world.open(2);
    world.say(2, &user("wait", "u1"));
    for (at, subtype) in ["interrupt", "set_model", "set_max_thinking_tokens", "set_permission_mode", "fly"]
        .into_iter()
        .enumerate()
    {
        world.say(1, &request(&format!("r{at}"), json!({"subtype": subtype, "model": "m", "mode": "plan"})));
        assert_eq!(world.last(1)["response"]["error"], crate::proto::sdk_dialect::control::OUTBOUND_ONLY);
    }
    world.say(1, &request("i", json!({"subtype": "initialize"})));
    assert_eq!(world.last(1)["response"]["subtype"], "success");
    world.say(1, &user("no", "u2"));
    assert!(world.bridge.is_busy() && world.bridge.queue.is_empty());
    world.agent.as_mut().unwrap().finish("success");
    world.act();
    world.say(2, &user("quick", "u3"));
    assert!(world.agent.as_ref().unwrap().told.iter().all(|line| line["request"]["subtype"].is_null()));
}

#[test]
fn rb_27_a_server_that_is_gone_is_told_nothing() {
    let mut world = world();
    world.say(1, &user("wait", "u1"));
    world.bridge.conn_closed(ConnId(1));
    world.bridge.conn_input(
        ConnId(1),
        b"{\"type\":\"control_request\",\"request_id\":\"r\",\"request\":{\"subtype\":\"initialize\"}}\n",
    );
    world.act();
    assert_eq!(world.bridge.held_bytes(), 0);
}

#[test]
fn rb_36_one_closing_result_ends_each_connection_of_the_dialect() {
    let mut world = world();
    world.say(1, &user("wait", "u1"));
    world.open(2);
    world.open(3);
    world.query(3, "wait", "");
    world.bridge.begin_termination();
    world.act();
    assert!(world.shut);
    assert_eq!(world.bare(1), ["assistant", "result"]);
    assert_eq!(world.last(1)["session_id"], "s9");
    assert_eq!(world.kinds(2), ["ready"], "undecided: not of the dialect");
    assert_eq!(world.kinds(3), ["ready", "error"]);
}

#[test]
fn what_goes_wrong_below_the_conversation_is_told_in_a_line_that_crosses() {
    let mut world = world();
    world.say(1, &user("wait", "u1"));
    world.kill_agent(&AgentExitStatus::Signal(9));
    assert_eq!(world.bare(1), ["assistant", "system"]);
    let notice = world.last(1);
    assert_eq!(notice["subtype"], "local_command");
    assert_eq!(notice["content"], "the agent was killed by signal 9 (SIGKILL)");
    let uuid = notice["uuid"].as_str().unwrap();
    world.say(1, &user("echo", uuid));
    assert!(!world.bridge.is_busy());
    world.say(1, &user("quick", "u2"));
    assert_eq!(world.bare(1), ["assistant", "system", "assistant"]);
}

#[test]
fn a_connection_of_the_dialect_may_have_everything() {
    let mut world = world();
    world.say(1, r#"{"cmd":"set","filter":false}"#);
    world.heard.get_mut(&ConnId(1)).unwrap().truncate("{\"ev\":\"ready\"}\n".len());
    world.say(1, &user("quick", "u1"));
    assert_eq!(world.bare(1), ["system", "stream_event", "assistant", "result"]);
}
