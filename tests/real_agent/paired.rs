//! Two agents in boxes of their own have the example conversation of a pair run, by the tools of their mailbox.

use serde_json::Value;

use super::program;
use crate::mock_api::MockApi;
use crate::pair::place::{Pairs, expected, fields};

as_each_caller! {
    /// AM-21, with real agents: nothing but the configuration that a run gives them names the tools.
    fn am_21_two_real_agents_have_the_example_conversation(caller) {
        let claude = claude!();
        let pairs = Pairs::new(caller);
        let place = &pairs.stage.place;
        let claude = place.reachable(&claude);
        let api = MockApi::on_unix(&place.join("api.sock"));
        for agent in ["codex", "claude"] {
            place.make_file(&format!("{agent}/saggar.toml"), "adapter = 'stream-json'\n");
        }
        let socket = place.join("api.sock");
        let (claude, socket) = (claude.to_str().unwrap(), socket.to_str().unwrap());
        let options =
            ["--", "--agent-cmd", claude, "--api-socket", socket];
        let mut command = pairs.run_command(&options);
        command.envs(program::ENVIRONMENT);
        let ended = pairs.stage.run(command);
        let asked = || api.turns().iter().map(|turn| format!("{turn:?}")).collect::<Vec<_>>().join("\n");
        assert_eq!(ended.code, 0, "{ended:?}\n{}", asked());
        let lines: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[1..7].iter().map(fields).collect::<Vec<_>>(), expected());
        assert_eq!(pairs.messages(1), expected());
    }
}
