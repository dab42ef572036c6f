//! The core against scripted agents and servers. `World` plays the supervisor: it does what the core asks.

mod agents;
mod asking;
mod asking_model;
mod death;
mod model;
mod order;
mod pressure;
mod replay;
mod replay_model;
mod second;
mod shelf;
mod turns;

use super::*;
use crate::bridge::adapter::{Adapter, Relay, StreamJson};
use agents::Script;
use serde_json::Value;

/// The core, an agent and some servers.
struct World {
    bridge: Bridge,
    /// What each connection has been sent.
    heard: BTreeMap<ConnId, Vec<u8>>,
    closed: Vec<ConnId>,
    agent: Option<Script>,
    make: fn() -> Script,
    starts: Vec<Start>,
    actions: Vec<Action>,
    now: Duration,
    /// What is sent is written at once.
    reading: bool,
    /// Connections that read only when they are told to: how many bytes wait for each.
    slow: BTreeMap<ConnId, usize>,
    /// The agent hears what it is told at once, and says what it has to say.
    lively: bool,
    /// The agent reads nothing of what it is told.
    deaf: bool,
    shut: bool,
}

impl World {
    fn new(make: fn() -> Script) -> World {
        World::with(Config::default(), Box::new(StreamJson::new()), make)
    }

    fn relay(make: fn() -> Script) -> World {
        World::with(Config::default(), Box::new(Relay::demo()), make)
    }

    fn with(config: Config, adapter: Box<dyn Adapter>, make: fn() -> Script) -> World {
        World {
            bridge: Bridge::new(config, adapter),
            heard: BTreeMap::new(),
            closed: Vec::new(),
            agent: None,
            make,
            starts: Vec::new(),
            actions: Vec::new(),
            now: Duration::ZERO,
            reading: true,
            slow: BTreeMap::new(),
            lively: true,
            deaf: false,
            shut: false,
        }
    }

    fn open(&mut self, conn: u64) {
        self.bridge.conn_open(ConnId(conn));
        self.act();
    }

    fn say(&mut self, conn: u64, line: &str) {
        self.bridge.conn_input(ConnId(conn), format!("{line}\n").as_bytes());
        self.act();
    }

    fn query(&mut self, conn: u64, prompt: &str, rest: &str) {
        let prompt = crate::bridge::proto::json::quote(prompt);
        self.say(conn, &format!(r#"{{"cmd":"query","prompt":{prompt},"sessionId":"s"{rest}}}"#));
    }

    /// Does what the core asks, until it asks no more.
    fn act(&mut self) {
        loop {
            while let Some(action) = self.bridge.next_action() {
                self.do_one(action);
            }
            let said = match &mut self.agent {
                Some(agent) if self.lively => agent.speak(),
                _ => return,
            };
            if said.is_empty() {
                return;
            }
            self.bridge.agent_output(&said);
        }
    }

    fn do_one(&mut self, action: Action) {
        match &action {
            Action::Send { conn, bytes } => {
                let count = bytes.len();
                self.heard.entry(*conn).or_default().extend_from_slice(bytes);
                if let Some(waiting) = self.slow.get_mut(conn) {
                    *waiting += count;
                } else if self.reading {
                    self.bridge.conn_written(*conn, count);
                }
                return;
            }
            Action::Close { conn, .. } => self.closed.push(*conn),
            Action::StartAgent(start) => {
                self.starts.push(start.clone());
                self.agent = Some((self.make)());
                self.bridge.agent_started();
            }
            Action::AgentInput(bytes) => {
                let count = bytes.len();
                if let Some(agent) = self.agent.as_mut().filter(|_| !self.deaf) {
                    agent.hear(bytes);
                }
                self.bridge.agent_input_written(count);
            }
            Action::StopAgent(stop) => {
                let stubborn = self.agent.as_ref().is_some_and(|agent| agent.stubborn);
                if self.agent.is_some() && (!stubborn || *stop == Stop::Kill) {
                    self.agent = None;
                    self.bridge.agent_exited(&Exit::Code(0));
                }
            }
            Action::Shutdown => self.shut = true,
            _ => {}
        }
        self.actions.push(action);
    }

    /// A slow connection reads so much of what waits for it.
    fn read_slowly(&mut self, conn: ConnId, bytes: usize) {
        let Some(waiting) = self.slow.get_mut(&conn) else { return };
        let bytes = bytes.min(*waiting);
        *waiting -= bytes;
        self.bridge.conn_written(conn, bytes);
        self.act();
    }

    fn kill_agent(&mut self, exit: &Exit) {
        self.agent = None;
        if std::mem::take(&mut self.deaf) {
            self.bridge.agent_left_input();
        }
        self.bridge.agent_exited(exit);
        self.act();
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(next) = self.bridge.next_deadline().filter(|next| *next <= until) {
            self.now = self.now.max(next);
            self.bridge.tick(self.now);
            self.act();
        }
        self.now = until;
        self.bridge.tick(until);
        self.act();
    }

    /// The events a connection has heard so far.
    fn events(&self, conn: u64) -> Vec<Value> {
        let bytes = self.heard.get(&ConnId(conn)).map(Vec::as_slice).unwrap_or_default();
        let lines = std::str::from_utf8(bytes).unwrap().lines();
        lines.map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
    }

    /// The kinds of those events, in short: `id:` before those with an id, the type of messages.
    fn kinds(&self, conn: u64) -> Vec<String> {
        let kind = |event: &Value| {
            let ev = event["ev"].as_str().unwrap();
            let name = if ev == "message" { event["data"]["type"].as_str().unwrap_or("?") } else { ev };
            match &event["id"] {
                Value::Null => name.to_owned(),
                id => format!("{id}:{name}"),
            }
        };
        self.events(conn).iter().map(kind).collect()
    }

    fn last(&self, conn: u64) -> Value {
        self.events(conn).pop().unwrap()
    }

    fn execs(&self) -> Vec<ExecId> {
        let exec = |action: &Action| match action {
            Action::RunExec { exec, .. } => Some(*exec),
            _ => None,
        };
        self.actions.iter().filter_map(exec).collect()
    }

    fn finish_exec(&mut self, exec: ExecId, stdout: &str) {
        let outcome = Outcome { stdout: stdout.into(), ..Outcome::default() };
        self.bridge.exec_finished(exec, &outcome);
        self.act();
    }
}
