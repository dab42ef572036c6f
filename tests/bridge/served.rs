//! `saggar agent` as a server starts it: a place with an agent's folder, scripts for agents, and the bridge.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, ExitStatus};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::bridge_client::BridgeClient;
use crate::support::caller::Caller;
use crate::support::deadline::Deadline;
use crate::support::place::Place;
use crate::support::process::{Process, Watch};

/// A place whose `work` is an agent's folder.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) place: Place,
}

/// What a whole run of `saggar` left.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// Asserts that saggar refused with this exit status, and says all of `words`.
    pub(crate) fn refused(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "no {word:?} in: {}", self.stderr);
        }
        assert_eq!(self.stdout, "", "nothing ran");
    }
}

impl Stage {
    pub(crate) fn new(caller: Caller) -> Self {
        let place = Place::new(caller);
        place.make_file("work/CLAUDE.md", "The folder of a test.\n");
        Stage { place }
    }

    /// A name that no other stage has.
    pub(crate) fn name(&self) -> String {
        self.place.path().file_name().expect("a place has a name").to_string_lossy().into_owned()
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.place.work()
    }

    /// The usual socket, in a directory of the caller alone.
    pub(crate) fn socket(&self) -> PathBuf {
        self.place.join("run/b.sock")
    }

    /// An executable file in the folder; its path, outside and inside.
    pub(crate) fn script(&self, name: &str, text: &str) -> String {
        let path = self.place.make_file(&format!("work/{name}"), text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().expect("a plain path").to_owned()
    }

    /// `saggar agent` on the folder itself, as a session of this stage.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, options: &[S]) -> Command {
        let mut command = self.place.saggar();
        command.arg("agent").arg(self.work()).arg("--workspace").arg(self.work());
        command.args(["--session", &self.name(), "--id", &self.name()]).args(options);
        command
    }

    /// Serves on [`Stage::socket`]; waits until it listens.
    pub(crate) fn serve(&self, options: &[&str]) -> Served {
        let socket = self.socket();
        let mut command = self.command(options);
        command.arg("--bridge-socket").arg(&socket).args(["--ready-fd", "1"]);
        Served::start(&self.place, command, &socket)
    }

    /// Serves the built-in demo agent.
    pub(crate) fn demo(&self) -> Served {
        self.serve(&["--adapter", "demo"])
    }

    /// Serves a script that speaks `adapter`.
    pub(crate) fn scripted(&self, adapter: &str, text: &str) -> Served {
        let script = self.script("agent", text);
        self.serve(&["--adapter", adapter, "--agent-cmd", &script])
    }

    /// A whole run of a command of this stage.
    pub(crate) fn run(&self, command: Command) -> Ended {
        let mut process = Process::start(&self.place, command);
        drop(process.take_stdin());
        let stdout = String::from_utf8(process.read_stdout()).expect("stdout is text");
        let status = process.wait();
        let code = status.code().unwrap_or_else(|| panic!("saggar died: {status}; {}", process.stderr()));
        Ended { code, stdout, stderr: process.stderr() }
    }
}

/// A running `saggar agent`; its `R` was read.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) process: Process,
    stdout: ChildStdout,
    pub(crate) socket: PathBuf,
}

impl Served {
    /// Starts `command`, which is to write its ready byte to stdout.
    pub(crate) fn start(place: &Place, command: Command, socket: &Path) -> Self {
        let mut process = Process::start(place, command);
        let stdout = process.take_ready_stdout();
        Served { process, stdout, socket: socket.to_owned() }
    }

    /// A new connection, after its `ready`.
    pub(crate) fn connect(&self) -> BridgeClient {
        BridgeClient::connect(&self.socket)
    }

    /// The process inside whose arguments contain `word`.
    pub(crate) fn inside(&self, word: &str) -> Watch {
        let descendants = self.process.descendants();
        let found = descendants.iter().find(|(_, words)| words.iter().any(|one| one.contains(word)));
        let (pid, _) = found.unwrap_or_else(|| panic!("no {word} below the runtime: {descendants:?}"));
        Watch::of(*pid).expect("it is alive")
    }

    /// Memory of the supervisor that is its own, in KiB.
    pub(crate) fn rss(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// The most memory that the supervisor ever had, in KiB.
    pub(crate) fn peak(&self) -> u64 {
        self.status("VmHWM:")
    }

    fn status(&self, name: &str) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.process.pid())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the field is there");
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// How many descriptors the supervisor has.
    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.process.pid())).unwrap().count()
    }

    /// CPU time of the supervisor so far, in clock ticks of 10 ms.
    pub(crate) fn ticks(&self) -> u64 {
        self.process.ticks()
    }

    /// Shuts down over the bridge: exit 0, nothing but the `R` on stdout, no socket left.
    pub(crate) fn shut_down(self, client: &mut BridgeClient) {
        client.send(&json!({"cmd": "shutdown"}));
        let socket = self.socket.clone();
        let (status, stderr) = self.end();
        assert!(status.success(), "{status}; stderr:\n{stderr}");
        client.expect_close();
        assert!(!socket.exists(), "the socket is gone");
    }

    /// Waits for its end, and for that of its stdout, which must hold nothing.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let status = self.process.wait();
        let rest = Deadline::usual().read_to_end(&mut self.stdout).expect("stdout is readable to its end");
        assert_eq!(rest, b"", "stdout carries the ready byte alone");
        (status, self.process.stderr())
    }

    /// Ends it by a signal.
    pub(crate) fn end_by(self, signal: Signal) -> (ExitStatus, String) {
        self.process.signal(signal);
        self.end()
    }
}
