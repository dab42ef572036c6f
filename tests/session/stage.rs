//! A place with sessions: they are ended and removed with it, whatever becomes of the test.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::bridge::served::{Ended, Stage};
use crate::control::client::ControlClient;
use crate::support::bridge_client::BridgeClient;
use crate::support::caller::Caller;
use crate::support::process::Watch;

/// Where sessions are made.
pub(crate) struct Sessions {
    pub(crate) stage: Stage,
}

impl Sessions {
    pub(crate) fn new(caller: Caller) -> Self {
        Sessions { stage: Stage::new(caller) }
    }

    /// `saggar session`, with these words.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.stage.place.saggar();
        command.arg("session").args(words);
        command
    }

    /// A whole run of it.
    pub(crate) fn run(&self, words: &[&str]) -> Ended {
        self.stage.run(self.command(words))
    }

    /// A run that succeeds; what it printed.
    #[track_caller]
    pub(crate) fn ok(&self, words: &[&str]) -> String {
        let ended = self.run(words);
        assert_eq!(ended.code, 0, "{words:?}: {ended:?}");
        ended.stdout
    }

    /// Creates a session of the demo agent on the folder of the stage; what it says of itself.
    #[track_caller]
    pub(crate) fn create(&self, name: &str, options: &[&str]) -> Value {
        let work = self.stage.work();
        let words = ["create", "--json", "--session", name, "--adapter", "demo"];
        json(&self.ok(&[&words, options, &[work.to_str().unwrap()]].concat()))
    }

    /// What `session show` says.
    #[track_caller]
    pub(crate) fn show(&self, name: &str) -> Value {
        json(&self.ok(&["show", "--json", name]))
    }

    /// The state and the reason.
    #[track_caller]
    pub(crate) fn state(&self, name: &str) -> (String, Option<String>) {
        let shown = self.show(name);
        (text(&shown, "state"), shown["reason"].as_str().map(str::to_owned))
    }

    /// Every session.
    pub(crate) fn list(&self) -> Vec<Value> {
        self.ok(&["list", "--json"]).lines().map(json).collect()
    }

    /// The last answer of a turn.
    #[track_caller]
    pub(crate) fn send(&self, name: &str, prompt: &str) -> String {
        let said = self.ok(&["send", "--json", name, prompt]);
        text(&json(said.lines().last().expect("a message")), "result")
    }

    /// Runs a shell script of the caller in the folder of the stage, outside; what it printed.
    #[track_caller]
    pub(crate) fn outside(&self, script: &str) -> String {
        let mut command = self.stage.place.command("/bin/sh".as_ref());
        command.arg("-c").arg(script).current_dir(self.stage.work());
        let ended = self.stage.run(command);
        assert_eq!(ended.code, 0, "{script}: {ended:?}");
        ended.stdout
    }

    /// The directory of a session.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        self.stage.place.join("state/saggar/sessions").join(name)
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        for entry in fs::read_dir(self.directory("")).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let _ = self.command(&["end", "--remove", &name]).output();
        }
    }
}

/// A text as JSON.
#[track_caller]
pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A field that is a text.
#[track_caller]
pub(crate) fn text(object: &Value, field: &str) -> String {
    object[field].as_str().unwrap_or_else(|| panic!("no {field} in {object}")).to_owned()
}

/// The supervisor of a session that is served.
#[track_caller]
pub(crate) fn supervisor(session: &Value) -> Watch {
    let pid = session["supervisor"]["pid"].as_u64().unwrap_or_else(|| panic!("no supervisor in {session}"));
    Watch::of(u32::try_from(pid).unwrap()).expect("the supervisor lives")
}

/// A connection to its bridge.
#[track_caller]
pub(crate) fn bridge(session: &Value) -> BridgeClient {
    BridgeClient::connect(text(session, "bridgeSocket").as_ref())
}

/// A connection to its control socket.
#[track_caller]
pub(crate) fn control(session: &Value) -> ControlClient {
    ControlClient::connect(text(session, "controlSocket").as_ref())
}

/// The agent of a session that is served.
#[track_caller]
pub(crate) fn agent(session: &Value) -> Watch {
    let pid = control(session).get("state")["pid"].as_u64().unwrap();
    Watch::of(u32::try_from(pid).unwrap()).expect("the agent lives")
}

/// The state of its supervisor as proc_pid_status(5) has it.
pub(crate) fn status(pid: u32, field: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)).expect("the field is there");
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
