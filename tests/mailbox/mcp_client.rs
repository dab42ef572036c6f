//! A client of `saggar mcp`, line by line.

use std::io::Write;
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus};

use serde_json::{Value, json};

use crate::support::deadline::Deadline;
use crate::support::lines::Lines;
use crate::support::place::Place;
use crate::support::process::Process;

/// The protocol version that a client of today asks for first.
pub(super) const VERSION: &str = "2025-11-25";

/// `saggar mcp mailbox` in run 1 of the place, as one agent.
#[derive(Debug)]
pub(super) struct McpClient {
    process: Process,
    stdin: Option<ChildStdin>,
    lines: Lines<ChildStdout>,
    next_id: u64,
}

/// The result of a call.
#[derive(Debug)]
pub(super) struct CallResult {
    pub(super) is_error: bool,
    /// The first block; later ones are notes.
    pub(super) text: String,
    pub(super) structured: Value,
}

/// The command of the server, not started.
pub(super) fn command(place: &Place, name: &str) -> Command {
    let mut command = place.saggar();
    command.args(["mcp", "mailbox", "--run", "1", "--as", name]);
    command
}

/// A command in a sandbox that has the mailbox of run 1, not started.
pub(super) fn sandboxed(place: &Place, name: &str, options: &[&str], argv: &[&str]) -> Command {
    let mut command = place.saggar();
    command.args(["wrap", "--mailbox", "1", "--as", name]).args(options).arg("--").args(argv);
    command
}

/// The server in such a sandbox.
pub(super) const SERVER: [&str; 3] = ["/run/saggar/saggar", "mcp", "mailbox"];

/// A client of the socket in Python: `Client().send(to, message_type, content)` returns the result.
pub(super) const PYTHON_CLIENT: &str = r#"
import json, socket
class Client:
    def __init__(self):
        link = socket.socket(socket.AF_UNIX)
        link.connect('/run/mailbox.sock')
        self.lines = link.makefile('rw')
    def begin(self):
        client = {'name': 'test', 'version': '1'}
        self.ask('initialize', {'protocolVersion': '2025-11-25', 'capabilities': {}, 'clientInfo': client})
        self.write({'method': 'notifications/initialized'})
        return self
    def write(self, message):
        self.lines.write(json.dumps({'jsonrpc': '2.0'} | message) + '\n')
        self.lines.flush()
    def answer(self):
        return json.loads(self.lines.readline())['result']
    def ask(self, method, params):
        self.write({'id': 1, 'method': method, 'params': params})
        return self.answer()
    def post(self, to, message_type, content):
        arguments = {'to': to, 'message_type': message_type, 'content': content}
        self.write({'id': 1, 'method': 'tools/call', 'params': {'name': 'send_to_agent', 'arguments': arguments}})
    def send(self, *message):
        self.post(*message)
        return self.answer()
"#;

/// A shell script that calls a tool by a server of its own in such a sandbox.
pub(super) fn script(tool: &str, arguments: &Value) -> String {
    let client = json!({ "name": "test", "version": "1" });
    let hello = json!({ "protocolVersion": VERSION, "capabilities": {}, "clientInfo": client });
    let messages = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": tool, "arguments": arguments } }),
    ];
    let words = messages.map(|message| format!("'{message}'")).join(" ");
    format!("printf '%s\\n' {words} | {}", SERVER.join(" "))
}

/// The directory of run 1 of the place's repository.
pub(super) fn run_directory(place: &Place) -> PathBuf {
    let runs = place.join("home/.agentpair/runs");
    let repo = std::fs::read_dir(runs).unwrap().next().unwrap().unwrap().path();
    repo.join("1")
}

impl McpClient {
    /// Starts a server and begins the conversation.
    pub(super) fn start(place: &Place, name: &str) -> Self {
        McpClient::silent(place, name).begin()
    }

    /// Starts a server in a sandbox of its own and begins the conversation.
    pub(super) fn start_inside(place: &Place, name: &str, options: &[&str]) -> Self {
        McpClient::begun(place, sandboxed(place, name, options, &SERVER))
    }

    /// Starts this command and begins the conversation.
    pub(super) fn begun(place: &Place, command: Command) -> Self {
        McpClient::of(place, command).begin()
    }

    fn begin(self) -> Self {
        let mut client = self;
        let answer = client.initialize(VERSION);
        assert_eq!(answer["result"]["protocolVersion"], VERSION, "{answer}");
        client
    }

    /// Starts a server.
    pub(super) fn silent(place: &Place, name: &str) -> Self {
        McpClient::of(place, command(place, name))
    }

    /// Starts this command, which serves on its standard streams.
    pub(super) fn of(place: &Place, command: Command) -> Self {
        let mut process = Process::start(place, command);
        let (stdin, lines) = (process.take_stdin(), Lines::new(process.take_stdout()));
        McpClient { process, stdin: Some(stdin), lines, next_id: 0 }
    }

    /// Begins the conversation in a version of the protocol; returns the answer.
    pub(super) fn initialize(&mut self, version: &str) -> Value {
        let client = json!({ "name": "test", "version": "1" });
        let answer = self.request(
            "initialize",
            &json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client }),
        );
        self.write(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        answer
    }

    fn write(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(format!("{message}\n").as_bytes()).unwrap();
    }

    /// Sends a request and returns its answer.
    pub(super) fn request(&mut self, method: &str, params: &Value) -> Value {
        self.next_id += 1;
        self.write(&json!({ "jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params }));
        let answer = self.lines.next_json(Deadline::usual());
        assert_eq!(answer["id"], self.next_id, "{answer}");
        answer
    }

    /// Calls a tool.
    pub(super) fn call(&mut self, tool: &str, arguments: Value) -> CallResult {
        let answer = self.request("tools/call", &json!({ "name": tool, "arguments": arguments }));
        let result = &answer["result"];
        CallResult {
            is_error: result["isError"].as_bool().unwrap_or_else(|| panic!("no result: {answer}")),
            text: result["content"][0]["text"].as_str().unwrap().to_owned(),
            structured: result["structuredContent"].clone(),
        }
    }

    /// Sends a message that is taken; returns the text of the result.
    pub(super) fn send(&mut self, to: &str, message_type: &str, content: &str, signal: &str) -> String {
        let result = self.call(
            "send_to_agent",
            json!({ "to": to, "message_type": message_type, "content": content, "signal": signal }),
        );
        assert!(!result.is_error, "{result:?}");
        result.text
    }

    /// The pid of the server.
    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Kills the server.
    pub(super) fn kill(mut self) {
        self.process.signal(nix::sys::signal::Signal::SIGKILL);
        self.process.wait();
    }

    /// How a server ended that ends by itself, and what it printed on standard error.
    pub(super) fn outcome(mut self) -> (ExitStatus, String) {
        let status = self.process.wait();
        (status, self.process.stderr())
    }

    /// Closes the connection; returns how the server ended.
    pub(super) fn end(mut self) -> ExitStatus {
        drop(self.stdin.take());
        self.process.wait()
    }
}
