//! The agent inside saggar: started as a server starts it, and reached over the bridge socket alone.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ChildStdout;

use nix::sys::signal::Signal;
use serde_json::json;

use super::program;
use crate::mock_api::MockApi;
use crate::support::bridge_client::BridgeClient;
use crate::support::caller::Caller;
use crate::support::place::Place;
use crate::support::process::{Process, Watch, killed_by};

/// What the agent's folder says; it stands in every conversation.
pub(super) const FOLDER_SAYS: &str = "The glaze of this folder is celadon.";

/// A place with an agent folder, the mock in it, and the program.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) api: MockApi,
    pub(super) place: Place,
    program: PathBuf,
}

impl Stage {
    /// Everything but the runtime.
    pub(super) fn new(caller: Caller, program: &Path) -> Self {
        let place = Place::new(caller);
        place.make_file("work/CLAUDE.md", FOLDER_SAYS);
        let program = place.reachable(program);
        Stage { api: MockApi::on_unix(&place.join("api.sock")), place, program }
    }

    /// The agent's program.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// The id of this stage's session: its place is no other's.
    fn session(&self) -> String {
        let name = self.place.path().file_name().expect("a place has a name");
        name.to_string_lossy().into_owned()
    }

    /// Starts `saggar agent` and waits until its bridge listens.
    pub(super) fn runtime(&self, options: &[&str]) -> BoxedAgent {
        let socket = self.place.join("run/bridge.sock");
        let mut command = self.place.saggar();
        command
            .arg("agent")
            .arg(self.place.work())
            .arg("--workspace")
            .arg(self.place.work())
            .args(["--adapter", "stream-json", "--agent-cmd"])
            .arg(&self.program)
            .arg("--api-socket")
            .arg(self.place.join("api.sock"))
            .arg("--bridge-socket")
            .arg(&socket)
            .args(["--ready-fd", "1", "--session", &self.session()])
            .args(options)
            .envs(program::ENVIRONMENT);
        let mut process = Process::start(&self.place, command);
        let stdout = process.take_ready_stdout();
        let name = self.program.file_name().expect("a program has a name").to_owned();
        BoxedAgent { process, stdout, socket, name }
    }
}

/// A running `saggar agent` that serves its bridge.
#[derive(Debug)]
pub(super) struct BoxedAgent {
    process: Process,
    stdout: ChildStdout,
    socket: PathBuf,
    /// The file name of the agent's program.
    name: OsString,
}

impl BoxedAgent {
    /// A new connection, after its `ready`.
    pub(super) fn connect(&self) -> BridgeClient {
        BridgeClient::connect(&self.socket)
    }

    /// The agent's own process on the host; it runs from its first query on.
    pub(super) fn agent(&self) -> Watch {
        let descendants = self.process.descendants();
        // Nearest first: what the agent forks bears its name until it executes something else.
        let named = |arguments: &[String]| {
            arguments.first().is_some_and(|name| Path::new(name).ends_with(&self.name))
        };
        let agent = descendants.iter().find(|(_, arguments)| named(arguments));
        let (pid, _) = agent.unwrap_or_else(|| panic!("no agent below the runtime: {descendants:?}"));
        Watch::of(*pid).expect("the agent is alive")
    }

    /// Kills the runtime; everything in the sandbox goes with it.
    pub(super) fn kill(mut self) {
        let agent = self.agent();
        self.process.signal(Signal::SIGKILL);
        assert!(killed_by(self.process.wait(), Signal::SIGKILL));
        agent.wait_gone("the agent of a killed runtime");
    }

    /// Shuts down over the bridge: exit 0, nothing but the `R` on stdout, no socket left.
    pub(super) fn shut_down(mut self, client: &mut BridgeClient) {
        client.send(&json!({"cmd": "shutdown"}));
        let status = self.process.wait();
        assert!(status.success(), "{status}; stderr:\n{}", self.process.stderr());
        client.expect_close();
        let mut rest = Vec::new();
        self.stdout.read_to_end(&mut rest).expect("stdout is readable");
        assert_eq!(rest, b"", "stdout carries the ready byte alone");
        assert!(!self.socket.exists(), "the socket is gone");
    }
}
