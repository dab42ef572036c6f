//! The server as a process.

use super::{Client, hello_body};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A server with a data directory of its own. With its end all its sessions end.
pub struct Server {
    process: Option<Child>,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    directory: TempDir,
    url: String,
    /// What it printed at its last start.
    pub said: String,
}

impl Server {
    /// Starts one.
    pub fn start() -> Self {
        Server::start_with(&[], &[])
    }

    /// Starts one with these flags and variables.
    pub fn start_with(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let own = |text: &&str| (*text).to_owned();
        let mut server = Server {
            process: None,
            arguments: arguments.iter().map(own).collect(),
            variables: variables.iter().map(|(name, value)| (own(name), own(value))).collect(),
            directory: tempfile::tempdir().unwrap(),
            url: String::new(),
            said: String::new(),
        };
        server.start_again();
        server
    }

    /// Starts it on the same data. The former process must be gone.
    pub fn start_again(&mut self) {
        assert!(self.process.is_none());
        let mut command = self.command();
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap());
        self.process = Some(process);
        self.said.clear();
        // The address comes first; a key, if it made one, in the next line.
        lines.read_line(&mut self.said).unwrap();
        let line = self.said.trim_end();
        self.url = line.rsplit_once(" on ").unwrap_or_else(|| panic!("it said {line:?}")).1.to_owned();
        let key_file = self.data().join("initial-api-key");
        if key_file.exists() && self.said.lines().count() == 1 && !self.is_known_key(&key_file) {
            lines.read_line(&mut self.said).unwrap();
        }
        // The pipe must not break under later lines.
        std::thread::spawn(move || lines.lines().map_while(Result::ok).for_each(drop));
    }

    /// Whether the key file is of an earlier start: then no line about it comes.
    fn is_known_key(&self, file: &Path) -> bool {
        let marker = self.directory.path().join("known-key");
        let key = fs::read(file).unwrap();
        let is_known = fs::read(&marker).is_ok_and(|known| known == key);
        fs::write(marker, key).unwrap();
        is_known
    }

    /// The command that starts it.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_saggar-server"));
        command.arg("--data").arg(self.data()).args(["--listen", "127.0.0.1:0"]).args(&self.arguments);
        if !self.arguments.iter().any(|argument| argument == "--saggar") {
            command.arg("--saggar").arg(saggar());
        }
        command.env_remove("ASH_API_KEY").envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null());
        command
    }

    /// Its data directory.
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// A client with its first key.
    pub fn client(&self) -> Client {
        let key = fs::read_to_string(self.data().join("initial-api-key")).unwrap();
        Client::new(&self.url, Some(key.trim()))
    }

    /// A client without a key, or with another.
    pub fn client_with(&self, key: Option<&str>) -> Client {
        Client::new(&self.url, key)
    }

    /// A session of the demo agent: its id.
    pub fn session(&self) -> String {
        let client = self.client();
        client.post("/api/agents", &hello_body("hello")).expect(201);
        client.post("/api/sessions", &json!({ "agent": "hello" })).expect(201)["session"]["id"].text()
    }

    /// Sends it a signal, and waits for its end; its exit status.
    pub fn end(&mut self, signal: Signal) -> std::process::ExitStatus {
        let mut process = self.process.take().unwrap();
        let pid = Pid::from_child(&process);
        kill_process(pid, signal).unwrap();
        process.wait().unwrap()
    }

    /// What `saggar session ARGUMENTS` prints about its sessions.
    pub fn saggar(&self, arguments: &[&str]) -> String {
        let output = self.saggar_command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn saggar_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(saggar());
        command.env("SAGGAR_STATE_DIR", self.data().join("saggar")).arg("session").args(arguments);
        command
    }

    /// What saggar says of a session.
    pub fn record(&self, session: &str) -> Value {
        serde_json::from_str(&self.saggar(&["show", "--json", session])).unwrap()
    }

    /// The supervisor of a session.
    pub fn supervisor(&self, session: &str) -> Pid {
        let pid = self.record(session)["supervisor"]["pid"].as_i64().unwrap();
        Pid::from_raw(pid.try_into().unwrap()).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
        let listed = self.saggar_command(&["list", "--json"]).output().unwrap();
        for line in String::from_utf8_lossy(&listed.stdout).lines() {
            let record: Value = serde_json::from_str(line).unwrap();
            let id = record["id"].as_str().unwrap().to_owned();
            let _ = self.saggar_command(&["end", "--remove", &id]).output();
        }
    }
}

/// The program under test.
fn saggar() -> PathBuf {
    let named = std::env::var_os("SAGGAR_TEST_BINARY").filter(|path| !path.is_empty()).map(PathBuf::from);
    let saggar =
        named.unwrap_or_else(|| Path::new(env!("CARGO_BIN_EXE_saggar-server")).with_file_name("saggar"));
    assert!(saggar.exists(), "{} is missing: cargo build", saggar.display());
    saggar
}

trait Text {
    fn text(&self) -> String;
}

impl Text for Value {
    fn text(&self) -> String {
        self.as_str().unwrap_or_else(|| panic!("{self} is no text")).to_owned()
    }
}
