//! Agents that exit and servers that disconnect.

use super::*;

#[test]
fn bp_27_a_death_in_the_turn_is_one_error_with_the_cause() {
    for (exit, text) in [
        (AgentExitStatus::Code(3), "the agent exited with code 3"),
        (AgentExitStatus::Signal(9), "the agent was killed by signal 9 (SIGKILL)"),
        (AgentExitStatus::OutOfMemory, "the agent was killed at its memory limit"),
        (
            AgentExitStatus::NotStarted("execve /opt/a/b: No such file".into()),
            "the agent could not be started: execve <path>: No such file",
        ),
    ] {
        let mut world = World::new(Script::stream_json);
        world.open(1);
        world.query(1, "wait", "");
        world.kill_agent(&exit);
        assert_eq!(world.kinds(1), ["ready", "system", "assistant", "error"]);
        assert_eq!(world.last(1)["error"], text);
        // The next query restarts the agent with its conversation.
        world.query(1, "quick", "");
        assert_eq!(world.last(1)["ev"], "done");
        assert!(world.starts[1].arguments.contains(&"--resume=agent-1".to_owned()));
    }
}

/// KC-23: a client that receives the event may look at the record at once.
#[test]
fn a_death_in_the_turn_is_on_record_before_it_is_told() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    world.query(1, "wait", "");
    world.bridge.agent_exited(&AgentExitStatus::Signal(9));
    let actions: Vec<BridgeAction> = std::iter::from_fn(|| world.bridge.next_action()).collect();
    let recorded = actions.iter().position(|action| *action == BridgeAction::RecordAgentFailure);
    let told = actions.iter().position(|action| matches!(action, BridgeAction::Send { .. }));
    assert!(recorded.is_some() && recorded < told, "{actions:?}");
}

#[test]
fn bp_27_a_relayed_agent_is_told_to_resume_after_its_death() {
    let mut world = World::relay(Script::relay);
    world.open(1);
    world.query(1, "quick", "");
    world.kill_agent(&AgentExitStatus::Signal(9));
    world.query(1, "quick", "");
    let told: Vec<_> = world.agent.as_ref().unwrap().told.iter().map(|line| line["cmd"].clone()).collect();
    assert_eq!(told, ["resume", "query"]);
    assert_eq!(world.kinds(1), ["ready", "assistant", "done", "assistant", "done"]);
}

#[test]
fn bp_27_the_last_words_of_a_dying_agent_come_before_the_error() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    world.query(1, "wait", "");
    world.bridge.agent_output(br#"{"type":"assistant","last":true}"#);
    world.kill_agent(&AgentExitStatus::Code(1));
    assert_eq!(world.kinds(1)[3..], ["assistant", "error"]);
    assert_eq!(world.bridge.held_bytes(), 0);
}

#[test]
fn bp_27_an_agent_that_never_comes_up_is_an_error_too() {
    let mut world = World::relay(Script::stream_json);
    world.open(1);
    world.query(1, "quick", "");
    world.pass(Duration::from_secs(30));
    assert_eq!(world.last(1)["error"], "the agent did not come up within 30 s");
    assert!(world.agent.is_none());
}

#[test]
fn an_interrupted_agent_that_dies_of_it_ends_the_turn_in_done() {
    let mut world = World::new(Script::stubborn);
    world.open(1);
    world.query(1, "wait", "");
    world.say(1, r#"{"cmd":"interrupt"}"#);
    world.kill_agent(&AgentExitStatus::Signal(2));
    assert_eq!(world.last(1)["ev"], "done");
}

#[test]
fn bp_30_a_server_that_goes_takes_its_turn_its_queue_and_its_execs_along() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    world.open(2);
    world.query(1, "wait", "");
    world.query(1, "wait", "");
    world.say(1, r#"{"cmd":"exec","command":"x","id":1}"#);
    world.query(2, "quick", "");
    world.bridge.conn_closed(ConnId(1));
    world.act();
    assert!(world.actions.contains(&BridgeAction::KillExec { exec: world.execs()[0] }));
    assert_eq!(world.kinds(2), ["ready", "system", "assistant", "result", "done"]);
    assert!(!world.agent.as_ref().unwrap().working);
    world.finish_exec(world.execs()[0], "");
    assert!(!world.bridge.is_busy());
    assert_eq!(world.bridge.held_bytes(), 0);
}

#[test]
fn bp_30_a_detached_turn_goes_on_and_its_events_are_unclaimed() {
    let config = BridgeConfig { disconnect: DisconnectPolicy::Detach, ..BridgeConfig::default() };
    let mut world = World::with(config, Box::new(StreamJsonAdapter::new()), Script::stream_json);
    world.open(1);
    world.query(1, "wait", "");
    world.bridge.conn_closed(ConnId(1));
    world.act();
    world.agent.as_mut().unwrap().finish("success");
    world.act();
    assert!(!world.bridge.is_busy());
}

#[test]
fn a_server_that_has_said_all_is_answered_and_then_closed() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    world.query(1, "wait", "");
    world.bridge.conn_half_closed(ConnId(1));
    world.act();
    assert!(world.closed.is_empty());
    world.agent.as_mut().unwrap().finish("success");
    world.act();
    assert_eq!(world.last(1)["ev"], "done");
    assert_eq!(world.closed, [ConnId(1)]);
}

#[test]
fn bp_26_a_late_answer_to_a_resume_does_not_end_the_turn_after_it() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    world.lively = false;
    world.say(1, r#"{"cmd":"resume","sessionId":"s"}"#);
    world.query(1, "wait", "");
    world.pass(Duration::from_secs(10));
    assert_eq!(world.kinds(1), ["ready", "done"]);
    world.lively = true;
    world.act();
    assert_eq!(world.kinds(1), ["ready", "done", "system", "assistant"]);
}

fn commands(world: &World) -> Vec<String> {
    let told = &world.agent.as_ref().unwrap().told;
    told.iter().map(|line| line["cmd"].as_str().unwrap_or_default().to_owned()).collect()
}

/// DECISIONS 16: the conversation begins when the agent receives its first query, not when the query ends.
#[test]
fn bp_27_an_agent_that_died_in_its_first_turn_is_told_to_resume() {
    for first in ["wait", "fail"] {
        let mut world = World::relay(Script::relay);
        world.open(1);
        world.query(1, first, "");
        world.kill_agent(&AgentExitStatus::Signal(9));
        world.query(1, "quick", "");
        assert_eq!(commands(&world), ["resume", "query"], "{first}");
        assert_eq!(world.last(1)["ev"], "done");
    }
}

/// A query that reaches an exiting agent is sent to the next one, without any event.
#[test]
fn a_query_that_an_agent_left_unread_is_answered_by_the_next() {
    for resumed in [true, false] {
        for earlier in [false, true] {
            let mut world =
                if resumed { World::relay(Script::relay) } else { World::new(Script::stream_json) };
            world.open(1);
            world.bridge.start_agent();
            world.act();
            if earlier {
                world.query(1, "quick", "");
            }
            world.deaf = true;
            world.query(1, "quick again", r#","id":7"#);
            world.kill_agent(&AgentExitStatus::Code(0));
            let kinds = world.kinds(1);
            assert!(!kinds.iter().any(|kind| kind.contains("error")), "{kinds:?}");
            assert_eq!(kinds.iter().filter(|kind| *kind == "7:done").count(), 1, "{kinds:?}");
            assert_eq!(world.starts.len(), 2);
            if resumed {
                // Input that the agent did not read started no conversation.
                let expected: &[&str] = if earlier { &["resume", "query"] } else { &["query"] };
                assert_eq!(commands(&world), expected);
            }
            assert_eq!(world.bridge.held_bytes(), 0);
        }
    }
}

#[test]
fn an_agent_that_never_reads_is_started_twice_and_not_for_ever() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    world.deaf = true;
    world.query(1, "quick", "");
    world.deaf = true;
    world.bridge.agent_left_unread_input();
    world.agent = None;
    world.bridge.agent_exited(&AgentExitStatus::Code(4));
    world.act();
    assert_eq!(world.kinds(1), ["ready"], "the second is at it");
    world.kill_agent(&AgentExitStatus::Code(4));
    assert_eq!(world.last(1)["error"], "the agent exited with code 4");
    assert_eq!(world.starts.len(), 2);
    assert_eq!(world.bridge.held_bytes(), 0);
}

/// A repeated query could do its work twice. Only a query that was surely not read is sent again.
#[test]
fn a_query_that_was_read_or_answered_or_is_very_long_is_not_told_again() {
    for case in ["read", "answered", "long"] {
        let mut world = World::new(Script::stream_json);
        world.open(1);
        let prompt = if case == "long" { "x".repeat(2 << 20) } else { "wait".to_owned() };
        world.deaf = case == "long";
        world.lively = case == "answered";
        world.query(1, &prompt, "");
        if case == "answered" {
            world.deaf = true;
        }
        world.kill_agent(&AgentExitStatus::Code(4));
        assert_eq!(world.last(1)["error"], "the agent exited with code 4", "{case}");
        assert_eq!(world.starts.len(), 1, "{case}");
        assert_eq!(world.bridge.held_bytes(), 0, "{case}");
    }
}
