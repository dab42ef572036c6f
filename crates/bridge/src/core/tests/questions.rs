//! Questions of the agent: recipients, responses and audit records.

use super::*;
use crate::proto::permission::{DecidedBy, PermissionDecision};
use saggar_policy::{PermissionPolicy, PolicyLayer, Setting};
use serde_json::json;

pub(super) fn ask(id: &str) -> String {
    format!(
        r#"{{"request_id":"{id}","type":"control_request","request":{{"subtype":"can_use_tool","tool_name":"Bash","input":{{"command":"ls","n":2.50}},"tool_use_id":"t"}}}}"#
    )
}

pub(super) fn respond(id: &str, inner: &str) -> String {
    format!(
        r#"{{"type":"control_response","response":{{"subtype":"success","request_id":"{id}","response":{inner}}}}}"#
    )
}

const ALLOW: &str = r#"{"behavior":"allow","updatedInput":{"n":2.50,"a":1e3}}"#;
const DENY: &str = r#"{"behavior":"deny","message":"no"}"#;

/// A world with a running turn of connection 1, in this dialect.
pub(super) fn turn(second: bool) -> World {
    with(second, PermissionPolicy::built_in())
}

fn with(second: bool, permissions: PermissionPolicy) -> World {
    let config = BridgeConfig { session_name: "s".into(), permissions, ..BridgeConfig::default() };
    let mut world = World::with(config, Box::new(StreamJsonAdapter::new()), Script::stream_json);
    world.open(1);
    match second {
        true => world.say(1, r#"{"type":"user","message":{"content":"wait"}}"#),
        false => world.query(1, "wait", ""),
    }
    world
}

impl World {
    pub(super) fn agent_says(&mut self, line: &str) {
        self.agent.as_mut().unwrap().say(line);
        self.act();
    }

    /// Responses that the agent received: the id and the content.
    pub(super) fn answers(&self) -> Vec<(String, String)> {
        let told = self.agent.iter().flat_map(|agent| &agent.told);
        let answer = |line: &Value| {
            let response = &line["response"];
            let said = response["response"]["behavior"].as_str().unwrap_or("error");
            (response["request_id"].as_str().unwrap().to_owned(), said.to_owned())
        };
        told.filter(|line| line["type"] == "control_response").map(answer).collect()
    }

    fn audits(&self) -> Vec<(PermissionDecision, DecidedBy)> {
        let audit = |action: &BridgeAction| match action {
            BridgeAction::Audit(audit) => Some((audit.decision, audit.by.clone())),
            _ => None,
        };
        self.actions.iter().filter_map(audit).collect()
    }

    /// The bridge's id of the only open question.
    fn open_id(&self) -> String {
        let ids: Vec<&str> = self.bridge.pending_permissions().map(|pending| pending.id.as_str()).collect();
        let [id] = ids[..] else { panic!("{ids:?}") };
        id.to_owned()
    }
}

fn given(id: &str, said: &str) -> (String, String) {
    (id.to_owned(), said.to_owned())
}

#[test]
fn decision_19_the_first_dialect_has_the_agents_own_line_and_id() {
    let mut world = turn(false);
    world.agent_says(&ask("a1"));
    let bytes = String::from_utf8(world.heard[&ConnId(1)].clone()).unwrap();
    let line = bytes.lines().last().unwrap();
    assert_eq!(line, format!("{{\"ev\":\"message\",\"data\":{}}}", ask("a1")), "RB-28");
    let id = world.open_id();
    assert_ne!(id, "a1");
    world.say(1, &respond(&id, ALLOW));
    assert_eq!(world.answers(), [], "the bridge's name is not for this dialect");
    world.say(1, &respond("a1", ALLOW));
    assert_eq!(world.answers(), [given("a1", "allow")]);
    assert_eq!(world.audits(), [(PermissionDecision::Allow, DecidedBy::Server)]);
    world.say(1, &respond("a1", ALLOW));
    world.say(1, &respond("a1", DENY));
    assert_eq!(world.answers().len(), 1, "RB-31");
    assert_eq!(world.kinds(1).last().unwrap(), "control_request", "nothing more is said");
}

#[test]
fn decision_19_the_second_dialect_has_a_fresh_id_and_rb_30_bodies_pass_intact() {
    let mut world = turn(true);
    world.agent_says(&ask("a1"));
    let asked = world.last(1);
    let id = world.open_id();
    assert_eq!(asked["request_id"], id.as_str());
    assert_eq!(asked["request"]["input"]["command"], "ls");
    world.say(1, &respond("a1", ALLOW));
    assert_eq!(world.answers(), [], "the agent's name is not for this dialect");
    world.actions.clear();
    // RB-16: both spellings are accepted.
    world.say(1, &respond(&id, ALLOW).replace("request_id", "requestId"));
    assert_eq!(world.answers(), [given("a1", "allow")]);
    let input = world.actions.iter().find_map(|action| match action {
        BridgeAction::AgentInput(bytes) => Some(String::from_utf8(bytes.clone()).unwrap()),
        _ => None,
    });
    assert!(input.unwrap().contains(ALLOW), "byte for byte");
    assert!(world.actions.iter().any(|action| *action == BridgeAction::PermissionClosed(id.clone())));
    world.say(1, &respond(&id, DENY));
    assert_eq!(world.answers().len(), 1);
}

#[test]
fn the_record_comes_before_the_answer() {
    let mut world = turn(false);
    world.agent_says(&ask("a1"));
    world.actions.clear();
    world.say(1, &respond("a1", ALLOW));
    let kinds: Vec<bool> = world
        .actions
        .iter()
        .filter(|action| matches!(action, BridgeAction::Audit(_) | BridgeAction::AgentInput(_)))
        .map(|action| matches!(action, BridgeAction::Audit(_)))
        .collect();
    assert_eq!(kinds, [true, false]);
}

#[test]
fn rb_29_answers_come_in_any_order_and_a_malformed_one_is_never_yes() {
    for second in [false, true] {
        let mut world = turn(second);
        for number in 0..100 {
            world.agent_says(&ask(&format!("a{number}")));
        }
        let ids: Vec<(String, String)> = world
            .bridge
            .pending_permissions()
            .map(|pending| (pending.id.clone(), pending.question.agent_request_id.clone()))
            .collect();
        for (at, (id, agent_id)) in ids.iter().enumerate().rev() {
            let name = if second { id } else { agent_id };
            world.say(1, &respond(name, if at % 2 == 0 { ALLOW } else { DENY }));
        }
        let expected: Vec<_> = (0..100)
            .rev()
            .map(|at| given(&format!("a{at}"), if at % 2 == 0 { "allow" } else { "deny" }))
            .collect();
        assert_eq!(world.answers(), expected);
        assert_eq!(world.bridge.pending_permissions().count(), 0);
    }
    for bad in [r#"{"behavior":"maybe"}"#, "{}", "null", r#"{"behavior":null}"#] {
        let mut world = turn(false);
        world.agent_says(&ask("a"));
        world.say(1, &respond("a", bad));
        assert_eq!(world.last(1)["ev"], "error", "the first dialect is told, and may do better");
        assert_eq!(world.answers(), []);
        let mut world = turn(true);
        world.agent_says(&ask("a"));
        world.say(1, &respond(&world.open_id(), bad));
        assert_eq!(world.answers(), [given("a", "deny")]);
        assert_eq!(world.audits(), [(PermissionDecision::Deny, DecidedBy::Bridge)]);
    }
}

#[test]
fn rb_30_an_error_of_the_server_reaches_the_agent() {
    let mut world = turn(true);
    world.agent_says(&ask("a"));
    let id = world.open_id();
    world.say(
        1,
        &format!(r#"{{"type":"control_response","response":{{"subtype":"error","request_id":"{id}","error":"host"}}}}"#),
    );
    assert_eq!(world.answers(), [given("a", "error")]);
    assert_eq!(world.audits(), [(PermissionDecision::Deny, DecidedBy::Server)]);
}

#[test]
fn rb_32_the_agent_and_the_server_can_take_a_question_back() {
    let back = r#"{"request_id":"a","type":"control_cancel_request"}"#;
    let mut world = turn(false);
    world.agent_says(&ask("a"));
    world.agent_says(back);
    assert_eq!(world.last(1)["data"], serde_json::from_str::<Value>(back).unwrap());
    world.say(1, &respond("a", ALLOW));
    assert_eq!(
        (world.answers(), world.audits()),
        (vec![], vec![(PermissionDecision::Cancel, DecidedBy::Agent)])
    );

    let mut world = turn(true);
    world.agent_says(&ask("a"));
    let id = world.open_id();
    world.agent_says(back);
    assert_eq!(world.last(1), json!({"type": "control_cancel_request", "request_id": id, "session_id": "s"}));
    world.say(1, &respond(&id, ALLOW));
    assert_eq!(world.answers(), []);

    for second in [false, true] {
        let mut world = turn(second);
        world.agent_says(&ask("a"));
        let name = if second { world.open_id() } else { "a".into() };
        world.say(1, &json!({"type": "control_cancel_request", "request_id": name}).to_string());
        assert_eq!(world.answers(), [given("a", "deny")]);
        world.say(1, &respond(&name, ALLOW));
        assert_eq!(world.answers().len(), 1);
    }
}

#[test]
fn rb_33_an_interrupt_denies_what_is_open_and_everybody_hears_of_it() {
    let mut world = turn(false);
    world.agent_says(&ask("a"));
    world.say(1, r#"{"cmd":"interrupt"}"#);
    assert_eq!(world.answers(), [given("a", "deny")]);
    assert_eq!(world.audits(), [(PermissionDecision::Deny, DecidedBy::Interrupt)]);
    let kinds = world.kinds(1);
    // This agent sends no cancellation, so the bridge sends one before the turn is done.
    let from = kinds.iter().position(|kind| kind == "control_request").unwrap();
    assert_eq!(kinds[from..], ["control_request", "result", "control_cancel_request", "done"]);

    // The cancellation of an agent that sends one is forwarded once, unchanged.
    let mut world = turn(false);
    world.lively = false;
    world.agent_says(&ask("a"));
    let said = world.agent.as_mut().unwrap().speak();
    world.bridge.agent_output(&said);
    world.act();
    world.say(1, r#"{"cmd":"interrupt"}"#);
    world.bridge.agent_output(b"{\"request_id\":\"a\",\"type\":\"control_cancel_request\"}\n");
    world.act();
    assert_eq!(world.kinds(1).last().unwrap(), "control_cancel_request");
    world.lively = true;
    world.act();
    let kinds = world.kinds(1);
    assert_eq!(kinds.iter().filter(|kind| *kind == "control_cancel_request").count(), 1, "{kinds:?}");

    let mut world = turn(true);
    world.agent_says(&ask("a"));
    let id = world.open_id();
    world.say(1, r#"{"type":"control_request","request_id":"r","request":{"subtype":"interrupt"}}"#);
    let events = world.events(1);
    let cancel = json!({"type": "control_cancel_request", "request_id": id, "session_id": "s"});
    assert_eq!(events.iter().filter(|event| **event == cancel).count(), 1);
    assert_eq!(world.answers(), [given("a", "deny")]);
}

#[test]
fn rb_33_the_end_of_the_agent_and_of_the_bridge_close_what_is_open() {
    for second in [false, true] {
        let mut world = turn(second);
        world.agent_says(&ask("a"));
        world.kill_agent(&AgentExitStatus::Signal(9));
        assert_eq!(world.audits(), [(PermissionDecision::Deny, DecidedBy::Exit)]);
        let events = world.events(1);
        let is_cancel = |event: &Value| {
            event["data"]["type"] == "control_cancel_request" || event["type"] == "control_cancel_request"
        };
        assert!(is_cancel(&events[events.len() - 2]), "before the error: {events:?}");
        assert_eq!(world.bridge.pending_permissions().count(), 0);

        let mut world = turn(second);
        world.agent_says(&ask("a"));
        world.bridge.begin_termination();
        world.act();
        assert_eq!(world.audits(), [(PermissionDecision::Deny, DecidedBy::Shutdown)]);
        assert!(world.events(1).iter().any(is_cancel) && world.shut);
        assert_eq!(world.bridge.held_bytes(), 0);
    }
}

#[test]
fn rb_34_what_nobody_answers_is_denied_in_time() {
    for second in [false, true] {
        let mut world = turn(second);
        world.agent_says(&ask("a"));
        world.pass(Duration::from_secs(599));
        assert_eq!(world.answers(), []);
        let name = if second { world.open_id() } else { "a".into() };
        world.pass(Duration::from_secs(1));
        assert_eq!(world.answers(), [given("a", "deny")]);
        let told = world.agent.as_ref().unwrap().told.last().unwrap();
        assert_eq!(told["response"]["response"]["message"], "no answer within 10m");
        world.say(1, &respond(&name, ALLOW));
        assert_eq!(
            (world.answers().len(), world.audits()),
            (1, vec![(PermissionDecision::Deny, DecidedBy::Timeout)])
        );
        let last = world.last(1);
        let last = if second { &last } else { &last["data"] };
        assert_eq!((&last["type"], &last["request_id"]), (&json!("control_cancel_request"), &json!(name)));
    }
}

#[test]
fn rb_35_the_same_name_in_two_bridges_or_in_two_processes_is_another_question() {
    let (mut one, mut two) = (turn(true), turn(true));
    one.agent_says(&ask("a"));
    two.agent_says(&ask("a"));
    two.say(1, &respond(&one.open_id(), ALLOW));
    assert_eq!(two.answers(), []);
    // A late response for the exited agent does not answer a question of the next one.
    let mut world = turn(false);
    world.agent_says(&ask("a"));
    world.kill_agent(&AgentExitStatus::Signal(9));
    world.query(1, "wait", "");
    world.agent_says(&ask("a"));
    assert_eq!(world.answers(), [given("a", "deny")]);
    world.say(1, &respond("a", ALLOW));
    assert_eq!(world.answers().len(), 1);
}

#[test]
fn decision_19_without_a_turn_the_newest_of_the_first_dialect_is_asked_then_the_next_then_nobody() {
    let mut world = turn(true);
    world.agent.as_mut().unwrap().finish("success");
    world.open(2);
    world.open(3);
    world.open(4);
    world.say(4, r#"{"type":"user","message":{"content":"quick"}}"#);
    world.agent_says(&ask("a"));
    assert_eq!(world.kinds(3), ["ready", "control_request"]);
    assert_eq!(world.kinds(2), ["ready"]);
    world.bridge.conn_closed(ConnId(3));
    world.act();
    assert_eq!(world.kinds(2), ["ready", "control_request"]);
    world.bridge.conn_closed(ConnId(2));
    world.act();
    assert_eq!(world.bridge.pending_permissions().count(), 1, "it waits for whoever looks at the table");
    // The first valid response wins, from any client.
    let id = world.open_id();
    assert_eq!(
        world.bridge.respond_to_permission(&id, "{}"),
        Err(PermissionResponseError::Malformed("behavior is neither allow nor deny"))
    );
    assert_eq!(world.bridge.respond_to_permission("a", ALLOW), Err(PermissionResponseError::UnknownQuestion));
    assert_eq!(world.bridge.respond_to_permission(&id, ALLOW), Ok(()));
    world.act();
    assert_eq!(world.bridge.respond_to_permission(&id, DENY), Err(PermissionResponseError::UnknownQuestion));
    assert_eq!(world.answers(), [given("a", "allow")]);
    assert_eq!(world.audits(), [(PermissionDecision::Allow, DecidedBy::Control)]);
}

#[test]
fn the_others_hear_that_somebody_has_answered() {
    for second in [false, true] {
        let mut world = turn(second);
        world.agent_says(&ask("a"));
        let id = world.open_id();
        world.bridge.respond_to_permission(&id, ALLOW).unwrap();
        world.act();
        let last = world.last(1);
        let last = if second { &last } else { &last["data"] };
        assert_eq!(last["type"], "control_cancel_request");
    }
}

#[test]
fn a_server_that_comes_back_answers_by_the_bridges_name_and_speaks_the_second_dialect() {
    let mut world = turn(true);
    world.agent_says(&ask("a"));
    let id = world.open_id();
    world.open(2);
    world.say(2, &respond(&id, ALLOW));
    assert_eq!(world.answers(), [given("a", "allow")]);
    assert_eq!(world.kinds_bare(2), 0);
    world.say(2, "garbage");
    assert_eq!(world.kinds_bare(2), 0, "it is of the second dialect now");
}

impl World {
    fn kinds_bare(&self, conn: u64) -> usize {
        self.events(conn).len() - 1
    }
}

#[test]
fn rules_of_the_policy_answer_without_asking() {
    let rule = |text: &str| vec![Setting::new(text.parse().unwrap(), &PolicyLayer::CommandLine)];
    for (allow, deny, expected) in [("Bash(ls)", "Read", "allow"), ("Bash", "Bash(l*)", "deny")] {
        let permissions =
            PermissionPolicy { allow: rule(allow), deny: rule(deny), ..PermissionPolicy::built_in() };
        let mut world = with(false, permissions);
        let before = world.kinds(1).len();
        world.agent_says(&ask("a"));
        assert_eq!(world.answers(), [given("a", expected)]);
        assert_eq!(world.kinds(1).len(), before, "nobody is asked");
        let audit = world.actions.iter().find_map(|action| match action {
            BridgeAction::Audit(audit) => Some(audit.clone()),
            _ => None,
        });
        let rule = audit.unwrap().rule.unwrap();
        assert!(rule.ends_with("(command line)"), "{rule}");
        let told = world.agent.as_ref().unwrap().told.last().unwrap();
        if expected == "allow" {
            assert_eq!(told["response"]["response"]["updatedInput"], json!({"command": "ls", "n": 2.5}));
        }
    }
}

#[test]
fn a_question_that_is_not_about_a_tool_is_passed_on_where_it_can_be_answered() {
    let dialog = r#"{"request_id":"d","type":"control_request","request":{"subtype":"hook_callback"}}"#;
    let mut world = turn(false);
    world.agent_says(dialog);
    assert_eq!(world.last(1)["data"]["request_id"], "d");
    world.pass(Duration::from_secs(10_000));
    world.say(1, &respond("d", ALLOW));
    assert_eq!((world.answers(), world.audits()), (vec![given("d", "allow")], vec![]));
    let mut world = turn(true);
    world.agent_says(dialog);
    assert_eq!(world.answers(), [given("d", "error")], "nobody there would answer it");
}
