//! Stored events, and servers that reconnect and request them.

use super::memory_store::Shelf;
use super::*;
use crate::proto::spool::SpoolStore;

/// A world that stores its events in this store.
fn keeping(shelf: &Shelf, make: fn() -> Script) -> World {
    let mut world = World::new(make);
    world.bridge.enable_spool(Box::new(shelf.clone()), shelf.left());
    world
}

fn replay(world: &mut World, conn: u64, after: u64) {
    world.say(conn, &format!(r#"{{"cmd":"replay","after":{after},"id":"r"}}"#));
    world.pass(Duration::ZERO);
}

fn close(world: &mut World, conn: u64) {
    world.bridge.conn_closed(ConnId(conn));
    world.act();
}

fn finish(world: &mut World) {
    world.agent.as_mut().unwrap().finish("success");
    world.act();
}

fn seqs(world: &World, conn: u64) -> Vec<u64> {
    world.events(conn).iter().filter_map(|event| event["seq"].as_u64()).collect()
}

#[test]
fn bp_30_a_turn_outlives_its_connection_and_is_told_whole_to_one_that_asks() {
    let shelf = Shelf::new(1000);
    let mut world = keeping(&shelf, Script::stream_json);
    world.open(1);
    world.query(1, "wait", r#","id":"q""#);
    assert_eq!(world.kinds(1), ["ready", "\"q\":system", "\"q\":assistant"]);
    assert!(seqs(&world, 1).is_empty(), "who does not ask hears no numbers");
    close(&mut world, 1);
    world.open(2);
    replay(&mut world, 2, 1);
    assert_eq!(world.kinds(2), ["ready", "\"q\":assistant", "\"r\":done"]);
    assert_eq!(seqs(&world, 2), [2, 2]);
    finish(&mut world);
    assert_eq!(world.kinds(2)[3..], ["\"q\":result", "\"q\":done"]);
    assert_eq!(seqs(&world, 2), [2, 2, 3, 4]);
    // Byte for byte, except for the number.
    let heard = String::from_utf8(world.heard[&ConnId(2)].clone()).unwrap();
    for line in shelf.0.borrow().history.values().skip(1) {
        let line = String::from_utf8(line.clone()).unwrap();
        assert!(heard.contains(line.trim_end().strip_suffix('}').unwrap()), "{line}");
    }
}

#[test]
fn what_waits_and_what_runs_beside_the_agent_outlives_its_connection_in_its_order() {
    let shelf = Shelf::new(1000);
    let mut world = keeping(&shelf, Script::stream_json);
    world.open(1);
    world.query(1, "wait", "");
    world.query(1, "quick", "");
    world.say(1, r#"{"cmd":"exec","command":"last"}"#);
    world.say(1, r#"{"cmd":"exec","command":"now","id":7}"#);
    close(&mut world, 1);
    assert!(!world.actions.contains(&BridgeAction::KillExec { exec: world.execs()[0] }));
    world.finish_exec(world.execs()[0], "beside");
    assert_eq!(world.execs().len(), 1, "it waits for the turns before it");
    finish(&mut world);
    assert_eq!(world.execs().len(), 2);
    world.finish_exec(world.execs()[1], "behind");
    world.open(2);
    replay(&mut world, 2, 0);
    let kinds = world.kinds(2);
    let expected = [
        "ready",
        "system",
        "assistant",
        "7:exec_result",
        "7:done",
        "result",
        "done",
        "system",
        "assistant",
        "result",
        "done",
        "exec_result",
        "done",
        "\"r\":done",
    ];
    assert_eq!(kinds, expected);
    assert!(!world.bridge.is_busy());
    assert_eq!(world.bridge.held_bytes(), 0);
}

#[test]
fn a_connection_that_follows_hears_all_turns_and_its_own_once() {
    let shelf = Shelf::new(1000);
    let mut world = keeping(&shelf, Script::stream_json);
    world.open(1);
    world.open(2);
    replay(&mut world, 2, 0);
    world.query(1, "quick", r#","id":"a""#);
    world.query(2, "quick", r#","id":"b""#);
    assert_eq!(world.kinds(1), ["ready", "\"a\":system", "\"a\":assistant", "\"a\":result", "\"a\":done"]);
    assert_eq!(seqs(&world, 2), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(world.kinds(2)[2..6], ["\"a\":system", "\"a\":assistant", "\"a\":result", "\"a\":done"]);
    assert_eq!(world.kinds(2)[6..], ["\"b\":system", "\"b\":assistant", "\"b\":result", "\"b\":done"]);
    // An event for one connection alone has no number.
    world.say(2, r#"{"cmd":"set","id":"s"}"#);
    world.query(2, "quick", r#","id":"c","sessionId":"other""#);
    assert_eq!(world.kinds(2)[10..], ["\"s\":done", "\"c\":error"]);
    assert_eq!(seqs(&world, 2).len(), 9);
}

#[test]
fn a_replay_that_cannot_be_is_an_error_that_says_why() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    replay(&mut world, 1, 0);
    assert!(world.last(1)["error"].as_str().unwrap().contains("--spool"));
    let shelf = Shelf::new(1000);
    let mut world = keeping(&shelf, Script::stream_json);
    world.open(1);
    world.query(1, "quick", "");
    replay(&mut world, 1, 5);
    assert_eq!(world.last(1)["error"], "replay: there is no event 5 yet; the newest is 4");
    for (line, text) in [
        (r#"{"cmd":"replay"}"#, "replay: the field after is missing"),
        (r#"{"cmd":"replay","after":-1}"#, "replay: the field after is not a number"),
        (r#"{"cmd":"replay","after":"1"}"#, "replay: the field after is not a number"),
    ] {
        world.say(1, line);
        assert_eq!(world.last(1)["error"], text);
    }
    replay(&mut world, 1, 4);
    assert_eq!(world.last(1)["seq"], 4);
    replay(&mut world, 1, 0);
    assert_eq!(world.last(1)["error"], "replay: this connection receives all events already");
}

#[test]
fn what_had_to_go_is_a_gap_and_the_answer_stands_where_it_belongs() {
    let shelf = Shelf::new(3);
    let mut world = keeping(&shelf, Script::stream_json);
    world.open(1);
    world.query(1, "quick", "");
    world.query(1, "quick", "");
    world.open(2);
    replay(&mut world, 2, 1);
    let heard = world.events(2);
    assert_eq!(heard[1], serde_json::json!({"ev": "gap", "from": 2, "to": 5}));
    assert_eq!(seqs(&world, 2), [6, 7, 8, 8]);
    assert_eq!(world.last(2), serde_json::json!({"ev": "done", "sessionId": "s", "id": "r", "seq": 8}));
}

#[test]
fn what_cannot_be_kept_is_told_live_and_is_a_gap_afterwards() {
    let shelf = Shelf::new(1000);
    let mut world = keeping(&shelf, Script::stream_json);
    world.open(1);
    replay(&mut world, 1, 0);
    shelf.0.borrow_mut().fails = true;
    world.query(1, "quick", "");
    assert_eq!(seqs(&world, 1), [0, 1, 2, 3, 4]);
    let logged = |world: &World, word: &str| {
        let about =
            |action: &&BridgeAction| matches!(action, BridgeAction::Log { text, .. } if text.contains(word));
        world.actions.iter().filter(about).count()
    };
    assert_eq!(logged(&world, "events are not kept, and will be missing: no room"), 1);
    shelf.0.borrow_mut().fails = false;
    world.query(1, "quick", "");
    assert_eq!(logged(&world, "events are kept again"), 1);
    world.open(2);
    replay(&mut world, 2, 0);
    assert_eq!(world.events(2)[1], serde_json::json!({"ev": "gap", "from": 1, "to": 4}));
    assert_eq!(seqs(&world, 2), [5, 6, 7, 8, 8]);
}

/// A number that may be assigned twice is worse than none.
#[test]
fn where_numbers_cannot_be_reserved_nobody_hears_any() {
    let shelf = Shelf::new(1000);
    let mut world = keeping(&shelf, Script::stream_json);
    world.open(1);
    world.open(2);
    replay(&mut world, 2, 0);
    (shelf.0.borrow_mut().fails, shelf.0.borrow_mut().fails_whole) = (true, true);
    world.query(1, "wait", "");
    assert_eq!(world.closed, [ConnId(2)]);
    assert_eq!(seqs(&world, 2), [0]);
    assert_eq!(world.kinds(1), ["ready", "system", "assistant"], "the conversation goes on");
    world.open(3);
    replay(&mut world, 3, 0);
    assert!(world.last(3)["error"].as_str().unwrap().contains("cannot be kept now: no room"));
}

#[test]
fn rb_39_what_an_earlier_run_left_undone_ends_in_one_error_and_its_uuids_are_known() {
    let shelf = Shelf::new(1000);
    let mut world = keeping(&shelf, Script::stream_json);
    world.open(1);
    world.query(1, "wait", r#","id":"one""#);
    world.query(1, "wait", r#","id":"two""#);
    world.say(1, r#"{"cmd":"exec","command":"x","id":"three"}"#);
    world.open(2);
    world.say(2, r#"{"type":"user","message":{"content":"wait"},"uuid":"u1"}"#);
    world.open(3);
    replay(&mut world, 3, 0);
    drop(world);
    let mut world = keeping(&shelf, Script::stream_json);
    world.open(4);
    replay(&mut world, 4, 2);
    let ends = ["\"one\":error", "\"two\":error", "\"three\":error", "error"];
    assert_eq!(world.kinds(4)[1..5], ends);
    assert_eq!(world.events(4)[1]["error"], "the bridge ended before this command did");
    // A message that was received before is not accepted again.
    world.open(5);
    world.say(5, r#"{"type":"user","message":{"content":"quick"},"uuid":"u1"}"#);
    assert!(world.agent.is_none());
    world.say(5, r#"{"type":"user","message":{"content":"quick"},"uuid":"u2"}"#);
    assert!(world.agent.is_some());
    drop(world);
    let mut world = keeping(&shelf, Script::stream_json);
    world.open(6);
    replay(&mut world, 6, 6);
    let again = world.kinds(6).iter().filter(|kind| kind.contains("error")).count();
    assert_eq!(again, 0, "no command ends twice: {:?}", world.kinds(6));
}

#[test]
fn rb_39_what_was_told_in_the_second_dialect_is_an_echo_after_a_restart_too() {
    let shelf = Shelf::new(1000);
    let mut world = keeping(&shelf, Script::stream_json);
    world.open(1);
    let said = r#"!{"type":"assistant","uuid":"told-1"}"#;
    world.say(1, &serde_json::json!({"type": "user", "message": {"content": said}, "uuid": "u"}).to_string());
    assert!(shelf.0.borrow().told.contains(&"told-1".to_owned()));
    let mut world = keeping(&shelf, Script::stream_json);
    world.open(1);
    world.say(1, r#"{"type":"user","message":{"content":"quick"},"uuid":"told-1"}"#);
    assert!(world.agent.is_none());
    // The turn of an SDK connection is stored as events of the command dialect.
    world.open(2);
    replay(&mut world, 2, 0);
    let kinds = ["ready", "system", "assistant", "assistant", "result", "done", "\"r\":done"];
    assert_eq!(world.kinds(2), kinds);
}

#[test]
fn a_slow_connection_is_told_from_the_store_and_holds_up_nobody() {
    let shelf = Shelf::new(1000);
    let mut world = keeping(&shelf, Script::stream_json);
    world.open(1);
    world.open(2);
    replay(&mut world, 2, 0);
    world.query(1, "wait", "");
    world.slow.insert(ConnId(2), 0);
    let line = format!("{{\"type\":\"assistant\",\"x\":\"{}\"}}\n", "x".repeat(300 << 10));
    for _ in 0..40 {
        world.bridge.agent_output(line.as_bytes());
        world.act();
        assert!(world.bridge.wants_agent_output(), "it is not the one whose turn runs");
        assert!(world.bridge.held_bytes() < 2 << 20);
    }
    finish(&mut world);
    assert_eq!(world.last(1)["ev"], "done");
    // Now it reads, in small parts.
    while let Some(waiting) = world.slow.get(&ConnId(2)).copied().filter(|waiting| *waiting > 0) {
        world.read_slowly(ConnId(2), waiting.min(100 << 10));
        world.pass(Duration::ZERO);
    }
    let expected: Vec<u64> = std::iter::once(0).chain(1..=44).collect();
    assert_eq!(seqs(&world, 2), expected);
    assert_eq!(world.bridge.held_bytes(), 0);
}

/// As for any running turn: its output does not accumulate while its client does not read.
#[test]
fn a_turn_waits_for_its_own_connection_while_that_catches_up() {
    let shelf = Shelf::new(1000);
    let mut world = keeping(&shelf, Script::stream_json);
    world.open(1);
    world.query(1, "wait", "");
    let line = format!("{{\"type\":\"assistant\",\"x\":\"{}\"}}\n", "x".repeat(300 << 10));
    for _ in 0..20 {
        world.bridge.agent_output(line.as_bytes());
        world.act();
    }
    finish(&mut world);
    world.open(2);
    world.slow.insert(ConnId(2), 0);
    world.say(2, r#"{"cmd":"replay","after":0,"id":"r"}"#);
    world.query(2, "wait", r#","id":"q""#);
    assert!(!world.bridge.wants_agent_output());
    assert!(world.bridge.held_bytes() < 2 << 20);
    // A client that reads nothing for a minute is disconnected; its turn continues.
    world.pass(Duration::from_secs(60));
    assert_eq!(world.closed, [ConnId(2)]);
    assert!(world.bridge.wants_agent_output() && world.bridge.is_busy());
}

#[test]
fn a_connection_that_has_said_all_hears_all_that_is_kept_before_it_is_closed() {
    let shelf = Shelf::new(1000);
    let mut world = keeping(&shelf, Script::stream_json);
    world.open(1);
    world.query(1, "quick", "");
    world.open(2);
    world.bridge.conn_input(ConnId(2), b"{\"cmd\":\"replay\",\"after\":0}\n");
    world.bridge.conn_half_closed(ConnId(2));
    world.act();
    world.pass(Duration::ZERO);
    assert_eq!(seqs(&world, 2), [1, 2, 3, 4, 4]);
    assert_eq!(world.closed, [ConnId(2)]);
}

#[test]
fn a_shutdown_ends_what_is_kept_too() {
    let shelf = Shelf::new(1000);
    let mut world = keeping(&shelf, Script::stream_json);
    world.open(1);
    world.query(1, "wait", r#","id":1"#);
    world.query(1, "wait", r#","id":2"#);
    close(&mut world, 1);
    world.bridge.begin_termination();
    world.act();
    world.pass(Duration::from_secs(10));
    world.bridge.close_spool();
    assert!(world.shut && shelf.0.borrow().closed);
    assert!(shelf.left().unfinished.is_empty());
    let ends = |word: &str| {
        let kept = shelf.0.borrow();
        kept.history.values().filter(|line| String::from_utf8_lossy(line).contains(word)).count()
    };
    assert_eq!((ends(r#""ev":"done""#), ends(r#""ev":"error""#)), (1, 1));
}

#[test]
fn rb_28_a_question_reaches_whoever_comes_instead_and_its_end_is_kept() {
    let shelf = Shelf::new(1000);
    let mut world = keeping(&shelf, Script::stream_json);
    world.open(1);
    world.query(1, "wait", r#","id":"q""#);
    let ask = "{\"type\":\"control_request\",\"request_id\":\"p1\",\"request\":{\"subtype\":\
        \"can_use_tool\",\"tool_name\":\"Bash\",\"input\":{\"command\":\"ls\"}}}\n";
    world.bridge.agent_output(ask.as_bytes());
    world.act();
    assert_eq!(world.last(1)["data"]["request_id"], "p1");
    close(&mut world, 1);
    world.open(2);
    replay(&mut world, 2, 0);
    let asked = |world: &World, conn: u64| {
        let about = |event: &&Value| event["data"]["request_id"] == "p1";
        let kind = |event: &Value| event["data"]["type"].as_str().unwrap().to_owned();
        world.events(conn).iter().filter(about).map(kind).collect::<Vec<_>>()
    };
    assert_eq!(asked(&world, 2), ["control_request"]);
    world.open(3);
    replay(&mut world, 3, 0);
    let yes = r#"{"type":"control_response","response":{"subtype":"success","request_id":"p1","response":{"behavior":"allow"}}}"#;
    world.say(2, yes);
    assert_eq!(asked(&world, 3), ["control_request", "control_cancel_request"]);
    let told = &world.agent.as_ref().unwrap().told;
    assert_eq!(told.last().unwrap()["response"]["response"]["behavior"], "allow");
}

/// A filtering connection receives only the conversation, live and from the store.
#[test]
fn a_filter_holds_for_what_is_told_again() {
    let shelf = Shelf::new(1000);
    let mut world = keeping(&shelf, Script::stream_json);
    world.open(1);
    world.query(1, "quick", "");
    world.open(2);
    world.say(2, r#"{"cmd":"set","filter":true}"#);
    replay(&mut world, 2, 0);
    world.query(1, "quick", "");
    let kinds = world.kinds(2);
    assert_eq!(kinds[2..], ["assistant", "done", "\"r\":done", "assistant", "done"]);
    assert_eq!(seqs(&world, 2), [2, 4, 4, 6, 8]);
}

#[test]
fn nothing_leaves_before_it_is_kept() {
    let shelf = Shelf::new(1000);
    let mut bridge = Bridge::new(BridgeConfig::default(), Box::new(StreamJsonAdapter::new()));
    let mut store = shelf.clone();
    bridge.enable_spool(Box::new(shelf.clone()), shelf.left());
    bridge.conn_opened(ConnId(1));
    bridge.conn_input(ConnId(1), b"{\"cmd\":\"query\",\"prompt\":\"x\",\"sessionId\":\"s\"}\n");
    bridge.start_agent();
    while bridge.next_action().is_some() {}
    bridge.agent_started();
    while bridge.next_action().is_some() {}
    bridge.agent_output(b"{\"type\":\"assistant\"}\n{\"type\":\"assistant\"}\n");
    assert_eq!(shelf.0.borrow().history.len(), 0);
    assert!(matches!(bridge.next_action(), Some(BridgeAction::Send { .. })));
    assert_eq!(shelf.0.borrow().history.len(), 2);
    assert!(store.flush().is_ok());
}

#[test]
fn repeated_query_runs_once_and_is_told_by_replay() {
    let shelf = Shelf::new(1000);
    let mut world = keeping(&shelf, Script::stream_json);
    world.open(1);
    world.query(1, "wait", r#","id":"q","uuid":"u1""#);
    close(&mut world, 1);
    // Of a server that does not know whether its command arrived.
    world.open(2);
    replay(&mut world, 2, 0);
    world.query(2, "wait", r#","id":"q","uuid":"u1""#);
    finish(&mut world);
    let told = world.kinds(2);
    assert_eq!(told.iter().filter(|kind| *kind == "\"q\":done").count(), 1, "{told:?}");
    // Also when the turn is over, and in the next bridge of the session.
    world.query(2, "wait", r#","id":"q","uuid":"u1""#);
    assert_eq!(world.kinds(2), told);
    drop(world);
    let mut world = keeping(&shelf, Script::stream_json);
    world.open(1);
    world.query(1, "wait", r#","id":"q","uuid":"u1""#);
    assert_eq!(world.kinds(1), ["ready"]);
    world.query(1, "hi", r#","id":"r","uuid":"u2""#);
    assert_eq!(world.kinds(1).last().unwrap(), "\"r\":done");
}

#[test]
fn refused_query_may_be_repeated() {
    let shelf = Shelf::new(1000);
    let mut world = keeping(&shelf, Script::stream_json);
    world.open(1);
    world.bridge.set_paused(true);
    world.query(1, "hi", r#","id":"q","uuid":"u1""#);
    assert_eq!(world.kinds(1), ["ready", "\"q\":error"]);
    world.bridge.set_paused(false);
    world.query(1, "hi", r#","id":"q","uuid":"u1""#);
    assert_eq!(world.kinds(1).last().unwrap(), "\"q\":done");
    world.say(1, r#"{"cmd":"query","prompt":"x","sessionId":"s","uuid":7,"id":"n"}"#);
    assert!(world.kinds(1).last().unwrap().starts_with("\"n\":error"));
}
