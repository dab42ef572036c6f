//! Sessions of the real agent: what is killed goes on with its conversation.

use std::path::PathBuf;
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::boxed::answer;
use super::boxed_agent::Stage;
use crate::support::bridge_client::BridgeClient;
use crate::support::process::Watch;

/// A session of a stage; it goes with it.
struct Held<'a> {
    stage: &'a Stage,
    id: &'a str,
}

impl Held<'_> {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.stage.place.saggar();
        command.arg("session").args(words).envs(super::program::ENVIRONMENT);
        command
    }

    #[track_caller]
    fn ok(&self, words: &[&str]) -> String {
        let output = self.command(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn show(&self) -> Value {
        serde_json::from_str(&self.ok(&["show", "--json", self.id])).unwrap()
    }

    fn connect(&self) -> BridgeClient {
        BridgeClient::connect(&PathBuf::from(self.show()["bridgeSocket"].as_str().unwrap()))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let _ = self.command(&["end", "--remove", self.id]).output();
    }
}

fn watch(pid: &Value) -> Watch {
    Watch::of(u32::try_from(pid.as_u64().expect("a pid")).unwrap()).expect("it lives")
}

as_each_caller! {
    /// B10: a new session from a snapshot has another path for its copy of the folder, and the agent still finds its
    /// conversation.
    fn session_from_a_snapshot_continues_the_conversation(caller) {
        let stage = Stage::new(caller, &claude!());
        let (first, fork) = (Held { stage: &stage, id: "real" }, Held { stage: &stage, id: "fork" });
        let (work, program, api) = (stage.place.work(), stage.program(), stage.place.join("api.sock"));
        let create = |held: &Held<'_>, options: &[&str]| {
            let words = ["create", "--session", held.id, "--adapter", "stream-json", "--agent-cmd"];
            let rest = [program.to_str().unwrap(), "--api-socket", api.to_str().unwrap()];
            held.ok(&[&words[..], &rest, options, &[work.to_str().unwrap()]].concat());
        };
        create(&first, &[]);
        answer(&first.connect().turn("remember the word kiln. mock:say noted"));
        let file = first.ok(&["snapshot", "real"]);
        create(&fork, &["--from", file.trim()]);
        assert_eq!(answer(&fork.connect().turn("mock:say forked")), "forked");
        assert!(stage.api.last_turn().conversation_has("the word kiln"));
        // The first one has heard nothing of it.
        assert_eq!(answer(&first.connect().turn("mock:say first")), "first");
        assert!(!stage.api.last_turn().conversation_has("forked"));
    }

    /// KC-21, KC-23: after SIGKILL of the agent, of the supervisor and of both, five times in a row.
    fn kc_21_no_kill_ends_a_session(caller) {
        let stage = Stage::new(caller, &claude!());
        let held = Held { stage: &stage, id: "real" };
        let work = stage.place.work();
        let (work, program, api) = (work.to_str().unwrap(), stage.program(), stage.place.join("api.sock"));
        held.ok(&[
            "create", "--session", "real", "--workspace", work, "--adapter", "stream-json",
            "--agent-cmd", program.to_str().unwrap(), "--api-socket", api.to_str().unwrap(), work,
        ]);
        answer(&held.connect().turn("remember the word kiln. mock:say noted"));
        for round in 0..5 {
            for (kill_agent, kill_supervisor) in [(true, false), (false, true), (true, true)] {
                let session = held.show();
                let supervisor = watch(&session["supervisor"]["pid"]);
                let mut control =
                    crate::control::client::ControlClient::connect(session["controlSocket"].as_str().unwrap().as_ref());
                let agent = watch(&control.get("state")["pid"]);
                for (killed, kill) in [(&agent, kill_agent), (&supervisor, kill_supervisor)] {
                    if kill {
                        killed.signal(Signal::SIGKILL);
                        killed.wait_gone("what was killed");
                    }
                }
                held.ok(&["resume", "real"]);
                agent.wait_gone("the agent before");
                assert_eq!(answer(&held.connect().turn("mock:say resumed")), "resumed", "{round}");
                assert!(stage.api.last_turn().conversation_has("the word kiln"), "{round}: {kill_agent} {kill_supervisor}");
            }
        }
    }
}
