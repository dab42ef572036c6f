//! The hub of the bridge over real sockets, with the demo agent and with one that answers nothing.

mod conversations;
mod load;

use crate::bridge::adapter::{Adapter, NativeAdapter};
use crate::bridge::core::{AgentExitStatus, Bridge, BridgeAction, BridgeConfig, ExecOutcome};
use crate::bridge::io::{ConnectionHub, UnixSocketListener};
use mio::{Events, Poll, Token};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// How long a test waits before it fails. Generous, since it is only ever reached by a failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// A supervisor: an event loop, a hub, and an agent on two channels.
struct Rig {
    poll: Poll,
    hub: ConnectionHub,
    path: PathBuf,
    started: Instant,
    agent: Option<Wire>,
    /// Creates an agent. Without it, queries start an agent that writes nothing.
    make: Option<fn() -> Wire>,
    told: Vec<u8>,
    shut: bool,
    _dir: tempfile::TempDir,
}

/// The two ends of an agent's pipes.
struct Wire {
    input: Sender<Vec<u8>>,
    output: Receiver<Vec<u8>>,
}

impl Rig {
    fn new(adapter: Box<dyn Adapter>, make: Option<fn() -> Wire>) -> Rig {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bridge.sock");
        let poll = Poll::new().unwrap();
        let listener = UnixSocketListener::bind(&path).unwrap();
        let bridge = Bridge::new(BridgeConfig::default(), adapter);
        let hub = ConnectionHub::new(bridge, listener, poll.registry(), Token(10)).unwrap();
        let started = Instant::now();
        Rig { poll, hub, path, started, agent: None, make, told: Vec::new(), shut: false, _dir: dir }
    }

    fn demo() -> Rig {
        Rig::new(Box::new(NativeAdapter::demo()), Some(demo_agent))
    }

    fn connect(&self) -> Client {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { reader: BufReader::new(stream) }
    }

    /// One iteration of the loop.
    fn turn(&mut self) {
        while let Some(action) = self.hub.next_action() {
            self.act(action);
        }
        let now = self.started.elapsed();
        let until = self.hub.next_deadline().map_or(Duration::from_millis(1), |at| at.saturating_sub(now));
        let mut events = Events::with_capacity(256);
        self.poll.poll(&mut events, Some(until.min(Duration::from_millis(1)))).unwrap();
        self.hub.tick(self.started.elapsed());
        for event in &events {
            assert!(self.hub.owns_token(event.token()));
            self.hub.on_event(event);
        }
        if self.hub.core().wants_agent_output() {
            let said: Vec<Vec<u8>> = self.agent.iter().flat_map(|agent| agent.output.try_iter()).collect();
            for bytes in said {
                self.hub.with_bridge(|bridge| bridge.agent_output(&bytes));
            }
        }
    }

    /// Runs the loop until `done` returns true.
    fn until(&mut self, mut done: impl FnMut(&mut Rig) -> bool) {
        let start = Instant::now();
        while !done(self) {
            assert!(start.elapsed() < PATIENCE, "it does not come to an end");
            self.turn();
        }
    }

    /// Runs the loop while a client runs on a thread.
    fn while_client<T: Send + 'static>(&mut self, client: impl FnOnce() -> T + Send + 'static) -> T {
        let thread = std::thread::spawn(client);
        self.until(|_| thread.is_finished());
        let value = thread.join().unwrap();
        self.turn();
        value
    }

    fn act(&mut self, action: BridgeAction) {
        match action {
            BridgeAction::StartAgent(_) => {
                self.agent = self.make.map(|make| make());
                self.hub.with_bridge(Bridge::agent_started);
            }
            BridgeAction::AgentInput(bytes) => {
                let count = bytes.len();
                match &self.agent {
                    Some(agent) => drop(agent.input.send(bytes)),
                    None => self.told.extend_from_slice(&bytes),
                }
                self.hub.with_bridge(|bridge| bridge.agent_input_written(count));
            }
            BridgeAction::StopAgent(_) => {
                self.agent = None;
                self.hub.with_bridge(|bridge| bridge.agent_exited(&AgentExitStatus::Code(0)));
            }
            BridgeAction::RunExec { exec, command, .. } => {
                let outcome = ExecOutcome { stdout: command.into_bytes(), ..ExecOutcome::default() };
                self.hub.with_bridge(|bridge| bridge.exec_finished(exec, &outcome));
            }
            BridgeAction::Shutdown => self.shut = true,
            _ => {}
        }
    }
}

/// The built-in demo agent on a thread.
fn demo_agent() -> Wire {
    let (input, told) = channel::<Vec<u8>>();
    let (said, output) = channel();
    std::thread::spawn(move || super::run(BufReader::new(Lines { told, rest: Vec::new() }), Said(said)));
    Wire { input, output }
}

struct Lines {
    told: Receiver<Vec<u8>>,
    rest: Vec<u8>,
}

impl Read for Lines {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        if self.rest.is_empty() {
            self.rest = self.told.recv().unwrap_or_default();
        }
        let count = self.rest.len().min(to.len());
        to[..count].copy_from_slice(&self.rest[..count]);
        self.rest.drain(..count);
        Ok(count)
    }
}

struct Said(Sender<Vec<u8>>);

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.send(bytes.to_vec()).map_err(std::io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A server's end of a connection.
struct Client {
    reader: BufReader<UnixStream>,
}

impl Client {
    fn say(&mut self, line: &str) {
        self.reader.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn query(&mut self, prompt: &str) {
        self.say(&serde_json::json!({"cmd": "query", "prompt": prompt, "sessionId": "s"}).to_string());
    }

    /// The next event; `None` at the end.
    fn hear(&mut self) -> Option<serde_json::Value> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(serde_json::from_str(&line).unwrap()),
            Err(e) => panic!("{e}"),
        }
    }

    /// All events up to the next `done` or `error`.
    fn turn(&mut self) -> Vec<serde_json::Value> {
        let mut events = Vec::new();
        loop {
            let event = self.hear().expect("a terminal event");
            let over = event["ev"] == "done" || event["ev"] == "error";
            events.push(event);
            if over {
                return events;
            }
        }
    }
}

/// Runs the rest of a test in its own process, so that its descriptors and memory can be measured. Returns true there.
fn alone(test: &str) -> bool {
    const MARK: &str = "SAGGAR_TEST_ALONE";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let name = format!("demo::hub_tests::{test}");
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &name, "--test-threads=1"])
        .env(MARK, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    false
}
