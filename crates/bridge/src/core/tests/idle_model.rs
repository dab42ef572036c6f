//! For any sequence of queries, pauses and exits: the end of an idle agent loses no query and no conversation.

use super::*;
use proptest::prelude::*;
use saggar_sys::testing::cases;

const LIMIT: Duration = Duration::from_secs(5);

/// One step of a sequence.
#[derive(Debug, Clone)]
enum Step {
    Query {
        conn: u64,
        word: &'static str,
        flags: bool,
    },
    Resume {
        conn: u64,
    },
    Exec {
        conn: u64,
    },
    ExecEnds,
    Interrupt {
        conn: u64,
    },
    AgentFinishes,
    AgentAsks,
    Answer,
    /// A process that is being stopped exits.
    AgentExits {
        code: i32,
    },
    Pause {
        on: bool,
    },
    Time {
        millis: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let conn = 0u64..2;
    prop_oneof![
        4 => (conn.clone(), prop_oneof![Just("wait"), Just("quick")], any::<bool>())
            .prop_map(|(conn, word, flags)| Step::Query { conn, word, flags }),
        1 => conn.clone().prop_map(|conn| Step::Resume { conn }),
        1 => conn.clone().prop_map(|conn| Step::Exec { conn }),
        1 => Just(Step::ExecEnds),
        1 => conn.prop_map(|conn| Step::Interrupt { conn }),
        4 => Just(Step::AgentFinishes),
        1 => Just(Step::AgentAsks),
        2 => Just(Step::Answer),
        3 => prop_oneof![Just(0), Just(1), Just(143)].prop_map(|code| Step::AgentExits { code }),
        1 => any::<bool>().prop_map(|on| Step::Pause { on }),
        6 => (0u64..7000).prop_map(|millis| Step::Time { millis }),
    ]
}

/// A world whose agent exits late, and what it was asked.
struct IdleModel {
    world: World,
    is_paused: bool,
    asked: [Vec<u64>; 2],
    next_id: u64,
    execs_done: usize,
    /// Number of actions that were checked.
    checked: usize,
    /// The agent has sent the id of its session.
    has_conversation: bool,
}

impl IdleModel {
    fn new() -> IdleModel {
        let config = BridgeConfig { agent_idle: Some(LIMIT), ..BridgeConfig::default() };
        let mut world = World::with(config, Box::new(StreamJsonAdapter::new()), Script::stubborn);
        (0..2).for_each(|conn| world.open(conn));
        IdleModel {
            world,
            is_paused: false,
            asked: [Vec::new(), Vec::new()],
            next_id: 0,
            execs_done: 0,
            checked: 0,
            has_conversation: false,
        }
    }

    fn ask(&mut self, conn: u64, command: &str) {
        self.next_id += 1;
        self.asked[usize::try_from(conn).unwrap()].push(self.next_id);
        self.world.say(conn, &format!("{{{command},\"id\":{}}}", self.next_id));
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Query { conn, word, flags } => {
                let flags = if flags { r#","maxTurns":2"# } else { "" };
                self.ask(conn, &format!(r#""cmd":"query","prompt":"{word}","sessionId":"s"{flags}"#));
            }
            Step::Resume { conn } => self.ask(conn, r#""cmd":"resume","sessionId":"s""#),
            Step::Exec { conn } => self.ask(conn, r#""cmd":"exec","command":"x""#),
            Step::ExecEnds => {
                if let Some(exec) = self.world.execs().get(self.execs_done).copied() {
                    self.execs_done += 1;
                    self.world.finish_exec(exec, "out");
                }
            }
            Step::Interrupt { conn } => self.world.say(conn, r#"{"cmd":"interrupt"}"#),
            Step::AgentFinishes => {
                if let Some(agent) = self.world.agent.as_mut().filter(|agent| agent.working) {
                    agent.finish("success");
                    self.world.act();
                }
            }
            Step::AgentAsks => {
                if let Some(agent) = self.world.agent.as_mut().filter(|agent| agent.working) {
                    agent.say(&questions::ask(&self.next_id.to_string()));
                    self.world.act();
                }
            }
            Step::Answer => {
                let id = self.world.bridge.pending_permissions().next().map(|pending| pending.id.clone());
                if let Some(id) = id {
                    let _ = self.world.bridge.respond_to_permission(&id, r#"{"behavior":"allow"}"#);
                    self.world.act();
                }
            }
            Step::AgentExits { code } => {
                let is_stopping = self.world.bridge.agent.deadline().is_some();
                if is_stopping && self.world.agent.is_some() {
                    self.world.kill_agent(&AgentExitStatus::Code(code));
                }
            }
            Step::Pause { on } => {
                self.is_paused = on;
                self.world.bridge.set_paused(on);
            }
            Step::Time { millis } => return self.pass(Duration::from_millis(millis)),
        }
        self.check()
    }

    /// Passes time, with a check at each deadline.
    fn pass(&mut self, time: Duration) -> Result<(), TestCaseError> {
        let until = self.world.now + time;
        while self.world.now < until {
            let next = self.world.bridge.next_deadline().unwrap_or(until).clamp(self.world.now, until);
            let (busy, asks) = (self.world.bridge.turn.is_some(), self.world.bridge.questions.iter().count());
            let was_ended = self.world.bridge.has_ended_idle_agent();
            self.world.pass(next - self.world.now);
            if self.world.bridge.has_ended_idle_agent() && !was_ended {
                prop_assert!(!busy && asks == 0 && !self.is_paused, "ended while it was in use");
            }
            self.check()?;
            if next == self.world.now && self.world.bridge.next_deadline().is_none_or(|next| next > until) {
                self.world.pass(until - self.world.now);
            }
        }
        self.check()
    }

    /// A process that is started after the conversation began continues it, and no end of it is a failure.
    fn check(&mut self) -> Result<(), TestCaseError> {
        for action in &self.world.actions[self.checked..] {
            match action {
                BridgeAction::SaveAgentSession { .. } => self.has_conversation = true,
                BridgeAction::StartAgent(start) => {
                    let resumes = start.arguments.iter().any(|word| word == "--resume=agent-1");
                    prop_assert_eq!(resumes, self.has_conversation);
                }
                BridgeAction::RecordAgentFailure => prop_assert!(false, "a failure was recorded"),
                _ => {}
            }
        }
        self.checked = self.world.actions.len();
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(3000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn end_of_an_idle_agent_loses_no_query_and_no_conversation(
        steps in proptest::collection::vec(step(), 0..60),
        interrupts in any::<bool>(),
    ) {
        let mut model = IdleModel::new();
        for step in &steps {
            let disturbs = matches!(step, Step::Interrupt { .. });
            // The script ignores interrupts, so an interrupted turn ends in the death of its agent.
            if !disturbs || interrupts && model.world.bridge.turn.as_ref().is_none_or(Turn::is_starting) {
                model.step(step)?;
            }
        }
        model.step(&Step::Pause { on: false })?;
        for _ in 0..200 {
            model.step(&Step::Answer)?;
            model.step(&Step::AgentFinishes)?;
            model.step(&Step::ExecEnds)?;
            model.pass(Duration::from_millis(500))?;
        }
        for conn in 0..2 {
            let ends = |id: u64| {
                let of = |event: &&Value| event["id"] == id && ["done", "error"].iter().any(|end| event["ev"] == *end);
                model.world.events(conn).iter().filter(of).cloned().collect::<Vec<_>>()
            };
            for id in &model.asked[usize::try_from(conn).unwrap()] {
                let ends = ends(*id);
                prop_assert_eq!(ends.len(), 1, "command {}", id);
                let is_expected = ends[0]["ev"] == "done" || ends[0]["error"].as_str().unwrap().contains("paused");
                prop_assert!(is_expected, "{}", ends[0]);
            }
        }
        prop_assert!(!model.world.bridge.is_busy());
        prop_assert_eq!(model.world.bridge.held_bytes(), 0);
        // The rest of the time was longer than the limit.
        prop_assert!(model.world.agent.is_none() || !model.has_conversation);
    }
}
