//! An agent that a server speaks with, in a place with hosts beside it.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::Network;
use crate::control::client::ControlClient;
use crate::support::bridge_client::BridgeClient;
use crate::support::deadline::Deadline;
use crate::support::process::{Process, Watch};
use crate::support::wait::until_exists;

/// The agent and its server.
pub(crate) struct Served {
    process: Process,
    control: PathBuf,
    pub(crate) server: BridgeClient,
}

impl Served {
    /// The demo agent with these options, when it listens.
    pub(crate) fn new(network: &Network, options: &[&str]) -> Self {
        Served::started_by(network, "exec \"$@\" 3>events", options)
    }

    /// The same, where a shell script starts saggar as `"$@"`, with its status events on descriptor 3.
    pub(crate) fn started_by(network: &Network, starter: &str, options: &[&str]) -> Self {
        Served::looked_at(network, starter, options, |_| ()).0
    }

    /// The demo agent with these options, and its supervisor and pid 1, which was stopped as soon as it was there.
    pub(crate) fn stopped(network: &Network, options: &[&str]) -> (Self, [Watch; 2]) {
        let deadline = Deadline::usual();
        Served::looked_at(network, "exec \"$@\" 3>events", options, |process| {
            loop {
                if let Some([supervisor, init]) = supervisor_and_init(process) {
                    init.stop();
                    return [supervisor, init];
                }
                assert!(!deadline.remaining().is_zero(), "it has no pid 1");
            }
        })
    }

    /// Has a look at the process before it is waited for.
    fn looked_at<T>(
        network: &Network,
        starter: &str,
        options: &[&str],
        look: impl Fn(&Process) -> T,
    ) -> (Self, T) {
        let (place, work) = (&network.wrap.place, network.wrap.work());
        place.make_file("work/CLAUDE.md", "");
        let directory = place.join("run");
        let (bridge, control) = (directory.join("b.sock"), directory.join("c.sock"));
        let mut saggar = place.saggar();
        saggar.arg("agent").arg(&work).arg("--workspace").arg(&work);
        saggar.args(["--adapter", "demo", "--status-fd", "3"]).args(options);
        saggar.arg("--bridge-socket").arg(&bridge).arg("--control-socket").arg(&control);
        let command = network.command(&["/bin/sh", "-c", starter, "sh"], &saggar);
        let process = Process::start(place, command);
        let looked = look(&process);
        let server = BridgeClient::over(connect(network, &bridge)).greeted();
        (Served { process, control, server }, looked)
    }

    /// A connection to the control socket.
    pub(crate) fn control(&self, network: &Network) -> ControlClient {
        ControlClient::over(connect(network, &self.control)).greeted()
    }

    /// Has a shell command run beside the agent; [`Served::ran`] has its end.
    pub(crate) fn begin(&mut self, command: &str) {
        self.server.send(&json!({ "cmd": "exec", "command": command, "timeout": 60_000 }));
    }

    /// What the command said.
    pub(crate) fn ran(&mut self) -> String {
        let events = self.server.events_until(|event| event["ev"] == "done");
        let result = events.iter().find(|event| event["ev"] == "exec_result").expect("a result");
        result["stdout"].as_str().unwrap().to_owned()
    }

    /// Both.
    pub(crate) fn run(&mut self, command: &str) -> String {
        self.begin(command);
        self.ran()
    }

    /// The next question.
    pub(crate) fn question(&mut self) -> Value {
        let is_question = |event: &Value| event["data"]["type"] == "control_request";
        self.server.events_until(is_question).pop().expect("a question")["data"].take()
    }

    /// Answers a question.
    pub(crate) fn answer(&mut self, question: &Value, body: &Value) {
        let response =
            json!({ "subtype": "success", "request_id": question["request_id"], "response": body });
        self.server.send(&json!({ "type": "control_response", "response": response }));
    }

    /// Ends the agent and what runs beside it.
    pub(crate) fn end(mut self) {
        self.server.send(&json!({ "cmd": "shutdown" }));
        assert!(self.process.wait().success(), "{}", self.process.stderr());
    }
}

/// The supervisor below this process, and pid 1 of its sandbox.
fn supervisor_and_init(process: &Process) -> Option<[Watch; 2]> {
    let field = |pid: u32, name: &str| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned()
    };
    let is_init = |pid: &u32| field(*pid, "NSpid:").split_whitespace().skip(1).last() == Some("1");
    let mut processes = process.descendants().into_iter().map(|(pid, _)| pid);
    let init = processes.rfind(is_init)?;
    Some([Watch::of(field(init, "PPid:").trim().parse().ok()?)?, Watch::of(init)?])
}

/// Connects as the caller of the test: in its network it sees nobody else for who they are. The path is there a moment
/// before anybody listens.
fn connect(network: &Network, socket: &Path) -> UnixStream {
    until_exists(socket);
    let deadline = Deadline::usual();
    loop {
        match network.wrap.place.caller.connect(socket) {
            Ok(stream) => return stream,
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}"),
        }
        assert!(!deadline.remaining().is_zero(), "nobody listens on {}", socket.display());
    }
}
