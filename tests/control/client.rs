//! A server's end of the control socket: calls with ids, and the notifications that come between.

use std::collections::VecDeque;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::bridge::served::{Served, Stage};
use crate::support::deadline::Deadline;
use crate::support::lines::Lines;

/// One connection.
pub(crate) struct ControlClient {
    lines: Lines<UnixStream>,
    next: u64,
    /// Notifications that came while an answer was waited for.
    pub(crate) heard: VecDeque<Value>,
}

/// Where the control socket of a stage is.
pub(crate) fn socket(stage: &Stage) -> PathBuf {
    stage.place.join("run/c.sock")
}

/// Serves an agent with a control socket there.
pub(crate) fn serve(stage: &Stage, options: &[&str]) -> Served {
    let socket = socket(stage);
    stage.serve(&[&["--control-socket", socket.to_str().unwrap()], options].concat())
}

impl ControlClient {
    /// Connects, without a greeting.
    pub(crate) fn silent(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket)
            .unwrap_or_else(|error| panic!("cannot connect to {}: {error}", socket.display()));
        ControlClient::over(stream)
    }

    /// Over a connection that stands, without a greeting.
    pub(crate) fn over(stream: UnixStream) -> Self {
        ControlClient { lines: Lines::new(stream), next: 1, heard: VecDeque::new() }
    }

    /// Connects and greets.
    pub(crate) fn connect(socket: &Path) -> Self {
        ControlClient::silent(socket).greeted()
    }

    /// Greets.
    pub(crate) fn greeted(self) -> Self {
        let mut client = self;
        let greeting = client.call("hello", &json!({ "version": 1 }));
        assert_eq!(greeting["version"], 1, "{greeting}");
        client
    }

    /// Sends bytes as they are.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.lines.source().write_all(bytes).unwrap();
    }

    /// The next line.
    pub(crate) fn line(&mut self) -> Value {
        let line = self.lines.next_line(Deadline::usual()).unwrap().expect("a line");
        serde_json::from_slice(&line).unwrap()
    }

    /// Asks, and does not wait for the answer; its id.
    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> u64 {
        let id = self.next;
        self.next += 1;
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send(format!("{call}\n").as_bytes());
        id
    }

    /// The answer with this id, whole.
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        loop {
            let line = self.line();
            if line.get("method").is_some() {
                self.heard.push_back(line);
                continue;
            }
            assert_eq!((&line["jsonrpc"], &line["id"]), (&json!("2.0"), &json!(id)), "{line}");
            return line;
        }
    }

    /// Calls; the result.
    #[track_caller]
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Value {
        let id = self.ask(method, params);
        let mut answer = self.answer(id);
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].take()
    }

    /// Calls without parameters; the result.
    #[track_caller]
    pub(crate) fn get(&mut self, method: &str) -> Value {
        self.call(method, &json!({}))
    }

    /// Calls, and is refused; the name and the message of the error.
    #[track_caller]
    pub(crate) fn refused(&mut self, method: &str, params: &Value) -> (String, String) {
        let id = self.ask(method, params);
        let answer = self.answer(id);
        let error = answer.get("error").unwrap_or_else(|| panic!("{method}: {answer}"));
        assert!(error["code"].is_i64(), "{error}");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&error["data"]["name"]), text(&error["message"]))
    }

    /// The next event.
    pub(crate) fn event(&mut self) -> Value {
        let mut line = self.heard.pop_front().unwrap_or_else(|| self.line());
        assert_eq!(line["method"], "event", "{line}");
        line["params"].take()
    }
}
