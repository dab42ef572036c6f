//! The core against scripted agents and servers. `World` plays the supervisor: it carries out the core's actions.

mod backpressure;
mod disconnects;
mod idle_agent;
mod idle_model;
mod memory_store;
mod model;
mod order;
mod questions;
mod questions_model;
mod replay;
mod replay_model;
mod scripted_agents;
mod sdk_dialect;
mod turns;

use super::*;
use crate::adapter::{Adapter, NativeAdapter, StreamJsonAdapter};
use scripted_agents::Script;
use serde_json::Value;

/// The core, an agent and some servers.
struct World {
    bridge: Bridge,
    /// The bytes sent to each connection.
    heard: BTreeMap<ConnId, Vec<u8>>,
    closed: Vec<ConnId>,
    agent: Option<Script>,
    make: fn() -> Script,
    starts: Vec<AgentStart>,
    actions: Vec<BridgeAction>,
    now: Duration,
    /// Output is written at once.
    reading: bool,
    /// Connections that read on demand, with the number of bytes that wait for each.
    slow: BTreeMap<ConnId, usize>,
    /// The agent reads its input at once and writes its output.
    lively: bool,
    /// The agent does not read its input.
    deaf: bool,
    shut: bool,
}

impl World {
    fn new(make: fn() -> Script) -> World {
        World::with(BridgeConfig::default(), Box::new(StreamJsonAdapter::new()), make)
    }

    fn relay(make: fn() -> Script) -> World {
        World::with(BridgeConfig::default(), Box::new(NativeAdapter::demo()), make)
    }

    fn with(config: BridgeConfig, adapter: Box<dyn Adapter>, make: fn() -> Script) -> World {
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
        self.bridge.conn_opened(ConnId(conn));
        self.act();
    }

    fn say(&mut self, conn: u64, line: &str) {
        self.bridge.conn_input(ConnId(conn), format!("{line}\n").as_bytes());
        self.act();
    }

    fn query(&mut self, conn: u64, prompt: &str, rest: &str) {
        let prompt = crate::proto::json::quote(prompt);
        self.say(conn, &format!(r#"{{"cmd":"query","prompt":{prompt},"sessionId":"s"{rest}}}"#));
    }

    /// Carries out the core's actions until there are none.
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

    fn do_one(&mut self, action: BridgeAction) {
        match &action {
            BridgeAction::Send { conn, bytes } => {
                let count = bytes.len();
                self.heard.entry(*conn).or_default().extend_from_slice(bytes);
                if let Some(waiting) = self.slow.get_mut(conn) {
                    *waiting += count;
                } else if self.reading {
                    self.bridge.conn_written(*conn, count);
                }
                return;
            }
            BridgeAction::Close { conn, .. } => self.closed.push(*conn),
            BridgeAction::StartAgent(start) => {
                self.starts.push(start.clone());
                self.agent = Some((self.make)());
                self.bridge.agent_started();
            }
            BridgeAction::AgentInput(bytes) => {
                let count = bytes.len();
                if let Some(agent) = self.agent.as_mut().filter(|_| !self.deaf) {
                    agent.hear(bytes);
                }
                self.bridge.agent_input_written(count);
            }
            BridgeAction::StopAgent(stop) => {
                let stubborn = self.agent.as_ref().is_some_and(|agent| agent.stubborn);
                if self.agent.is_some() && (!stubborn || *stop == AgentStop::Kill) {
                    self.agent = None;
                    self.bridge.agent_exited(&AgentExitStatus::Code(0));
                }
            }
            BridgeAction::Shutdown => self.shut = true,
            _ => {}
        }
        self.actions.push(action);
    }

    /// A slow connection reads this many bytes.
    fn read_slowly(&mut self, conn: ConnId, bytes: usize) {
        let Some(waiting) = self.slow.get_mut(&conn) else { return };
        let bytes = bytes.min(*waiting);
        *waiting -= bytes;
        self.bridge.conn_written(conn, bytes);
        self.act();
    }

    fn kill_agent(&mut self, exit: &AgentExitStatus) {
        self.agent = None;
        if std::mem::take(&mut self.deaf) {
            self.bridge.agent_left_unread_input();
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

    /// The events that a connection has received so far.
    fn events(&self, conn: u64) -> Vec<Value> {
        let bytes = self.heard.get(&ConnId(conn)).map(Vec::as_slice).unwrap_or_default();
        let lines = std::str::from_utf8(bytes).unwrap().lines();
        lines.map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
    }

    /// The types of those events, in short: `id:` before events with an id; the type of messages.
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
        let exec = |action: &BridgeAction| match action {
            BridgeAction::RunExec { exec, .. } => Some(*exec),
            _ => None,
        };
        self.actions.iter().filter_map(exec).collect()
    }

    fn finish_exec(&mut self, exec: ExecId, stdout: &str) {
        let outcome = ExecOutcome { stdout: stdout.into(), ..ExecOutcome::default() };
        self.bridge.exec_finished(exec, &outcome);
        self.act();
    }
}
