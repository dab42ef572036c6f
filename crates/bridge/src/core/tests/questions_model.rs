//! Questions and responses in any order: each question is decided once, and never allowed without a valid allowance.

use super::questions::{ask, respond, turn};
use super::*;
use proptest::prelude::*;
use saggar_sys::testing::cases;
use serde_json::json;

/// One step of a sequence.
#[derive(Debug, Clone)]
enum Step {
    Ask(u8),
    Back(u8),
    Answer { conn: u64, id: u8, word: &'static str, own: bool },
    Interrupt,
    Die,
    Finish,
    Time(u64),
    Reconnect(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let word = prop_oneof![Just("allow"), Just("deny"), Just("maybe"), Just("")];
    prop_oneof![
        6 => (0u8..20).prop_map(Step::Ask),
        1 => (0u8..20).prop_map(Step::Back),
        8 => (1u64..4, 0u8..20, word, any::<bool>())
            .prop_map(|(conn, id, word, own)| Step::Answer { conn, id, word, own }),
        1 => Just(Step::Interrupt),
        1 => Just(Step::Die),
        1 => Just(Step::Finish),
        1 => (0u64..700).prop_map(Step::Time),
        1 => (1u64..4).prop_map(Step::Reconnect),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(1500), failure_persistence: None, ..ProptestConfig::default() })]

    /// RB-29, RB-31, RB-33: in any order of steps, an agent receives at most one response per question. It receives an
    /// allowance only for an open question that was answered so, and every question is decided once.
    #[test]
    fn rb_29_never_allow_without_a_valid_allow(
        second in any::<bool>(), steps in proptest::collection::vec(step(), 0..60),
    ) {
        let mut world = turn(second);
        world.open(2);
        world.open(3);
        let (mut allowed, mut heard) = (Vec::<String>::new(), Vec::new());
        let mut next = 10;
        let mut names: BTreeMap<u64, u64> = (1..4).map(|conn| (conn, conn)).collect();
        for step in steps {
            let before = world.answers().len();
            match step {
                Step::Ask(id) => if world.agent.is_some() { world.agent_says(&ask(&id.to_string())) },
                Step::Back(id) => if world.agent.is_some() {
                    world.agent_says(&json!({"type": "control_cancel_request", "request_id": id.to_string()}).to_string());
                },
                Step::Answer { conn, id, word, own } => {
                    let agent_id = id.to_string();
                    let fresh = world.bridge.pending_permissions().find(|pending| pending.question.agent_request_id == agent_id)
                        .map(|pending| pending.id.clone());
                    let name = if own { agent_id.clone() } else { fresh.clone().unwrap_or_default() };
                    if word == "allow" && fresh.is_some() {
                        allowed.push(agent_id);
                    }
                    let inner = if word.is_empty() { "{}".into() } else { format!(r#"{{"behavior":"{word}"}}"#) };
                    world.say(names[&conn], &respond(&name, &inner));
                }
                Step::Interrupt => world.say(names[&1], if second {
                    r#"{"type":"control_request","request_id":"i","request":{"subtype":"interrupt"}}"#
                } else { r#"{"cmd":"interrupt"}"# }),
                Step::Die => if world.agent.is_some() {
                    heard.extend(world.answers());
                    world.kill_agent(&AgentExitStatus::Signal(9));
                    continue;
                },
                Step::Finish => if let Some(agent) = world.agent.as_mut().filter(|agent| agent.working) {
                    agent.finish("success");
                    world.act();
                },
                Step::Time(seconds) => world.pass(Duration::from_secs(seconds)),
                Step::Reconnect(conn) => {
                    world.bridge.conn_closed(ConnId(names[&conn]));
                    world.act();
                    next += 1;
                    names.insert(conn, next);
                    world.open(next);
                }
            }
            for (id, said) in world.answers().split_off(before.min(world.answers().len())) {
                prop_assert!(said != "allow" || allowed.contains(&id), "{id} was never allowed");
            }
        }
        heard.extend(world.answers());
        let open = world.bridge.pending_permissions().count();
        let closed = world.actions.iter().filter(|action| matches!(action, BridgeAction::PermissionClosed(_))).count();
        let asked = world.actions.iter().filter(|action| matches!(action, BridgeAction::PermissionRequested(_))).count();
        prop_assert_eq!(asked, open + closed);
        let mut names: Vec<String> = Vec::new();
        for action in &world.actions {
            if let BridgeAction::Audit(audit) = action {
                prop_assert!(!names.contains(&audit.id), "decided twice");
                names.push(audit.id.clone());
            }
        }
        world.bridge.begin_termination();
        world.act();
        world.pass(Duration::from_secs(10));
        prop_assert_eq!(world.bridge.held_bytes(), 0);
    }
}
