//! For any sequence of actions on a bridge with an event store, a server that replays receives every event once, in
//! order, or a `gap` for it. An accepted command ends once, even if bridge or agent exit meanwhile.

use super::memory_store::Shelf;
use super::*;
use proptest::prelude::*;
use saggar_sys::testing::cases;

#[derive(Debug, Clone)]
enum Step {
    Query { server: usize, word: &'static str },
    Exec { server: usize },
    Interrupt { server: usize },
    AgentFinishes,
    AgentDies,
    AgentSaysMuch,
    ExecEnds,
    Reconnect { server: usize },
    Slow { server: usize },
    Reads { server: usize, bytes: usize },
    Fails { fails: bool },
    Restart,
    Time { seconds: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let server = 0usize..3;
    prop_oneof![
        4 => (server.clone(), prop_oneof![Just("wait"), Just("quick"), Just("fail")])
            .prop_map(|(server, word)| Step::Query { server, word }),
        2 => server.clone().prop_map(|server| Step::Exec { server }),
        1 => server.clone().prop_map(|server| Step::Interrupt { server }),
        3 => Just(Step::AgentFinishes),
        1 => Just(Step::AgentDies),
        3 => Just(Step::AgentSaysMuch),
        2 => Just(Step::ExecEnds),
        3 => server.clone().prop_map(|server| Step::Reconnect { server }),
        2 => server.clone().prop_map(|server| Step::Slow { server }),
        3 => (server, 0usize..2 << 20).prop_map(|(server, bytes)| Step::Reads { server, bytes }),
        1 => any::<bool>().prop_map(|fails| Step::Fails { fails }),
        1 => Just(Step::Restart),
        1 => (0u64..70).prop_map(|seconds| Step::Time { seconds }),
    ]
}

/// The knowledge of a server, over all its connections.
#[derive(Debug, Default)]
struct Server {
    conn: Option<u64>,
    /// Number of bytes sent to the connection that the server has read.
    seen: usize,
    /// The newest number that it knows.
    newest: u64,
    /// Events by their numbers.
    events: BTreeMap<u64, Vec<u8>>,
}

struct Model {
    world: World,
    shelf: Shelf,
    servers: [Server; 3],
    next_conn: u64,
    next_id: u64,
    /// Commands that were sent.
    asked: Vec<u64>,
    open_execs: usize,
}

impl Model {
    fn new(bound: usize) -> Model {
        let shelf = Shelf::new(bound);
        let mut model = Model {
            world: World::new(Script::stream_json),
            shelf,
            servers: Default::default(),
            next_conn: 1,
            next_id: 1,
            asked: Vec::new(),
            open_execs: 0,
        };
        model.restart();
        model
    }

    /// The supervisor dies, and another one resumes the session.
    fn restart(&mut self) {
        self.look();
        let left = self.shelf.left();
        self.world = World::new(Script::stream_json);
        self.world.bridge.enable_spool(Box::new(self.shelf.clone()), left);
        self.open_execs = 0;
        self.servers.iter_mut().for_each(|server| server.conn = None);
        for server in 0..self.servers.len() {
            self.connect(server);
        }
    }

    fn connect(&mut self, server: usize) {
        self.look();
        if let Some(conn) = self.servers[server].conn.take() {
            self.world.bridge.conn_closed(ConnId(conn));
            self.world.act();
        }
        let conn = self.next_conn;
        self.next_conn += 1;
        self.world.open(conn);
        let after = self.servers[server].newest;
        self.world.say(conn, &format!(r#"{{"cmd":"replay","after":{after},"id":"r"}}"#));
        (self.servers[server].conn, self.servers[server].seen) = (Some(conn), 0);
    }

    /// Each server reads its new output and verifies it.
    fn look(&mut self) {
        for server in &mut self.servers {
            let Some(conn) = server.conn else { continue };
            let all = self.world.heard.get(&ConnId(conn)).cloned().unwrap_or_default();
            for line in all[server.seen..].split_inclusive(|byte| *byte == b'\n') {
                let event: Value = serde_json::from_slice(line).unwrap();
                let (ev, seq) = (event["ev"].as_str().unwrap(), event["seq"].as_u64());
                if event["id"] == "r" {
                    assert!(ev == "done", "{event}");
                    assert!(seq.unwrap() <= server.newest, "an answer before what it answers");
                } else if ev == "gap" {
                    assert_eq!(event["from"].as_u64(), Some(server.newest + 1));
                    server.newest = event["to"].as_u64().unwrap();
                } else if let Some(seq) = seq {
                    assert_eq!(seq, server.newest + 1, "each number once, in order");
                    server.newest = seq;
                    server.events.insert(seq, line.to_vec());
                } else {
                    assert!(ev == "ready" || ev == "error" && event["id"].is_null(), "{event}");
                }
            }
            server.seen = all.len();
        }
    }

    fn say(&mut self, server: usize, line: &str) {
        let Some(conn) = self.servers[server].conn else { return };
        if self.world.closed.contains(&ConnId(conn)) {
            return self.connect(server);
        }
        self.world.say(conn, line);
    }

    fn ask(&mut self, server: usize, line: impl Fn(u64) -> String) {
        let id = self.next_id;
        self.next_id += 1;
        let gone = self.servers[server].conn.is_none_or(|conn| self.world.closed.contains(&ConnId(conn)));
        self.say(server, &line(id));
        if !gone {
            self.asked.push(id);
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Query { server, word } => {
                // Above this number a query is rejected, and only its connection gets the error.
                if self.asked.len() < 60 {
                    self.ask(*server, |id| {
                        format!(r#"{{"cmd":"query","prompt":"{word} {id}","sessionId":"s","id":{id}}}"#)
                    });
                }
            }
            Step::Exec { server } => {
                if self.asked.len() < 60 {
                    self.ask(*server, |id| format!(r#"{{"cmd":"exec","command":"x","id":{id}}}"#));
                }
            }
            Step::Interrupt { server } => self.say(*server, r#"{"cmd":"interrupt"}"#),
            Step::AgentFinishes => {
                if let Some(agent) = self.world.agent.as_mut().filter(|agent| agent.working) {
                    agent.finish("success");
                    self.world.act();
                }
            }
            Step::AgentDies => {
                if self.world.agent.is_some() {
                    self.world.kill_agent(&AgentExitStatus::Signal(9));
                }
            }
            Step::AgentSaysMuch => {
                // Between turns it would start a turn of the agent itself, with a result of its own.
                let works = self.world.agent.as_ref().is_some_and(|agent| agent.working);
                if works && self.world.bridge.wants_agent_output() {
                    let line = format!("{{\"type\":\"assistant\",\"x\":\"{}\"}}\n", "x".repeat(400 << 10));
                    self.world.bridge.agent_output(line.as_bytes());
                    self.world.act();
                }
            }
            Step::ExecEnds => self.end_exec(),
            Step::Reconnect { server } => self.connect(*server),
            Step::Slow { server } => {
                if let Some(conn) = self.servers[*server].conn {
                    self.world.slow.entry(ConnId(conn)).or_default();
                }
            }
            Step::Reads { server, bytes } => {
                if let Some(conn) = self.servers[*server].conn {
                    self.world.read_slowly(ConnId(conn), *bytes);
                }
            }
            Step::Fails { fails } => self.shelf.0.borrow_mut().fails = *fails,
            Step::Restart => self.restart(),
            Step::Time { seconds } => self.world.pass(Duration::from_secs(*seconds)),
        }
        self.world.pass(Duration::ZERO);
        assert!(self.world.bridge.held_bytes() < 32 << 20);
        self.look();
    }

    fn end_exec(&mut self) {
        if let Some(exec) = self.world.execs().get(self.open_execs).copied() {
            self.open_execs += 1;
            self.world.finish_exec(exec, "out");
        }
    }

    fn finish(&mut self) {
        self.shelf.0.borrow_mut().fails = false;
        for server in 0..3 {
            self.connect(server);
        }
        self.world.slow.clear();
        for _ in 0..200 {
            self.step(&Step::AgentFinishes);
            self.step(&Step::ExecEnds);
            self.step(&Step::Time { seconds: 1 });
        }
        for server in 0..3 {
            self.connect(server);
        }
        self.world.pass(Duration::ZERO);
        self.look();
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let kept = self.shelf.0.borrow();
        let newest = kept.history.keys().next_back().copied().unwrap_or(0);
        for server in &self.servers {
            prop_assert_eq!(server.newest, newest, "it knows of all");
            for (number, line) in &server.events {
                let expected =
                    crate::proto::spool::with_sequence_number(&kept.history[number], *number).unwrap();
                prop_assert!(&expected == line, "the same event under the same number, for everybody");
            }
        }
        let mut ends: BTreeMap<u64, usize> = BTreeMap::new();
        for line in kept.history.values() {
            let event: Value = serde_json::from_slice(line).unwrap();
            if event["ev"] == "done" || event["ev"] == "error" {
                *ends.entry(event["id"].as_u64().unwrap()).or_default() += 1;
            }
        }
        for id in &self.asked {
            prop_assert_eq!(ends.get(id), Some(&1), "command {}", id);
        }
        prop_assert!(!self.world.bridge.is_busy());
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(400), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_server_that_replays_hears_every_event_once_or_that_it_is_missing(
        steps in proptest::collection::vec(step(), 0..60),
        bound in prop_oneof![Just(5usize), Just(20), Just(100_000)],
    ) {
        let mut model = Model::new(bound);
        for step in &steps {
            model.step(step);
        }
        model.finish();
        model.check()?;
    }
}
