//! Clients that do not read, lines that do not end, and the memory they occupy.

use super::*;

const MIB: usize = 1 << 20;

/// What stands for a MiB in [`small`].
const UNIT: usize = MIB / 16;

/// A bridge whose limits of a line and of all buffers are a sixteenth of the usual: those take minutes without optimisation.
fn small() -> World {
    let usual = BridgeConfig::default();
    let config =
        BridgeConfig { line_limit: usual.line_limit / 16, buffer_limit: usual.buffer_limit / 16, ..usual };
    World::with(config, Box::new(StreamJsonAdapter::new()), Script::stream_json)
}

fn line(size: usize) -> Vec<u8> {
    let mut line = format!("{{\"type\":\"assistant\",\"x\":\"{}\"}}", "x".repeat(size)).into_bytes();
    line.push(b'\n');
    line
}

/// A turn of connection 1, paused because its client does not read.
fn stalled() -> World {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    world.open(2);
    world.query(1, "wait", "");
    world.reading = false;
    world.bridge.agent_output(&line(2 * MIB));
    world.act();
    assert!(!world.bridge.wants_agent_output());
    world
}

#[test]
fn bp_29_a_full_reader_pauses_the_agent_until_it_has_read() {
    let mut world = stalled();
    assert!(!world.bridge.wants_agent_output());
    let backlog = 2 * MIB + 50;
    world.bridge.conn_written(ConnId(1), backlog - MIB);
    assert!(!world.bridge.wants_agent_output());
    world.bridge.conn_written(ConnId(1), MIB);
    world.act();
    assert_eq!(world.actions.last(), Some(&BridgeAction::ResumeAgent));
}

#[test]
fn bp_29_a_stalled_reader_is_dropped_after_a_minute_and_others_go_on() {
    let mut world = stalled();
    world.say(2, r#"{"cmd":"exec","command":"x"}"#);
    world.finish_exec(world.execs()[0], "still here");
    assert_eq!(world.last(2)["ev"], "done");
    world.query(2, "quick", "");
    world.pass(Duration::from_secs(59));
    assert!(world.closed.is_empty());
    world.pass(Duration::from_secs(1));
    assert_eq!(world.closed, [ConnId(1)]);
    assert!(world.actions.contains(&BridgeAction::ResumeAgent));
    assert_eq!(world.last(2)["ev"], "done");
}

#[test]
fn bp_29_a_slow_reader_is_not_a_stalled_one() {
    let mut world = stalled();
    for _ in 0..12 {
        world.pass(Duration::from_secs(50));
        world.bridge.conn_written(ConnId(1), 64 << 10);
    }
    assert!(world.closed.is_empty());
}

#[test]
fn bp_29_an_interrupt_drops_a_stalled_reader_soon() {
    let mut world = stalled();
    world.pass(Duration::from_secs(10));
    world.lively = false;
    world.say(2, r#"{"cmd":"interrupt"}"#);
    world.pass(Duration::from_millis(1));
    assert_eq!(world.closed, [ConnId(1)]);
    assert!(world.bridge.wants_agent_output());
}

#[test]
fn bp_29_log_events_do_not_pile_up() {
    let mut world = stalled();
    world.reading = true;
    world.say(1, r#"{"cmd":"set","log":true,"id":1}"#);
    world.reading = false;
    let held = world.bridge.held_bytes();
    for _ in 0..10_000 {
        world.bridge.agent_stderr(&[b"x".repeat(1000), b"\n".to_vec()].concat());
        world.act();
    }
    assert!(world.bridge.held_bytes() < held + 2 * MIB);
}

#[test]
fn bp_19_a_line_over_the_limit_costs_its_connection_only() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    world.open(2);
    let chunk = vec![b'x'; MIB];
    for _ in 0..64 {
        world.bridge.conn_input(ConnId(1), &chunk);
    }
    world.act();
    assert!(world.closed.is_empty());
    world.bridge.conn_input(ConnId(1), b"y");
    world.act();
    assert_eq!(world.closed, [ConnId(1)]);
    assert_eq!(world.last(1)["error"], "the line is longer than 67108864 bytes");
    assert_eq!(world.bridge.held_bytes(), 0);
    world.query(2, "quick", "");
    assert_eq!(world.last(2)["ev"], "done");
}

#[test]
fn bp_19_a_line_of_49_mib_passes_in_time_linear_in_its_length() {
    let line = |size: usize| {
        let mut world = World::new(Script::stream_json);
        world.lively = false;
        world.open(1);
        (world, format!("{{\"cmd\":\"exec\",\"command\":\"{}\"}}\n", "x".repeat(size)))
    };
    saggar_sys::testing::grows_linearly("a line", [7 * MIB, 49 * MIB], line, |(mut world, line)| {
        for chunk in line.as_bytes().chunks(4096) {
            world.bridge.conn_input(ConnId(1), chunk);
        }
        world.act();
        assert_eq!(world.execs().len(), 1);
    });
}

#[test]
fn decision_20_an_agent_line_over_the_limit_fails_the_turn_and_nothing_of_it_reaches_the_next() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    world.query(1, "wait", "");
    world.lively = false;
    let chunk = vec![b'x'; MIB];
    for _ in 0..65 {
        world.bridge.agent_output(&chunk);
    }
    world.act();
    assert_eq!(world.last(1)["error"], "a line of the agent is longer than 67108864 bytes");
    world.query(1, "quick", "");
    world.bridge.agent_output(b"xx\n{\"type\":\"assistant\",\"late\":true}\n");
    world.act();
    assert_eq!(world.last(1)["ev"], "error");
    world.lively = true;
    world.act();
    assert_eq!(world.kinds(1)[3..], ["error", "system", "assistant", "result", "done"]);
    assert!(world.events(1).iter().all(|event| event["data"]["late"].is_null()));
    assert_eq!(world.bridge.held_bytes(), 0);
}

#[test]
fn decision_20_all_buffers_together_hold_256_mib_at_most() {
    let mut world = World::new(Script::stream_json);
    let chunk = vec![b'x'; MIB];
    for conn in 0..8 {
        world.open(conn);
        for _ in 0..60 {
            world.bridge.conn_input(ConnId(conn), &chunk);
            assert!(world.bridge.held_bytes() <= 256 * MIB);
        }
        world.act();
    }
    // The first two fit next to the agent's share. Each later connection got an error and was closed.
    assert_eq!(world.closed.len(), 6);
    assert_eq!(world.last(7)["error"], "the bridge holds too many unfinished lines");
    for conn in 0..8 {
        world.bridge.conn_closed(ConnId(conn));
    }
    assert_eq!(world.bridge.held_bytes(), 0);
}

#[test]
fn decision_20_when_memory_is_short_the_reader_that_holds_it_goes() {
    let mut world = small();
    world.reading = false;
    let outcome = ExecOutcome { stdout: vec![b'x'; 60 * UNIT], ..ExecOutcome::default() };
    for conn in 0..6 {
        world.open(conn);
        world.say(conn, r#"{"cmd":"exec","command":"x"}"#);
        world.bridge.exec_finished(ExecId(conn), &outcome);
        // Sent output is not stored here; only its size matters.
        while let Some(action) = world.bridge.next_action() {
            if let BridgeAction::Close { conn, .. } = action {
                world.closed.push(conn);
            }
        }
        assert!(world.bridge.held_bytes() <= 256 * UNIT);
    }
    assert_eq!(world.closed.len(), 2, "{:?}", world.closed);
}

#[test]
fn decision_20_readers_that_do_not_read_cost_no_other_connection() {
    let mut world = small();
    world.reading = false;
    let outcome = ExecOutcome { stdout: vec![b'x'; 62 * UNIT], ..ExecOutcome::default() };
    for conn in 0..4 {
        world.open(conn);
        world.say(conn, r#"{"cmd":"exec","command":"x"}"#);
        world.bridge.exec_finished(ExecId(conn), &outcome);
        while world.bridge.next_action().is_some() {}
    }
    world.open(9);
    world.bridge.conn_input(ConnId(9), &vec![b' '; 20 * UNIT]);
    world.say(9, r#"{"cmd":"fly"}"#);
    assert_eq!(world.last(9)["error"], "unknown command \"fly\"");
    assert_eq!(world.closed.len(), 1);
    assert!(!world.closed.contains(&ConnId(9)));
}

#[test]
fn waiting_commands_count_too() {
    let mut world = small();
    world.open(1);
    world.query(1, "wait", "");
    let prompt = "x".repeat(50 * UNIT);
    for id in 0..3 {
        world.query(1, &prompt, &format!(r#","id":{id}"#));
    }
    assert_eq!(world.last(1)["error"], "the bridge holds too many waiting commands");
    assert_eq!(world.last(1)["id"], 2);
}
