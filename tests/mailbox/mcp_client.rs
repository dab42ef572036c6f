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

/// The directory of run 1 of the place's repository.
pub(super) fn run_directory(place: &Place) -> PathBuf {
    let runs = place.join("home/.agentpair/runs");
    let repo = std::fs::read_dir(runs).unwrap().next().unwrap().unwrap().path();
    repo.join("1")
}

impl McpClient {
    /// Starts a server and begins the conversation.
    pub(super) fn start(place: &Place, name: &str) -> Self {
        let mut client = McpClient::silent(place, name);
        let answer = client.initialize(VERSION);
        assert_eq!(answer["result"]["protocolVersion"], VERSION, "{answer}");
        client
    }

    /// Starts a server.
    pub(super) fn silent(place: &Place, name: &str) -> Self {
        let mut process = Process::start(place, command(place, name));
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

    /// Closes the connection; returns how the server ended.
    pub(super) fn end(mut self) -> ExitStatus {
        drop(self.stdin.take());
        self.process.wait()
    }
}
