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
        serde_json::from_str(&self.ok(&["show", "--json", "real"])).unwrap()
    }

    fn connect(&self) -> BridgeClient {
        BridgeClient::connect(&PathBuf::from(self.show()["bridgeSocket"].as_str().unwrap()))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let _ = self.command(&["end", "--remove", "real"]).output();
    }
}

fn watch(pid: &Value) -> Watch {
    Watch::of(u32::try_from(pid.as_u64().expect("a pid")).unwrap()).expect("it lives")
}

as_each_caller! {
    /// KC-21, KC-23: after SIGKILL of the agent, of the supervisor and of both, five times in a row.
    fn kc_21_no_kill_ends_a_session(caller) {
        let stage = Stage::new(caller, &claude!());
        let held = Held { stage: &stage };
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
