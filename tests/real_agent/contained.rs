//! The same agent in a container, as an orchestrator starts one, with its bridge beside it (DECISIONS 12).

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::boxed::{answer, parts, question, respond, start_stream};
use super::boxed_agent::FOLDER_SAYS;
use super::program;
use crate::mock_api::MockApi;
use crate::oci::bundle::Bench;
use crate::support::bridge_client::{BridgeClient, SESSION};
use crate::support::caller::Caller;
use crate::support::process::Watch;

/// Where the container has the agent's folder, and the socket of its API.
const WORK: &str = "/work";
const API: &str = "/run/api.sock";

/// A started container with the agent in it, and the mock of its API.
struct Pod {
    bench: Bench,
    api: MockApi,
    id: String,
}

impl Pod {
    fn start(caller: Caller, claude: &Path) -> Self {
        let bench = Bench::new(caller);
        bench.place.make_file("work/CLAUDE.md", FOLDER_SAYS);
        let api = MockApi::on_unix(&bench.place.join("api.sock"));
        let claude = bench.place.reachable(claude);
        bench.configure(|config| {
            let process = &mut config["process"];
            process["args"] = json!([
                "/run/claude",
                "--print",
                "--input-format",
                "stream-json",
                "--output-format",
                "stream-json",
                "--verbose",
                "--include-partial-messages",
                "--permission-prompt-tool",
                "stdio",
            ]);
            process["cwd"] = json!(WORK);
            let settings = program::ENVIRONMENT.iter().map(|(name, value)| format!("{name}={value}"));
            let rest = [
                "PATH=/usr/bin:/bin",
                "HOME=/tmp",
                "ANTHROPIC_UNIX_SOCKET=/run/api.sock",
                "ANTHROPIC_BASE_URL=http://localhost",
            ];
            process["env"] = settings.chain(rest.map(str::to_owned)).collect();
            let work = bench.place.work();
            let usr = [("/usr", "/usr"), ("/lib", "/usr/lib"), ("/lib64", "/usr/lib64")];
            let host = usr.map(|(to, from)| (to, PathBuf::from(from), "ro"));
            let own = [
                ("/run/claude", claude.clone(), "ro"),
                (API, bench.place.join("api.sock"), "rw"),
                (WORK, work, "rw"),
            ];
            let binds = host.into_iter().chain(own).map(|(to, from, how)| {
                json!({ "destination": to, "type": "bind", "source": from, "options": ["rbind", how] })
            });
            let mounts = config["mounts"].as_array_mut().unwrap();
            mounts.push(json!({ "destination": "/tmp", "type": "tmpfs", "source": "tmpfs" }));
            mounts.push(json!({ "destination": "/dev", "type": "tmpfs", "source": "tmpfs" }));
            mounts.extend(binds);
            config["annotations"] = json!({ "org.saggar.bridge": "true" });
        });
        let id = bench.start();
        Pod { bench, api, id }
    }

    fn connect(&self) -> BridgeClient {
        BridgeClient::connect(&self.bench.state_dir(&self.id).join("bridge.sock"))
    }

    /// Shuts down over the bridge: the container ends, and nothing but turns was asked of the API.
    fn shut_down(self, client: &mut BridgeClient) {
        let agent = Watch::of(self.bench.pid(&self.id)).expect("the agent lives");
        client.send(&json!({"cmd": "shutdown"}));
        client.expect_close();
        agent.wait_gone("the agent");
        self.bench.status_is(&self.id, "stopped");
        self.bench.say(&["delete", &self.id]).ok();
        assert_eq!(self.api.other_requests(), [""; 0]);
    }
}

as_each_caller! {
    /// One process serves turn after turn, with and without partial messages.
    fn turns_in_a_container(caller) {
        let pod = Pod::start(caller, &claude!());
        let mut client = pod.connect();
        assert_eq!(answer(&client.turn("mock:say hello from the model")), "hello from the model");
        assert!(pod.api.last_turn().conversation_has(FOLDER_SAYS), "the agent has read its folder");
        client.send(&json!({
            "cmd": "query", "prompt": "mock:say in three parts", "sessionId": SESSION,
            "includePartialMessages": true,
        }));
        let outcome = client.outcome();
        assert_eq!((answer(&outcome), parts(&outcome).as_str()), ("in three parts", "in three parts"));
        assert!(pod.api.last_turn().conversation_has("hello from the model"), "it is one conversation");
        pod.shut_down(&mut client);
    }

    /// A permission is asked and answered over the bridge, and a tool writes through the container's mount.
    fn a_permission_in_a_container(caller) {
        let pod = Pod::start(caller, &claude!());
        let file = pod.bench.place.work().join("made.txt");
        let mut client = pod.connect();
        client.query(&format!("mock:write {WORK}/made.txt made by the agent"));
        let asked = question(&mut client);
        assert!(!file.exists(), "nothing is written before the answer");
        respond(&mut client, &asked, &json!({"behavior": "allow", "updatedInput": asked["request"]["input"]}));
        answer(&client.outcome());
        assert_eq!(fs::read_to_string(&file).unwrap(), "made by the agent");
        pod.shut_down(&mut client);
    }

    /// An interrupt ends the turn, and the next is whole.
    fn an_interrupt_in_a_container(caller) {
        let pod = Pod::start(caller, &claude!());
        let mut client = pod.connect();
        start_stream(&mut client);
        client.send(&json!({"cmd": "interrupt"}));
        assert_eq!(client.outcome().end, json!({"ev": "done", "sessionId": SESSION}));
        pod.api.wait_for_abandoned_streams(1);
        assert_eq!(answer(&client.turn("mock:say still here")), "still here");
        pod.shut_down(&mut client);
    }
}
