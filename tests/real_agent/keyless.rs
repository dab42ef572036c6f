//! The agent without a key: it reaches its API by `[api]`, with a key that is added outside.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::program::ENVIRONMENT;
use crate::isolation::wrapped::Ended;
use crate::mock_api::MockApi;
use crate::network::Network;
use crate::support::caller::Caller;

/// A connection of the supervisor's network for each to the mock, which listens on a unix socket.
const RELAY: &str = "import socket, sys, threading
def pump(one, other):
    try:
        while (some := one.recv(65536)): other.sendall(some)
        other.shutdown(socket.SHUT_WR)
    except OSError: pass
hears = socket.create_server(('127.0.0.1', 8090), backlog=100)
open('relay-ready', 'w').write('ready')
while True:
    one, _ = hears.accept()
    other = socket.socket(socket.AF_UNIX); other.connect(sys.argv[1])
    for ends in (one, other), (other, one): threading.Thread(target=pump, args=ends, daemon=True).start()";

/// The API, the key, and a folder for the agent.
struct Stage {
    network: Network,
    api: MockApi,
}

impl Stage {
    fn new(caller: Caller) -> Result<Self, String> {
        let network = Network::new(caller)?;
        let place = &network.wrap.place;
        place.make_file("work/CLAUDE.md", "Answer.");
        place.make_file("policy.toml", "[permissions]\nallow = ['Bash']\n");
        place.make_file("relay", RELAY);
        let stage = Stage { api: MockApi::on_unix(&place.join("api.sock")), network };
        stage.key("sk-first");
        Ok(stage)
    }

    fn key(&self, key: &str) {
        let path = self.network.wrap.place.make_file("key", key);
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Runs a script in the supervisor's network, in which `saggar` and `options` say the rest.
    fn run(&self, program: &Path, script: &str) -> Ended {
        let place = &self.network.wrap.place;
        let settings: String = ENVIRONMENT
            .iter()
            .filter(|(name, _)| *name != "ANTHROPIC_API_KEY")
            .map(|(name, value)| format!("export {name}={value}\n"))
            .collect();
        let starter = format!(
            "{settings}saggar=$1; place={place}
             options=(--adapter stream-json --agent-cmd {program} --policy $place/policy.toml
                 --api http://127.0.0.1:8090 --api-key-file $place/key)
             rm -f relay-ready; mkfifo relay-ready
             python3 $place/relay $place/api.sock & relay=$!
             read -r -n 5 _ <relay-ready
             status=0
             {script}
             kill $relay
             exit $status",
            place = place.path().display(),
            program = place.reachable(program).display(),
        );
        self.network.run_by(&["/bin/bash", "-c", &starter, "sh"], &[], &["true"])
    }

    /// The keys of all turns.
    fn keys(&self) -> Vec<String> {
        self.api.turns().into_iter().map(|turn| turn.key.unwrap_or_default()).collect()
    }
}

macro_rules! stage {
    ($caller:expr) => {
        match Stage::new($caller) {
            Ok(stage) => stage,
            Err(why) => skip!("{why}"),
        }
    };
}

as_each_caller! {
    /// A turn with a call of a tool, with neither a network nor a key.
    fn a_turn_with_a_tool_takes_no_key(caller) {
        let (program, stage) = (claude!(), stage!(caller));
        let prompt = "mock:run env | grep -E '^(ANTHROPIC|CLAUDE_CODE_OAUTH)' | sort";
        let script = format!("$saggar agent . \"{prompt}\" --workspace . \"${{options[@]}}\" --json </dev/null || status=$?");
        let ended = stage.run(&program, &script);
        let said = ended.success();
        assert_eq!(stage.keys(), ["sk-first"; 2], "{said}");
        let last = stage.api.last_turn();
        assert!(last.conversation_has("ANTHROPIC_API_KEY=saggar-adds-the-key-outside"), "{last:?}");
        assert!(!said.contains("sk-first") && !last.conversation_has("sk-first"));
    }

    /// A session, and one that is resumed: the file of the key is read again.
    fn a_session_reads_its_key_at_each_start(caller) {
        let (program, stage) = (claude!(), stage!(caller));
        let session = "$saggar session create --session keyless \"${options[@]}\" --workspace . . &&
            $saggar session send keyless 'mock:say one' --json >/dev/null || status=1
            supervisor=$($saggar session show keyless --json | python3 -c 'import json, sys; print(json.load(sys.stdin)[\"supervisor\"][\"pid\"])')
            kill -KILL $supervisor; timeout 20 tail --pid=$supervisor -f /dev/null
            printf sk-second >$place/key
            $saggar session resume keyless && $saggar session send keyless 'mock:say two' --json >/dev/null || status=2
            $saggar session end keyless --remove || status=3";
        let ended = stage.run(&program, session);
        ended.success();
        assert_eq!(stage.keys(), ["sk-first", "sk-second"]);
    }
}
