//! A work tree with two demo agents, and runs in it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::bridge::served::{Ended, Stage};
use crate::mailbox::tools::CONVERSATION;
use crate::support::caller::Caller;
use crate::support::process::Process;

/// Where pair runs are made; their sessions are removed with it.
pub(crate) struct Pairs {
    pub(crate) stage: Stage,
}

impl Pairs {
    /// Two demo agents, codex and claude, that send the example conversation of the reference.
    pub(crate) fn new(caller: Caller) -> Self {
        let pairs = Pairs { stage: Stage::new(caller) };
        for agent in ["codex", "claude"] {
            pairs.add_agent(agent, "adapter = 'demo'\n");
        }
        // The task is the runner's, in the name of the reviewer.
        let iteration = |agent: &str, range: std::ops::Range<usize>| -> Vec<Value> {
            let sent = CONVERSATION[range].iter().filter(|(from, ..)| *from == agent);
            sent.map(|(_, to, message_type, content, signal)| {
                json!({ "to": to, "message_type": message_type, "content": content, "signal": signal })
            })
            .collect()
        };
        for agent in ["codex", "claude"] {
            let script = json!([iteration(agent, 1..3), iteration(agent, 3..6)]);
            pairs.stage.place.make_file(&format!("{agent}/demo.json"), &script.to_string());
        }
        pairs
    }

    /// A folder of an agent, beside the work tree.
    pub(crate) fn add_agent(&self, name: &str, policy: &str) -> PathBuf {
        let place = &self.stage.place;
        let folder = place.make_dir(name, 0o755);
        place.make_file(&format!("{name}/CLAUDE.md"), "An agent of a test.\n");
        place.make_file(&format!("{name}/saggar.toml"), policy);
        folder
    }

    /// `saggar pair`, with these words.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.stage.place.saggar();
        command.arg("pair").args(words);
        command
    }

    /// `saggar pair run` of these two agents on the example's task, with more words.
    pub(crate) fn run_command(&self, more: &[&str]) -> Command {
        let (worker, reviewer) = (self.stage.place.join("codex"), self.stage.place.join("claude"));
        let (worker, reviewer) = (worker.to_str().unwrap(), reviewer.to_str().unwrap());
        let words = ["run", "--task", CONVERSATION[0].3, "--worker", worker, "--reviewer", reviewer];
        self.command(&[&words, more].concat())
    }

    /// A whole run of a command.
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

    /// Starts a command.
    pub(crate) fn start(&self, command: Command) -> Process {
        let mut process = Process::start(&self.stage.place, command);
        drop(process.take_stdin());
        process
    }

    /// The messages of a run, as `(from, to, type, content, signal)`.
    pub(crate) fn messages(&self, run: u64) -> Vec<[String; 5]> {
        let runs = self.stage.place.join("home/.agentpair/runs");
        let repo = fs::read_dir(runs).unwrap().next().unwrap().unwrap().path();
        let text = fs::read_to_string(repo.join(format!("{run}/bridge.jsonl"))).unwrap_or_default();
        text.lines().map(|line| fields(&serde_json::from_str(line).unwrap())).collect()
    }

    /// The ids of all sessions.
    pub(crate) fn sessions(&self) -> Vec<String> {
        let directory = self.stage.place.join("state/saggar/sessions");
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }
}

impl Drop for Pairs {
    fn drop(&mut self) {
        for session in self.sessions() {
            let mut command = self.stage.place.saggar();
            let _ = command.args(["session", "end", "--remove", &session]).output();
        }
    }
}

/// The fields of a message that the example has.
pub(crate) fn fields(message: &Value) -> [String; 5] {
    ["from", "to", "type", "content", "signal"]
        .map(|key| message[key].as_str().unwrap_or_default().to_owned())
}

/// The example conversation.
pub(crate) fn expected() -> Vec<[String; 5]> {
    CONVERSATION
        .map(|(from, to, message_type, content, signal)| {
            [from, to, message_type, content, signal].map(str::to_owned)
        })
        .to_vec()
}
