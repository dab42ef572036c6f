//! Several commands and several servers.

use super::*;

#[test]
fn bp_25_an_exec_beside_a_query_of_another_connection_does_not_wait() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    world.open(2);
    world.query(1, "wait", "");
    world.say(2, r#"{"cmd":"exec","command":"ls","timeout":500}"#);
    world.finish_exec(world.execs()[0], "out");
    assert_eq!(world.kinds(2), ["ready", "exec_result", "done"]);
    assert_eq!(world.kinds(1), ["ready", "system", "assistant"]);
    assert_eq!(world.last(2)["sessionId"], "");
}

#[test]
fn bp_25_without_ids_an_exec_waits_for_the_turn_of_its_own_connection() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    world.query(1, "wait", "");
    world.say(1, r#"{"cmd":"exec","command":"a"}"#);
    world.say(1, r#"{"cmd":"exec","command":"b","id":1}"#);
    assert_eq!(world.execs().len(), 1);
    world.agent.as_mut().unwrap().finish("success");
    world.act();
    assert_eq!(world.execs().len(), 2);
}

/// A server that knows no ids, as its child expects.
fn immediate() -> World {
    let config = BridgeConfig { exec_order: ExecOrder::Immediate, ..BridgeConfig::default() };
    let mut world = World::with(config, Box::new(StreamJsonAdapter::new()), Script::stream_json);
    world.open(1);
    world
}

#[test]
fn immediate_exec_runs_during_the_turn_and_its_done_follows_that_of_the_turn() {
    let mut world = immediate();
    world.query(1, "wait", "");
    world.say(1, r#"{"cmd":"exec","command":"a"}"#);
    world.finish_exec(world.execs()[0], "out");
    assert_eq!(world.kinds(1), ["ready", "system", "assistant", "exec_result"]);
    world.agent.as_mut().unwrap().finish("success");
    world.act();
    let kinds = world.kinds(1);
    assert_eq!(kinds[kinds.len() - 3..], ["result", "done", "done"]);
    assert_eq!(world.last(1)["sessionId"], "");
    // With no turn they leave together.
    world.say(1, r#"{"cmd":"exec","command":"b"}"#);
    world.finish_exec(world.execs()[1], "out");
    assert_eq!(world.kinds(1)[kinds.len()..], ["exec_result", "done"]);
}

#[test]
fn immediate_exec_delays_no_turn_and_its_end_waits_for_queued_turns() {
    let mut world = immediate();
    world.say(1, r#"{"cmd":"exec","command":"a"}"#);
    world.query(1, "wait", "");
    world.query(1, "wait", "");
    assert_eq!(world.kinds(1), ["ready", "system", "assistant"]);
    world.finish_exec(world.execs()[0], "out");
    for _ in 0..2 {
        world.agent.as_mut().unwrap().finish("success");
        world.act();
    }
    let kinds: Vec<String> =
        world.kinds(1).into_iter().filter(|kind| ["exec_result", "done"].contains(&kind.as_str())).collect();
    assert_eq!(kinds, ["exec_result", "done", "done", "done"]);
    assert_eq!(world.last(1)["sessionId"], "");
}

#[test]
fn immediate_exec_with_an_id_ends_during_the_turn() {
    let mut world = immediate();
    world.query(1, "wait", "");
    world.say(1, r#"{"cmd":"exec","command":"a","id":1}"#);
    world.finish_exec(world.execs()[0], "out");
    world.finish_exec(world.execs()[0], "out");
    assert_eq!(world.kinds(1), ["ready", "system", "assistant", "1:exec_result", "1:done"]);
}

#[test]
fn immediate_exec_that_fails_does_not_end_the_turn() {
    let mut world = immediate();
    world.query(1, "wait", "");
    world.say(1, r#"{"cmd":"exec","command":"a"}"#);
    world.bridge.exec_failed(world.execs()[0], "no shell");
    world.act();
    assert_eq!(world.kinds(1), ["ready", "system", "assistant", "exec_result"]);
    assert_eq!(world.last(1)["exitCode"], 126);
    assert!(world.last(1)["stderr"].as_str().unwrap().contains("no shell"));
    world.bridge.set_paused(true);
    world.say(1, r#"{"cmd":"exec","command":"b"}"#);
    assert!(world.last(1)["stderr"].as_str().unwrap().contains("paused"));
    world.bridge.set_paused(false);
    world.agent.as_mut().unwrap().finish("success");
    world.act();
    let kinds = world.kinds(1);
    assert_eq!(kinds[kinds.len() - 4..], ["result", "done", "done", "done"]);
    // Without a turn it is an error as ever.
    world.say(1, r#"{"cmd":"exec","command":"c"}"#);
    world.bridge.exec_failed(world.execs()[1], "no shell");
    world.act();
    assert_eq!(world.last(1)["ev"], "error");
}

#[test]
fn bp_21_the_result_and_its_done_leave_as_one_buffer() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    world.reading = false;
    world.bridge.conn_input(ConnId(1), b"{\"cmd\":\"exec\",\"command\":\"x\",\"id\":7}\n");
    world.bridge.next_action();
    let outcome = ExecOutcome { exit_code: 3, stdout: b"a\xff".into(), stderr: b"e".into(), truncated: true };
    world.bridge.exec_finished(ExecId(0), &outcome);
    let Some(BridgeAction::Send { bytes, .. }) = world.bridge.next_action() else { panic!() };
    let expected = concat!(
        "{\"ev\":\"exec_result\",\"exitCode\":3,\"stdout\":\"a\u{fffd}\",\"stderr\":\"e\",\"truncated\":true,\"id\":7}\n",
        "{\"ev\":\"done\",\"sessionId\":\"\",\"id\":7}\n"
    );
    assert_eq!(String::from_utf8(bytes).unwrap(), expected);
}

#[test]
fn bp_22_a_timeout_kills_and_answers_124_with_what_there_was() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    world.say(1, r#"{"cmd":"exec","command":"sleep 100","timeout":200}"#);
    world.pass(Duration::from_millis(199));
    let exec = world.execs()[0];
    assert!(!world.actions.contains(&BridgeAction::KillExec { exec }));
    world.pass(Duration::from_millis(1));
    assert!(world.actions.contains(&BridgeAction::KillExec { exec }));
    world.finish_exec(exec, "partial");
    assert_eq!(
        (&world.events(1)[1]["exitCode"], &world.events(1)[1]["stdout"]),
        (&124.into(), &"partial".into())
    );
}

#[test]
fn bp_28_turns_wait_in_order_and_each_connection_hears_its_own() {
    let mut world = World::new(Script::stream_json);
    for conn in 1..=3 {
        world.open(conn);
    }
    world.query(1, "wait", "");
    world.query(2, "quick", "");
    world.query(3, "wait", r#","id":"c""#);
    assert_eq!((world.kinds(2).len(), world.kinds(3).len()), (1, 1));
    world.agent.as_mut().unwrap().finish("success");
    world.act();
    assert_eq!(world.kinds(1)[1..], ["system", "assistant", "result", "done"]);
    assert_eq!(world.kinds(2)[1..], ["system", "assistant", "result", "done"]);
    assert_eq!(world.kinds(3)[1..], ["\"c\":system", "\"c\":assistant"]);
}

#[test]
fn decision_16_sixty_four_turns_wait_and_the_next_is_refused() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    for id in 0..66 {
        world.query(1, "wait", &format!(r#","id":{id}"#));
    }
    assert_eq!(world.last(1)["error"], "too many turns wait for the agent");
    assert_eq!(world.last(1)["id"], 65);
    assert_eq!(world.kinds(1).len(), 4);
}

#[test]
fn ids_may_overlap_and_be_the_same() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    for _ in 0..2 {
        world.say(1, r#"{"cmd":"exec","command":"x","id":1}"#);
    }
    world.query(1, "quick", r#","id":1"#);
    for exec in world.execs() {
        world.finish_exec(exec, "");
    }
    assert_eq!(world.kinds(1).iter().filter(|kind| *kind == "1:done").count(), 3);
}

#[test]
fn an_interrupt_of_one_who_waits_does_not_end_the_turn_of_another() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    world.open(2);
    world.query(1, "wait", "");
    world.query(2, "wait", "");
    world.say(2, r#"{"cmd":"interrupt"}"#);
    assert_eq!(world.kinds(2), ["ready", "done"]);
    assert!(world.agent.as_ref().unwrap().working);
    // Without a turn of its own, the sender interrupts the running turn.
    world.say(2, r#"{"cmd":"interrupt"}"#);
    assert_eq!(world.last(1)["ev"], "done");
}

#[test]
fn bp_15_a_bad_line_is_one_error_and_the_next_line_is_handled() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    for bad in ["nonsense", "[]", "3", r#"{"cmd":"fly"}"#, r#"{"cmd":"query"}"#, "\u{0}"] {
        let before = world.events(1).len();
        world.say(1, bad);
        assert_eq!(world.events(1).len(), before + 1, "{bad}");
        assert_eq!(world.last(1)["ev"], "error");
    }
    for blank in ["", "  ", "\r"] {
        world.say(1, blank);
    }
    world.query(1, "quick", "");
    assert_eq!(world.last(1)["ev"], "done");
}

#[test]
fn bp_15_a_hundred_thousand_bad_lines_and_then_a_query() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    let mut seed = 1u64;
    for _ in 0..100_000 {
        let mut line = Vec::new();
        for _ in 0..seed % 23 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let alphabet = b"{}[]\":,\\cmdquery0e-+\0\xff\xe2\x82 ";
            line.push(alphabet[usize::try_from(seed >> 40).unwrap() % alphabet.len()]);
        }
        seed = seed.wrapping_add(1).rotate_left(7);
        line.push(b'\n');
        world.bridge.conn_input(ConnId(1), &line);
        while let Some(action) = world.bridge.next_action() {
            let BridgeAction::Send { conn, bytes } = action else { panic!("{action:?}") };
            assert!(bytes.starts_with(b"{\"ev\":\"ready") || bytes.starts_with(b"{\"ev\":\"error"));
            world.bridge.conn_written(conn, bytes.len());
        }
    }
    assert_eq!(world.bridge.held_bytes(), 0);
    world.query(1, "quick", "");
    assert_eq!(world.last(1)["ev"], "done");
}

#[test]
fn bp_25_any_cutting_of_the_input_is_the_same() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    let line = "{\"cmd\":\"query\",\"prompt\":\"€𝄞\",\"sessionId\":\"s\"}\r\n";
    for byte in line.as_bytes() {
        world.bridge.conn_input(ConnId(1), &[*byte]);
        world.act();
    }
    assert_eq!(world.agent.as_ref().unwrap().told[0]["message"]["content"], "€𝄞");
    assert_eq!(world.last(1)["ev"], "done");
}

#[test]
fn decision_18_set_changes_a_connection_and_is_done() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    world.say(1, r#"{"cmd":"set","filter":true,"log":true}"#);
    assert_eq!(world.last(1)["ev"], "done");
    world.query(1, "quick", "");
    let told: Vec<String> = world.kinds(1).into_iter().filter(|kind| kind != "log").collect();
    assert_eq!(told, ["ready", "done", "assistant", "done"], "the conversation alone");
    world.say(1, r#"{"cmd":"set","filter":false,"log":false,"outboundOnly":true}"#);
    world.query(1, "quick", "");
    assert_eq!(world.last(1)["error"], "this connection is outbound-only");
    world.say(1, r#"{"cmd":"shutdown"}"#);
    assert_eq!(world.last(1)["error"], "this connection is outbound-only");
    world.say(1, r#"{"cmd":"set","outboundOnly":false}"#);
    world.query(1, "quick", "");
    assert_eq!(world.kinds(1).iter().filter(|kind| *kind == "result").count(), 1, "raw again");
}

#[test]
fn decision_19_a_question_goes_to_the_turn_or_to_the_newest_and_its_answer_to_the_agent() {
    let ask = r#"{"request_id":"r1","type":"control_request","request":{"subtype":"can_use_tool"}}"#;
    let mut world = World::new(Script::stream_json);
    world.open(1);
    world.open(2);
    world.query(1, "wait", "");
    world.agent.as_mut().unwrap().say(ask);
    world.act();
    assert_eq!(world.last(1)["data"]["request_id"], "r1");
    assert_eq!(world.kinds(2), ["ready"]);
    world.say(1, r#"{"type":"control_response","response":{"subtype":"success","request_id":"r1","response":{"behavior":"maybe"}}}"#);
    assert_eq!(world.last(1)["error"], "control_response: behavior is neither allow nor deny");
    let answer = r#"{"type":"control_response","response":{"subtype":"success","request_id":"r1","response":{"behavior":"allow","updatedInput":{"n":1}}}}"#;
    world.say(1, answer);
    let told = world.agent.as_ref().unwrap().told.last().unwrap();
    assert_eq!(*told, serde_json::from_str::<Value>(answer).unwrap());
    world.agent.as_mut().unwrap().finish("success");
    world.agent.as_mut().unwrap().say(&ask.replace("r1", "r2"));
    world.act();
    assert_eq!(world.kinds(2), ["ready", "control_request"]);
}
