//! `saggar mcp mailbox`, on the host and in sandboxes.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

pub(super) use crate::support::mcp_client::{McpClient, VERSION};
use crate::support::place::Place;

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
    /// Starts a server of the mailbox of run 1 and begins the conversation.
    pub(super) fn start(place: &Place, name: &str) -> Self {
        McpClient::begun(place, command(place, name))
    }

    /// Starts a server in a sandbox of its own and begins the conversation.
    pub(super) fn start_inside(place: &Place, name: &str, options: &[&str]) -> Self {
        McpClient::begun(place, sandboxed(place, name, options, &SERVER))
    }

    /// Starts a server.
    pub(super) fn silent(place: &Place, name: &str) -> Self {
        McpClient::of(place, command(place, name))
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
}
