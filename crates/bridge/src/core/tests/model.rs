//! For any sequence of actions of servers and agents, every command ends in exactly one terminal event.

use super::*;
use proptest::prelude::*;
use saggar_sys::testing::cases;
use std::collections::{HashMap, HashSet};

/// One step of a sequence.
#[derive(Debug, Clone)]
enum Step {
    Query { conn: u64, id: bool, word: &'static str, flags: bool },
    Resume { conn: u64, id: bool },
    Exec { conn: u64, id: bool },
    Interrupt { conn: u64 },
    Bad { conn: u64 },
    AgentFinishes,
    AgentDies,
    AgentIsDeaf,
    AgentIsHeard,
    AgentIsHeardInPart,
    ExecEnds,
    Reconnect { conn: u64 },
    Time { seconds: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let conn = 0u64..3;
    prop_oneof![
        4 => (conn.clone(), any::<bool>(), prop_oneof![Just("wait"), Just("quick"), Just("fail")], any::<bool>())
            .prop_map(|(conn, id, word, flags)| Step::Query { conn, id, word, flags }),
        1 => (conn.clone(), any::<bool>()).prop_map(|(conn, id)| Step::Resume { conn, id }),
        2 => (conn.clone(), any::<bool>()).prop_map(|(conn, id)| Step::Exec { conn, id }),
        2 => conn.clone().prop_map(|conn| Step::Interrupt { conn }),
        1 => conn.clone().prop_map(|conn| Step::Bad { conn }),
        3 => Just(Step::AgentFinishes),
        1 => Just(Step::AgentDies),
        1 => Just(Step::AgentIsDeaf),
        3 => Just(Step::AgentIsHeard),
        1 => Just(Step::AgentIsHeardInPart),
        2 => Just(Step::ExecEnds),
        1 => conn.prop_map(|conn| Step::Reconnect { conn }),
        1 => (0u64..40).prop_map(|seconds| Step::Time { seconds }),
    ]
}

/// The commands of one connection by id; commands without an id are counted.
#[derive(Default)]
struct Asked {
    /// Commands with an id, and whether each is a query.
    ids: Vec<(u64, bool)>,
    /// Commands without an id, in order, and whether each is an `exec`.
    plain: Vec<bool>,
    bad: usize,
}

struct Model {
    world: World,
    conns: HashMap<u64, u64>,
    asked: HashMap<u64, Asked>,
    next_conn: u64,
    next_id: u64,
    execs_done: usize,
}

impl Model {
    fn new(world: World) -> Model {
        let mut model = Model {
            world,
            conns: HashMap::new(),
            asked: HashMap::new(),
            next_conn: 0,
            next_id: 0,
            execs_done: 0,
        };
        for conn in 0..3 {
            model.connect(conn);
        }
        model.world.lively = false;
        model
    }

    fn connect(&mut self, name: u64) {
        self.next_conn += 1;
        self.conns.insert(name, self.next_conn);
        self.asked.insert(self.next_conn, Asked::default());
        self.world.open(self.next_conn);
    }

    fn ask(&mut self, name: u64, with_id: bool, command: &str) {
        let conn = self.conns[&name];
        let asked = self.asked.get_mut(&conn).unwrap();
        let id = if with_id {
            self.next_id += 1;
            asked.ids.push((self.next_id, command.contains("query")));
            format!(",\"id\":{}", self.next_id)
        } else {
            asked.plain.push(command.contains("exec"));
            String::new()
        };
        self.world.say(conn, &format!("{{{command}{id}}}"));
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Query { conn, id, word, flags } => {
                // The prompt names its command, and the agent repeats it in each message.
                let prompt = format!("{word} {}", if id { self.next_id + 1 } else { 0 });
                let flags = if flags { r#","maxTurns":2,"model":"m""# } else { "" };
                self.ask(conn, id, &format!(r#""cmd":"query","prompt":"{prompt}","sessionId":"s"{flags}"#));
            }
            Step::Resume { conn, id } => self.ask(conn, id, r#""cmd":"resume","sessionId":"s""#),
            Step::Exec { conn, id } => self.ask(conn, id, r#""cmd":"exec","command":"x""#),
            Step::Interrupt { conn } => self.world.say(self.conns[&conn], r#"{"cmd":"interrupt"}"#),
            Step::Bad { conn } => {
                let conn = self.conns[&conn];
                self.asked.get_mut(&conn).unwrap().bad += 1;
                self.world.say(conn, r#"{"cmd":"fly"}"#);
            }
            Step::AgentFinishes => {
                if let Some(agent) = self.world.agent.as_mut().filter(|agent| agent.working) {
                    agent.finish("success");
                }
            }
            Step::AgentDies => {
                if self.world.agent.is_some() {
                    self.world.kill_agent(&AgentExitStatus::Signal(9));
                }
            }
            Step::AgentIsDeaf => self.world.deaf = self.world.agent.is_some(),
            Step::AgentIsHeard => self.hear_agent(usize::MAX),
            Step::AgentIsHeardInPart => self.hear_agent(100),
            Step::ExecEnds => self.end_exec(),
            Step::Reconnect { conn } => {
                let old = self.conns[&conn];
                self.asked.remove(&old);
                self.world.bridge.conn_closed(ConnId(old));
                self.world.act();
                self.connect(conn);
            }
            Step::Time { seconds } => self.world.pass(Duration::from_secs(seconds)),
        }
    }

    fn hear_agent(&mut self, bytes: usize) {
        if let Some(agent) = &mut self.world.agent {
            let said = agent.speak_some(bytes);
            self.world.bridge.agent_output(&said);
            self.world.act();
        }
    }

    fn end_exec(&mut self) {
        if let Some(exec) = self.world.execs().get(self.execs_done).copied() {
            self.execs_done += 1;
            self.world.finish_exec(exec, "out");
        }
    }

    /// Runs until everything has ended, by itself or by a shutdown of the bridge.
    fn finish(&mut self, by_shutdown: bool) {
        self.world.lively = true;
        if by_shutdown {
            self.world.bridge.begin_termination();
        }
        for _ in 0..400 {
            self.world.act();
            if self.world.deaf {
                self.step(&Step::AgentDies);
            }
            self.step(&Step::AgentFinishes);
            self.world.act();
            self.end_exec();
            self.world.pass(Duration::from_millis(500));
        }
    }

    fn check(&self, undisturbed: bool) -> Result<(), TestCaseError> {
        for (conn, asked) in &self.asked {
            let (mut plain, mut by_id, mut bad) = (Vec::new(), HashMap::new(), 0);
            let (mut answered, mut result) = (HashSet::new(), false);
            for event in self.world.events(*conn) {
                let id = event["id"].as_u64();
                if let Some(prompt) = event["data"]["prompt"].as_str() {
                    let expected = id.unwrap_or(0).to_string();
                    prop_assert_eq!(prompt.split_once(' ').map(|(_, id)| id), Some(expected.as_str()));
                    answered.extend(id);
                }
                match (event["ev"].as_str(), id) {
                    (Some("done" | "error"), Some(id)) => {
                        by_id.entry(id).or_insert_with(Vec::new).push(event)
                    }
                    (Some("error"), None) if event["error"] == "unknown command \"fly\"" => bad += 1,
                    (Some("done" | "error"), None) => plain.push(std::mem::take(&mut result)),
                    (Some("exec_result"), id) => result = id.is_none(),
                    (Some("ready" | "message"), _) => {}
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            // Commands without an id run one after the other, so their terminal events are in their order.
            if undisturbed {
                prop_assert_eq!(&plain, &asked.plain);
            }
            prop_assert_eq!(plain.len(), asked.plain.len());
            prop_assert_eq!(bad, asked.bad);
            prop_assert_eq!(by_id.len(), asked.ids.len());
            for (id, is_query) in &asked.ids {
                let ends = by_id.get(id).map(Vec::as_slice).unwrap_or_default();
                prop_assert_eq!(ends.len(), 1, "id {}", id);
                // A turn that is done and was not aborted was answered in full.
                let whole = undisturbed && *is_query && ends[0]["ev"] == "done";
                prop_assert!(!whole || answered.contains(id), "id {}", id);
            }
        }
        prop_assert!(!self.world.bridge.is_busy());
        prop_assert_eq!(self.world.bridge.held_bytes(), 0);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(5000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_command_ends_in_exactly_one_terminal_event(
        steps in proptest::collection::vec(step(), 0..50),
        kind in 0..3,
        by_shutdown in any::<bool>(),
        interrupts in any::<bool>(),
    ) {
        let world = match kind {
            0 => World::new(Script::stream_json),
            1 => World::new(Script::stubborn),
            _ => World::relay(Script::relay),
        };
        let mut model = Model::new(world);
        for step in steps.iter().filter(|step| interrupts || !matches!(step, Step::Interrupt { .. })) {
            model.step(step);
        }
        model.finish(by_shutdown);
        model.check(!interrupts && !by_shutdown)?;
    }
}

#[test]
fn bp_09_an_interrupt_at_any_point_always_gives_one_done() {
    for point in 0..200u32 {
        let mut world = World::new(Script::stream_json);
        world.lively = false;
        world.open(1);
        let query = "{\"cmd\":\"query\",\"prompt\":\"wait\",\"sessionId\":\"s\",\"model\":\"m\"}\n";
        world.say(1, query.trim_end());
        // The agent's output arrives byte by byte; the interrupt comes between two bytes.
        let mut said = 0;
        for round in 0..400 {
            let words = world.agent.as_mut().map(Script::speak).unwrap_or_default();
            if words.is_empty() && round > 10 {
                break;
            }
            for byte in words {
                if said == point * 3 {
                    world.say(1, r#"{"cmd":"interrupt"}"#);
                }
                said += 1;
                world.bridge.agent_output(&[byte]);
                world.act();
            }
        }
        if point * 3 >= said {
            world.say(1, r#"{"cmd":"interrupt"}"#);
        }
        world.lively = true;
        world.act();
        let dones = world.kinds(1).iter().filter(|kind| *kind == "done").count();
        assert_eq!(
            (dones, world.last(1)["ev"].as_str()),
            (1, Some("done")),
            "interrupted at byte {}",
            point * 3
        );
    }
}
