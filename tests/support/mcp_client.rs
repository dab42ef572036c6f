//! A client of a server of the Model Context Protocol, line by line.

use std::io::Write;
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::deadline::Deadline;
use super::lines::Lines;
use super::place::Place;
use super::process::Process;

/// The protocol version that a client of today asks for first.
pub(crate) const VERSION: &str = "2025-11-25";

/// A server that serves on its standard streams.
#[derive(Debug)]
pub(crate) struct McpClient {
    process: Process,
    stdin: Option<ChildStdin>,
    lines: Lines<ChildStdout>,
    next_id: u64,
    /// The answer to a question of the server; without one the client cannot be asked.
    consent: Option<&'static str>,
    /// The questions of the server.
    pub(crate) asked: Vec<String>,
}

/// The result of a call.
#[derive(Debug)]
pub(crate) struct CallResult {
    pub(crate) is_error: bool,
    /// The first block; later ones are notes.
    pub(crate) text: String,
    pub(crate) structured: Value,
}

impl CallResult {
    /// The result in a response.
    #[track_caller]
    pub(crate) fn of(response: &Value) -> Self {
        let result = &response["result"];
        CallResult {
            is_error: result["isError"].as_bool().unwrap_or_else(|| panic!("no result: {response}")),
            text: result["content"][0]["text"].as_str().unwrap().to_owned(),
            structured: result["structuredContent"].clone(),
        }
    }
}

impl McpClient {
    /// Starts this command and begins the conversation.
    pub(crate) fn begun(place: &Place, command: Command) -> Self {
        McpClient::of(place, command).begin()
    }

    /// Begins the conversation.
    pub(crate) fn begin(self) -> Self {
        let mut client = self;
        let answer = client.initialize(VERSION);
        assert_eq!(answer["result"]["protocolVersion"], VERSION, "{answer}");
        client
    }

    /// Starts this command, which serves on its standard streams.
    pub(crate) fn of(place: &Place, command: Command) -> Self {
        let mut process = Process::start(place, command);
        let (stdin, lines) = (process.take_stdin(), Lines::new(process.take_stdout()));
        McpClient { process, stdin: Some(stdin), lines, next_id: 0, consent: None, asked: Vec::new() }
    }

    /// The client answers questions with this action: accept, decline or cancel.
    pub(crate) fn consenting(mut self, action: &'static str) -> Self {
        self.consent = Some(action);
        self
    }

    /// Begins the conversation in a version of the protocol; returns the answer.
    pub(crate) fn initialize(&mut self, version: &str) -> Value {
        let client = json!({ "name": "test", "version": "1" });
        let params =
            json!({ "protocolVersion": version, "capabilities": self.capabilities(), "clientInfo": client });
        let answer = self.request("initialize", &params);
        self.notify("notifications/initialized", &json!({}));
        answer
    }

    /// What the client can do.
    pub(crate) fn capabilities(&self) -> Value {
        if self.consent.is_some() { json!({ "elicitation": {} }) } else { json!({}) }
    }

    fn write(&mut self, message: &Value) {
        self.write_line(message.to_string().as_bytes());
    }

    /// Sends a line, whatever it is.
    pub(crate) fn write_line(&mut self, line: &[u8]) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(&[line, b"\n"].concat()).unwrap();
    }

    /// Sends a notification.
    pub(crate) fn notify(&mut self, method: &str, params: &Value) {
        self.write(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// Sends a request and returns its id.
    pub(crate) fn start_request(&mut self, method: &str, params: &Value) -> u64 {
        self.next_id += 1;
        self.write(&json!({ "jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params }));
        self.next_id
    }

    /// The next response; questions of the server before it are answered.
    pub(crate) fn response(&mut self) -> Value {
        loop {
            let message = self.lines.next_json(Deadline::usual());
            if message["method"] != "elicitation/create" {
                return message;
            }
            self.asked.push(message["params"]["message"].as_str().unwrap().to_owned());
            let result = json!({ "action": self.consent.expect("the client can be asked"), "content": {} });
            self.write(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }));
        }
    }

    /// Sends a request and returns its answer.
    pub(crate) fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = self.start_request(method, params);
        let answer = self.response();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    /// Starts a call of a tool; returns its id.
    pub(crate) fn start_call(&mut self, tool: &str, arguments: &Value) -> u64 {
        self.start_request("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// Calls a tool.
    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> CallResult {
        CallResult::of(&self.request("tools/call", &json!({ "name": tool, "arguments": arguments })))
    }

    /// The pid of the server.
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Kills the server.
    pub(crate) fn kill(self) {
        self.end_by(Signal::SIGKILL);
    }

    /// Ends the server by a signal.
    pub(crate) fn end_by(mut self, signal: Signal) -> ExitStatus {
        self.process.signal(signal);
        self.process.wait()
    }

    /// How a server ended that ends by itself, and what it printed on standard error.
    pub(crate) fn outcome(mut self) -> (ExitStatus, String) {
        let status = self.process.wait();
        (status, self.process.stderr())
    }

    /// Closes the connection; returns how the server ended.
    pub(crate) fn end(mut self) -> ExitStatus {
        drop(self.stdin.take());
        self.process.wait()
    }
}
