//! Turns of one server with a healthy agent.

use super::*;

#[test]
fn bp_04_ready_comes_first_and_once_on_every_connection() {
    let mut world = World::new(Script::stream_json);
    for conn in 0..3 {
        world.open(conn);
        world.query(conn, "quick", "");
        assert_eq!(world.kinds(conn).iter().filter(|kind| *kind == "ready").count(), 1);
        assert_eq!(world.kinds(conn)[0], "ready");
    }
}

#[test]
fn bp_07_a_query_streams_messages_and_ends_in_one_done() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    world.query(1, "quick", "");
    assert_eq!(world.kinds(1), ["ready", "system", "assistant", "result", "done"]);
    assert_eq!(world.last(1)["sessionId"], "s");
    world.query(1, "quick", r#","includePartialMessages":true,"id":"x""#);
    assert_eq!(
        world.kinds(1)[5..],
        ["\"x\":system", "\"x\":stream_event", "\"x\":assistant", "\"x\":result", "\"x\":done"]
    );
    assert_eq!(world.starts.len(), 1);
}

#[test]
fn bp_11_odd_json_of_the_agent_leaves_byte_for_byte() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    let odd = r#"{ "n":1e400,"n":12345678901234567890, "s":"\u0000\ud800","f":2.50 ,"type":"odd"}"#;
    world.query(1, &format!("!{odd}"), "");
    let heard = String::from_utf8(world.heard[&ConnId(1)].clone()).unwrap_or_default();
    assert!(heard.contains(&format!("{{\"ev\":\"message\",\"data\":{odd}}}\n")), "{heard}");
}

#[test]
fn bp_13_a_failure_of_the_sdk_is_a_message_and_not_an_error() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    world.query(1, "wait", "");
    world.agent.as_mut().unwrap().finish("error_max_turns");
    world.act();
    let events = world.events(1);
    assert_eq!(events[events.len() - 2]["data"]["subtype"], "error_max_turns");
    assert_eq!(world.last(1)["ev"], "done");
}

#[test]
fn bp_12_output_that_is_not_json_is_a_log_entry_for_those_who_asked() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    world.open(2);
    world.say(2, r#"{"cmd":"set","log":true,"id":1}"#);
    world.query(1, "!hello from a library", "");
    assert_eq!(world.kinds(1), ["ready", "system", "assistant", "result", "done"]);
    assert_eq!(world.kinds(2), ["ready", "1:done", "log"]);
    assert_eq!(world.last(2)["text"], "hello from a library");
    assert_eq!(world.last(2)["level"], "info");
    world.bridge.agent_stderr(b"stderr line\npart");
    world.act();
    assert_eq!(world.last(2)["text"], "stderr line");
}

#[test]
fn bp_08_resume_brings_the_agent_up_with_its_conversation() {
    let config = BridgeConfig { agent_session: Some("agent-1".into()), ..BridgeConfig::default() };
    let mut world = World::with(config, Box::new(StreamJsonAdapter::new()), Script::stream_json);
    world.open(1);
    world.say(1, r#"{"cmd":"resume","sessionId":"s"}"#);
    assert_eq!(world.kinds(1), ["ready", "done"]);
    assert!(world.starts[0].arguments.contains(&"--resume=agent-1".to_owned()));
    // The agent has the session loaded: done at once, without a turn or another start.
    world.say(1, r#"{"cmd":"resume","sessionId":"s","id":2}"#);
    assert_eq!(world.kinds(1), ["ready", "done", "2:done"]);
    assert_eq!(world.starts.len(), 1);
}

#[test]
fn bp_08_an_agent_that_does_not_answer_is_up_when_it_lives() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    world.lively = false;
    world.say(1, r#"{"cmd":"resume","sessionId":"s"}"#);
    world.pass(Duration::from_secs(9));
    assert_eq!(world.kinds(1), ["ready"]);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.kinds(1), ["ready", "done"]);
}

#[test]
fn bp_08_the_agents_name_of_the_conversation_is_learned_from_its_first_line() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    world.query(1, "quick", "");
    world.query(1, "quick", "");
    let learned: Vec<&BridgeAction> =
        world.actions.iter().filter(|a| matches!(a, BridgeAction::SaveAgentSession { .. })).collect();
    let expected = BridgeAction::SaveAgentSession { session: "s".into(), agent_session: "agent-1".into() };
    assert_eq!(learned, [&expected]);
}

#[test]
fn bp_09_an_interrupt_ends_the_turn_in_its_done_and_is_silent_when_idle() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    world.say(1, r#"{"cmd":"interrupt"}"#);
    assert_eq!(world.kinds(1), ["ready"]);
    world.query(1, "wait", "");
    world.say(1, r#"{"cmd":"interrupt"}"#);
    assert_eq!(world.kinds(1)[1..], ["system", "assistant", "result", "done"]);
    world.say(1, r#"{"cmd":"interrupt","id":9}"#);
    assert_eq!(world.kinds(1)[5..], ["9:done"]);
    world.query(1, "quick", "");
    assert_eq!(world.last(1)["ev"], "done");
}

#[test]
fn bp_09_an_agent_that_does_not_listen_gets_a_signal_and_is_killed() {
    let mut world = World::new(Script::stubborn);
    world.open(1);
    world.query(1, "wait", "");
    world.say(1, r#"{"cmd":"interrupt"}"#);
    world.pass(Duration::from_secs(5));
    assert!(world.actions.contains(&BridgeAction::InterruptAgent));
    assert_eq!(world.last(1)["ev"], "message");
    world.pass(Duration::from_secs(3));
    assert_eq!(world.last(1)["ev"], "done");
    assert_eq!(world.kinds(1).iter().filter(|kind| *kind == "done").count(), 1);
}

#[test]
fn decision_17_settings_go_ahead_and_start_options_restart_the_agent() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    world.query(1, "quick", r#","model":"m","permissionMode":"plan","thinking":{"budgetTokens":5}"#);
    let told = |world: &World| -> Vec<String> {
        let name = |line: &Value| {
            line["request"]["subtype"].as_str().or(line["type"].as_str()).unwrap_or_default().to_owned()
        };
        world.agent.as_ref().unwrap().told.iter().map(name).collect()
    };
    assert_eq!(told(&world), ["set_model", "set_max_thinking_tokens", "set_permission_mode", "user"]);
    world.query(1, "quick", r#","model":"m","maxTurns":3,"allowedTools":["Read","Bash(ls:*)"]"#);
    assert_eq!(world.starts.len(), 2);
    let arguments = &world.starts[1].arguments;
    assert!(arguments.ends_with(&[
        "--resume=agent-1".into(),
        "--max-turns=3".into(),
        "--allowedTools=Read,Bash(ls:*)".into()
    ]));
    assert_eq!(told(&world), ["set_model", "user"]);
    assert_eq!(world.kinds(1).iter().filter(|kind| *kind == "done").count(), 2);
    world.query(1, "quick", r#","maxTurns":"3""#);
    assert_eq!(world.last(1)["error"], "query: the field maxTurns has a wrong type or value");
}

#[test]
fn a_setting_the_agent_refuses_fails_the_turn_before_it_begins() {
    let mut world = World::new(Script::strict);
    world.open(1);
    world.query(1, "quick", r#","permissionMode":"plan""#);
    assert_eq!(world.last(1)["error"], "the agent refused set_permission_mode: not here");
    assert!(world.agent.as_ref().unwrap().told.iter().all(|line| line["type"] != "user"));
    world.query(1, "quick", "");
    assert_eq!(world.last(1)["ev"], "done");
}

#[test]
fn bp_20_prompts_of_any_json_reach_the_agent() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    for (prompt, content) in [
        (r#""a\u2028b""#, r#""a\u2028b""#),
        (r#"["hello",{"type":"image"}]"#, r#"[{"type":"text","text":"hello"},{"type":"image"}]"#),
        ("\r{\"a\":\r1}", "\"{\\\"a\\\":\\r1}\""),
        ("7", "\"7\""),
        ("[]", "\"[]\""),
    ] {
        world.say(1, &format!(r#"{{"cmd":"query","prompt":{prompt},"sessionId":"s"}}"#));
        let told = world.agent.as_ref().unwrap().told.last().unwrap();
        assert_eq!(told["message"]["content"], serde_json::from_str::<Value>(content).unwrap(), "{prompt}");
        assert_eq!(told["uuid"].as_str().unwrap().len(), 36);
    }
}

#[test]
fn bp_20_a_relayed_agent_gets_the_command_as_it_came() {
    let mut world = World::relay(Script::relay);
    world.open(1);
    world.say(1, r#"{"cmd":"query","prompt":["x"],"sessionId":"s","traceContext":{"a":1},"model":"m"}"#);
    let told = &world.agent.as_ref().unwrap().told[0];
    assert_eq!(told["traceContext"]["a"], 1);
    assert_eq!(world.kinds(1), ["ready", "assistant", "done"]);
    assert!(
        String::from_utf8_lossy(&world.heard[&ConnId(1)]).contains(r#""data":{"type":"assistant","n":2.50,"#)
    );
}

#[test]
fn bp_26_a_done_after_an_error_does_not_end_the_next_turn() {
    let mut world = World::relay(Script::relay);
    world.open(1);
    world.query(1, "fail", "");
    assert_eq!(world.kinds(1), ["ready", "error"]);
    world.query(1, "wait", "");
    assert_eq!(world.kinds(1), ["ready", "error", "assistant"]);
    world.agent.as_mut().unwrap().finish("success");
    world.act();
    assert_eq!(world.kinds(1), ["ready", "error", "assistant", "done"]);
}

#[test]
fn decision_16_another_session_is_refused_by_name() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    world.query(1, "quick", "");
    world.say(1, r#"{"cmd":"query","prompt":"x","sessionId":"other"}"#);
    assert_eq!(world.last(1)["error"], "this bridge serves the session \"s\"");
}

#[test]
fn a_turn_of_the_agents_own_making_does_not_end_a_query() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    world.query(1, "quick", "");
    let agent = world.agent.as_mut().unwrap();
    agent.say(r#"{"type":"assistant","session_id":"agent-1"}"#);
    world.act();
    world.query(1, "wait", "");
    world.agent.as_mut().unwrap().say(r#"{"subtype":"success","type":"result"}"#);
    world.act();
    assert_ne!(world.last(1)["ev"], "done");
    world.agent.as_mut().unwrap().finish("success");
    world.act();
    assert_eq!(world.kinds(1).iter().filter(|kind| *kind == "done").count(), 2);
}

#[test]
fn bp_10_shutdown_refuses_what_waits_aborts_what_runs_and_stops_the_agent() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    world.query(1, "wait", r#","id":1"#);
    world.query(1, "quick", r#","id":2"#);
    world.say(1, r#"{"cmd":"exec","command":"sleep 9","id":3}"#);
    world.say(1, r#"{"cmd":"shutdown","id":4}"#);
    assert!(!world.shut);
    world.finish_exec(world.execs()[0], "");
    assert!(world.shut);
    assert_eq!(world.kinds(1)[3..], ["2:error", "1:result", "1:done", "3:exec_result", "3:done", "4:done"]);
    assert!(world.agent.is_none());
    world.query(1, "quick", r#","id":5"#);
    assert_eq!(world.last(1)["error"], "the bridge is shutting down");
}

#[test]
fn bp_35_the_end_takes_less_than_five_seconds_whatever_the_agent_does() {
    let mut world = World::new(Script::stubborn);
    world.open(1);
    world.query(1, "wait", "");
    world.say(1, r#"{"cmd":"exec","command":"sleep 9","id":3}"#);
    world.bridge.begin_termination();
    world.act();
    world.pass(Duration::from_millis(4100));
    assert!(world.shut);
    assert_eq!(world.kinds(1)[3..], ["done", "3:error"]);
}
