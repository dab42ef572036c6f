//! The end of an agent that runs no turn, and its start with the conversation.

use super::*;

const LIMIT: Duration = Duration::from_secs(60);
const MOMENT: Duration = Duration::from_millis(1);

fn limited(adapter: Box<dyn Adapter>, make: fn() -> Script) -> World {
    let config = BridgeConfig { agent_idle: Some(LIMIT), ..BridgeConfig::default() };
    let mut world = World::with(config, adapter, make);
    world.open(1);
    world
}

fn stream_json() -> World {
    limited(Box::new(StreamJsonAdapter::new()), Script::stream_json)
}

fn stops(world: &World) -> Vec<AgentStop> {
    let stop = |action: &BridgeAction| match action {
        BridgeAction::StopAgent(stop) => Some(*stop),
        _ => None,
    };
    world.actions.iter().filter_map(stop).collect()
}

fn is_resumed(start: &AgentStart) -> bool {
    start.arguments.iter().any(|word| word == "--resume=agent-1")
}

#[test]
fn idle_agent_is_ended_after_the_limit_and_started_with_its_conversation() {
    let mut world = stream_json();
    world.say(1, r#"{"cmd":"set","log":true}"#);
    world.query(1, "quick", "");
    let before = world.kinds(1).len();
    world.pass(LIMIT - MOMENT);
    assert!(world.agent.is_some());
    world.pass(MOMENT);
    assert!(world.agent.is_none());
    assert_eq!(stops(&world), [AgentStop::CloseInput]);
    // One line of the log, and no event else.
    assert_eq!(world.kinds(1)[before..], ["log"]);
    assert!(world.bridge.has_ended_idle_agent() && world.bridge.next_deadline().is_none());
    world.query(1, "quick", "");
    assert_eq!(world.kinds(1)[before + 1..], ["system", "assistant", "result", "done"]);
    assert!(!world.bridge.has_ended_idle_agent());
    assert_eq!(world.starts.iter().map(is_resumed).collect::<Vec<_>>(), [false, true]);
    assert!(!world.actions.contains(&BridgeAction::RecordAgentFailure));
}

#[test]
fn without_a_limit_no_agent_is_ended() {
    let mut world = World::new(Script::stream_json);
    world.open(1);
    world.query(1, "quick", "");
    assert_eq!(world.bridge.next_deadline(), None);
    world.pass(LIMIT * 1000);
    assert!(world.agent.is_some());
}

#[test]
fn turn_question_and_turn_of_the_agents_own_suspend_the_count() {
    let mut world = stream_json();
    world.query(1, "wait", "");
    world.pass(LIMIT * 2);
    world.agent.as_mut().unwrap().finish("success");
    world.act();
    world.pass(LIMIT - MOMENT);
    // A background task of the agent reports, asks, and ends.
    let agent = world.agent.as_mut().unwrap();
    agent.say(r#"{"type":"assistant","session_id":"agent-1"}"#);
    world.act();
    world.pass(LIMIT * 2);
    let agent = world.agent.as_mut().unwrap();
    agent.say(&questions::ask("q"));
    agent.say(r#"{"type":"result","subtype":"success"}"#);
    world.act();
    assert_eq!(world.bridge.pending_permissions().count(), 1);
    world.pass(LIMIT * 2);
    assert!(stops(&world).is_empty());
    let id = world.bridge.pending_permissions().next().unwrap().id.clone();
    world.bridge.respond_to_permission(&id, r#"{"behavior":"allow"}"#).unwrap();
    world.act();
    world.pass(LIMIT - MOMENT);
    assert!(world.agent.is_some());
    world.pass(MOMENT);
    assert!(world.agent.is_none());
}

#[test]
fn frozen_or_held_agent_is_not_ended() {
    let mut world = stream_json();
    world.query(1, "quick", "");
    for hold in [Bridge::set_paused, Bridge::hold_agent] {
        hold(&mut world.bridge, true);
        world.pass(LIMIT * 2);
        assert!(world.agent.is_some());
        hold(&mut world.bridge, false);
        world.pass(LIMIT - MOMENT);
        assert!(world.agent.is_some());
    }
    world.pass(MOMENT);
    assert!(world.agent.is_none());
}

#[test]
fn agent_whose_conversation_would_be_lost_is_not_ended() {
    // An agent that has sent no id of its session.
    let mut world = limited(Box::new(StreamJsonAdapter::new()), Script::stream_json);
    world.lively = false;
    world.query(1, "wait", "");
    world.agent.as_mut().unwrap().speak();
    world.bridge.agent_output(b"{\"type\":\"result\"}\n");
    world.act();
    assert_eq!(world.last(1)["ev"], "done");
    world.pass(LIMIT * 2);
    assert!(world.agent.is_some());
    // An agent of the bridge's protocol, which may have it in memory alone.
    let mut world = limited(Box::new(NativeAdapter::demo()), Script::relay);
    world.query(1, "quick", "");
    world.pass(LIMIT * 2);
    assert!(world.agent.is_some() && stops(&world).is_empty());
    // A program that is started once.
    let once = crate::adapter::SingleStartAdapter::new(Box::new(StreamJsonAdapter::new()));
    let mut world = limited(Box::new(once), Script::stream_json);
    world.query(1, "quick", "");
    world.pass(LIMIT * 2);
    assert!(world.agent.is_some());
}

#[test]
fn agent_that_has_run_no_turn_is_ended_and_started_anew() {
    for (adapter, make) in [
        (Box::new(StreamJsonAdapter::new()) as Box<dyn Adapter>, Script::stream_json as fn() -> Script),
        (Box::new(NativeAdapter::bridge()), Script::relay),
    ] {
        let mut world = limited(adapter, make);
        world.bridge.start_agent();
        world.act();
        world.pass(LIMIT);
        assert!(world.agent.is_none());
        world.query(1, "quick", "");
        assert_eq!(world.last(1)["ev"], "done");
        assert_eq!(world.starts.iter().filter(|start| is_resumed(start)).count(), 0);
    }
}

#[test]
fn native_agent_that_stores_its_conversation_is_told_to_resume_it() {
    let mut world = limited(Box::new(NativeAdapter::built_in_demo()), Script::relay);
    world.query(1, "quick", "");
    world.pass(LIMIT);
    assert!(world.agent.is_none());
    world.query(1, "quick", "");
    let told: Vec<&str> =
        world.agent.as_ref().unwrap().told.iter().map(|line| line["cmd"].as_str().unwrap()).collect();
    assert_eq!(told, ["resume", "query"]);
    assert_eq!(world.last(1)["ev"], "done");
}

#[test]
fn turn_that_arrives_while_the_agent_is_being_ended_waits_for_its_exit() {
    for exit in [AgentExitStatus::Code(0), AgentExitStatus::Signal(15), AgentExitStatus::Code(1)] {
        let mut world = limited(Box::new(StreamJsonAdapter::new()), Script::stubborn);
        world.open(2);
        world.query(1, "quick", "");
        world.pass(LIMIT);
        world.query(1, "quick", r#","id":1"#);
        world.query(2, "quick", r#","id":2"#);
        world.say(2, r#"{"cmd":"exec","command":"a","id":3}"#);
        assert_eq!((world.starts.len(), world.execs().len()), (1, 1));
        // The old process says a last word, which belongs to no turn.
        world.agent.as_mut().unwrap().say(r#"{"type":"assistant","session_id":"agent-1"}"#);
        world.act();
        assert!(world.bridge.has_ended_idle_agent());
        world.kill_agent(&exit);
        world.finish_exec(world.execs()[0], "");
        assert_eq!(world.kinds(1)[5..], ["1:system", "1:assistant", "1:result", "1:done"]);
        assert_eq!(
            world.kinds(2),
            ["ready", "2:system", "2:assistant", "2:result", "2:done", "3:exec_result", "3:done"]
        );
        assert!(world.starts.len() == 2 && is_resumed(&world.starts[1]));
        assert!(!world.actions.contains(&BridgeAction::RecordAgentFailure));
    }
}

#[test]
fn turn_that_is_interrupted_or_whose_server_leaves_while_the_agent_is_being_ended_is_over() {
    let mut world = limited(Box::new(StreamJsonAdapter::new()), Script::stubborn);
    world.query(1, "quick", "");
    world.pass(LIMIT);
    world.query(1, "quick", "");
    world.say(1, r#"{"cmd":"interrupt"}"#);
    assert_eq!(world.kinds(1)[5..], ["done"]);
    world.query(1, "quick", "");
    world.bridge.conn_closed(ConnId(1));
    world.act();
    world.kill_agent(&AgentExitStatus::Signal(9));
    assert_eq!((world.starts.len(), world.bridge.is_busy()), (1, false));
    world.open(2);
    world.query(2, "quick", "");
    assert_eq!(world.last(2)["ev"], "done");
    assert_eq!(world.bridge.held_bytes(), 0);
}

#[test]
fn stubborn_agent_is_ended_by_ever_stronger_methods() {
    let mut world = limited(Box::new(StreamJsonAdapter::new()), Script::stubborn);
    world.query(1, "quick", "");
    world.pass(LIMIT * 2);
    assert!(world.agent.is_none());
    assert_eq!(stops(&world), [AgentStop::CloseInput, AgentStop::Terminate, AgentStop::Kill]);
    assert!(world.bridge.has_ended_idle_agent());
    // After its end nothing is to be done any more.
    assert_eq!(world.bridge.next_deadline(), None);
}

#[test]
fn shutdown_while_the_agent_is_ended_or_being_ended_is_as_usual() {
    for make in [Script::stream_json as fn() -> Script, Script::stubborn] {
        let mut world = limited(Box::new(StreamJsonAdapter::new()), make);
        world.query(1, "quick", "");
        world.pass(LIMIT);
        world.say(1, r#"{"cmd":"shutdown","id":1}"#);
        world.pass(Duration::from_millis(4100));
        assert!(world.shut && world.agent.is_none());
        assert_eq!(world.kinds(1)[5..], ["1:done"]);
    }
}

#[test]
fn resume_and_late_answers_do_not_notice_that_the_agent_was_ended() {
    let mut world = stream_json();
    world.query(1, "quick", "");
    world.pass(LIMIT);
    world.say(1, &questions::respond("q", r#"{"behavior":"allow"}"#));
    world.say(1, r#"{"cmd":"resume","sessionId":"s"}"#);
    assert!(world.starts.len() == 2 && is_resumed(&world.starts[1]));
    assert!(world.kinds(1).iter().all(|kind| !kind.contains("error")), "{:?}", world.events(1));
    assert_eq!(world.last(1)["ev"], "done");
    // The count begins again.
    world.pass(LIMIT);
    assert!(world.agent.is_none());
}

#[test]
fn settings_of_earlier_turns_hold_after_the_end_of_an_idle_agent() {
    let mut world = stream_json();
    world.query(1, "quick", r#","model":"m","permissionMode":"plan""#);
    for _ in 0..2 {
        world.pass(LIMIT);
        world.say(1, r#"{"cmd":"resume","sessionId":"s"}"#);
        world.pass(LIMIT);
        world.query(1, "quick", "");
        let told = &world.agent.as_ref().unwrap().told;
        let requests: Vec<&Value> = told.iter().map(|line| &line["request"]).collect();
        assert_eq!((&requests[0]["model"], &requests[1]["mode"]), (&"m".into(), &"plan".into()));
        assert_eq!((told.len(), &told[2]["type"]), (3, &"user".into()));
    }
    // Restarted for other options, as after an exit of its own, it has its defaults.
    world.query(1, "quick", r#","maxTurns":2"#);
    assert_eq!(world.agent.as_ref().unwrap().told.len(), 1);
}

#[test]
fn changed_limit_counts_from_the_same_time() {
    let mut world = stream_json();
    world.query(1, "quick", "");
    world.pass(LIMIT / 2);
    world.bridge.set_agent_idle_limit(None);
    world.pass(LIMIT);
    assert!(world.agent.is_some());
    world.bridge.set_agent_idle_limit(Some(LIMIT));
    world.pass(MOMENT);
    assert!(world.agent.is_none());
}
