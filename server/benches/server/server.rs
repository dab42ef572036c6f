//! The server that is measured, and its client.

use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The agents of the server: both are the demo agent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Agent {
    /// Each session starts a sandbox.
    Cold,
    /// One sandbox is started ahead.
    Warm,
}

impl Agent {
    fn name(self) -> &'static str {
        match self {
            Agent::Cold => "cold",
            Agent::Warm => "warm",
        }
    }
}

/// A server with its data in a directory of its own. Dropping it ends its sessions.
pub(crate) struct Server {
    process: Child,
    /// It must stay open: the server may print to it.
    _output: Lines<BufReader<ChildStdout>>,
    directory: TempDir,
    saggar: PathBuf,
    agent: ureq::Agent,
    url: String,
    key: String,
}

impl Server {
    /// Starts a server that permits so many sandboxes, and deploys the agents.
    pub(crate) fn start(max_sandboxes: usize) -> Self {
        let program = Path::new(env!("CARGO_BIN_EXE_saggar-server"));
        let saggar = program.with_file_name("saggar");
        assert!(saggar.exists(), "there is no {}: run cargo build --release", saggar.display());
        let directory =
            tempfile::Builder::new().prefix("saggar-bench").tempdir_in("/var/tmp").expect("a directory");
        let settings = directory.path().join("settings.toml");
        fs::write(&settings, format!("[sandbox]\nmax = {max_sandboxes}\nidle_timeout = 0\n"))
            .expect("a file");
        let mut process = Command::new(program)
            .arg("--data")
            .arg(directory.path().join("data"))
            .args(["--listen", "127.0.0.1:0", "--config"])
            .arg(&settings)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .env("RUST_LOG", "warn")
            .spawn()
            .expect("the server starts");
        let mut output = BufReader::new(process.stdout.take().expect("its output")).lines();
        let mut next_word = || {
            let line = output.next().expect("a line").expect("text");
            line.rsplit_once(' ').expect("words").1.to_owned()
        };
        let (url, key) = (next_word(), next_word());
        let agent = ureq::Agent::config_builder().max_idle_connections_per_host(256).build().into();
        let server = Server { process, _output: output, directory, saggar, agent, url, key };
        for agent in [Agent::Cold, Agent::Warm] {
            server.post("/api/agents", &json!({ "name": agent.name(), "path": example() }));
        }
        server.patch("/api/agents/warm/config", &json!({ "preWarmCount": 1 }));
        server
    }

    /// The process id of the server.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Waits until a sandbox has been started ahead.
    pub(crate) fn wait_until_warm(&self) {
        while self.get("/health")["pool"]["warm"] != 1 {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Creates a session and returns its id.
    pub(crate) fn create_session(&self, agent: Agent) -> String {
        let created = self.post("/api/sessions", &json!({ "agent": agent.name() }));
        created["session"]["id"].as_str().expect("an id").to_owned()
    }

    /// Ends a session.
    pub(crate) fn end_session(&self, id: &str) {
        let request = self.agent.delete(self.address(&format!("/api/sessions/{id}")));
        request.header("authorization", self.authorization()).call().expect("an answer");
    }

    /// Runs one turn. Returns the time from the request to the first message of the agent.
    pub(crate) fn run_turn(&self, id: &str) -> Duration {
        let start = Instant::now();
        let mut response =
            self.send("POST", &format!("/api/sessions/{id}/messages"), &json!({ "content": "hi" }));
        let lines = BufReader::new(response.body_mut().as_reader()).lines();
        let mut first = None;
        for line in lines {
            let line = line.expect("the stream is read");
            if line == "event: message" {
                first.get_or_insert_with(|| start.elapsed());
            }
            if line == "event: done" {
                return first.unwrap_or_default();
            }
        }
        panic!("the turn has no end")
    }

    /// The milliseconds of the command that the server runs for a new session.
    pub(crate) fn time_of_create(&self) -> f64 {
        let start = Instant::now();
        self.saggar(&["create", "--json", "--session", "bench", "--", &example()]);
        let time = start.elapsed().as_secs_f64() * 1e3;
        self.saggar(&["end", "--remove", "bench"]);
        time
    }

    /// The socket of the bridge of a session.
    pub(crate) fn bridge_socket(&self, id: &str) -> PathBuf {
        self.records(&[id])[0]["bridgeSocket"].as_str().expect("a running session").into()
    }

    /// The process ids of the supervisors of all running sessions.
    pub(crate) fn supervisors(&self) -> Vec<u32> {
        let pid = |record: &Value| record["supervisor"]["pid"].as_u64()?.try_into().ok();
        self.records(&[]).iter().filter_map(pid).collect()
    }

    fn records(&self, ids: &[&str]) -> Vec<Value> {
        let listed = self.saggar(&[&["list", "--json"], ids].concat());
        listed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    fn saggar(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(&self.saggar);
        command.arg("session").args(arguments).stdin(Stdio::null()).stderr(Stdio::inherit());
        command.env("SAGGAR_STATE_DIR", self.directory.path().join("data/saggar"));
        let output = command.output().expect("saggar runs");
        assert!(output.status.success(), "saggar session {arguments:?}: {}", output.status);
        String::from_utf8(output.stdout).expect("text")
    }

    fn get(&self, path: &str) -> Value {
        let request = self.agent.get(self.address(path)).header("authorization", self.authorization());
        request.call().expect("an answer").body_mut().read_json().expect("JSON")
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.send("POST", path, body).body_mut().read_json().expect("JSON")
    }

    fn patch(&self, path: &str, body: &Value) -> Value {
        self.send("PATCH", path, body).body_mut().read_json().expect("JSON")
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> ureq::http::Response<ureq::Body> {
        let address = self.address(path);
        let request = if method == "POST" { self.agent.post(address) } else { self.agent.patch(address) };
        request.header("authorization", self.authorization()).send_json(body).expect("an answer")
    }

    fn address(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    fn authorization(&self) -> String {
        format!("Bearer {}", self.key)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        for record in self.records(&[]) {
            self.saggar(&["end", "--remove", record["id"].as_str().unwrap_or_default()]);
        }
    }
}

/// The folder of the demo agent.
fn example() -> String {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
    repository.join("examples/hello").to_str().expect("a plain path").to_owned()
}
