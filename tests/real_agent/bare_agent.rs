//! The agent without a sandbox: its stdin and stdout are ours, its API is the mock.

use std::io::Write;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, ExitStatus};

use serde_json::{Value, json};

use super::program;
use crate::support::deadline::Deadline;
use crate::support::lines::Lines;
use crate::support::place::Place;
use crate::support::process::Process;

/// A running agent that speaks stream-json.
#[derive(Debug)]
pub(super) struct BareAgent {
    process: Process,
    input: Option<ChildStdin>,
    output: Lines<ChildStdout>,
}

impl BareAgent {
    /// Starts the agent in the work folder of `place`, its state in the place's home.
    pub(super) fn start(place: &Place, program: &Path, api: &Path, options: &[&str]) -> Self {
        let mut command = place.command(program);
        command
            .args(["-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"])
            .args(options)
            .envs(program::ENVIRONMENT)
            .env("ANTHROPIC_UNIX_SOCKET", api)
            .env("ANTHROPIC_BASE_URL", "http://localhost")
            .env("CLAUDE_CONFIG_DIR", place.join("home/claude"))
            .env("CLAUDE_CODE_TMPDIR", place.join("tmp"));
        let mut process = Process::start(place, command);
        let input = Some(process.take_stdin());
        let output = Lines::new(process.take_stdout());
        BareAgent { process, input, output }
    }

    /// The process.
    pub(super) fn process(&self) -> &Process {
        &self.process
    }

    /// Sends one object as a line.
    pub(super) fn send(&mut self, object: &Value) {
        let input = self.input.as_mut().expect("stdin is open");
        writeln!(input, "{object}").expect("the agent reads its stdin");
    }

    /// Sends a prompt.
    pub(super) fn prompt(&mut self, text: &str) {
        self.send(&json!({"type": "user", "message": {"role": "user", "content": text}}));
    }

    /// Sends a control request and leaves its answer to be read.
    pub(super) fn control(&mut self, id: &str, request: &Value) {
        self.send(&json!({"type": "control_request", "request_id": id, "request": request}));
    }

    /// All lines up to and with the first that `last` accepts.
    pub(super) fn until(&mut self, last: impl Fn(&Value) -> bool) -> Vec<Value> {
        self.output.until(Deadline::usual(), last)
    }

    /// All lines up to the `result` of the turn.
    pub(super) fn result(&mut self) -> Vec<Value> {
        self.until(|line| line["type"] == "result")
    }

    /// A whole turn.
    pub(super) fn turn(&mut self, prompt: &str) -> Vec<Value> {
        self.prompt(prompt);
        self.result()
    }

    /// Closes its stdin and waits for its end.
    pub(super) fn finish(mut self) -> ExitStatus {
        self.input = None;
        self.process.wait()
    }

    /// Waits for its end, whatever brings it.
    pub(super) fn wait(&mut self) -> ExitStatus {
        self.process.wait()
    }
}
