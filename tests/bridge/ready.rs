//! BP-04 to BP-06, DECISIONS 22: when the bridge says that it is ready, and how a server
//! starts it as its child.

use std::time::Duration;

use serde_json::json;

use super::served::{Served, Stage};
use crate::support::bridge_client::BridgeClient;
use crate::support::deadline::Deadline;
use crate::support::wait;

as_each_caller! {
    /// BP-04: `ready` first and once on each connection.
    fn bp_04_ready_is_the_first_event_of_each_connection(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let mut clients: Vec<BridgeClient> = (0..3).map(|_| served.connect()).collect();
        for client in &mut clients {
            client.query("hi");
            let events = client.events_until(|event| event["ev"] == "done");
            assert!(events.iter().all(|event| event["ev"] != "ready"), "{events:?}");
        }
        served.shut_down(&mut clients[0]);
    }

    /// BP-05: from the instant of `R` on, every connect(2) succeeds, all at once or one by one.
    fn bp_05_connections_succeed_right_after_the_ready_byte(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let open: Vec<BridgeClient> = (0..200).map(|_| BridgeClient::connect_only(&served.socket)).collect();
        for mut client in open {
            assert_eq!(client.event(), json!({"ev": "ready"}));
        }
        let mut client = served.connect();
        served.shut_down(&mut client);
    }

    /// DECISIONS 22: a server names everything in the environment and reads stdout.
    fn bp_05_a_server_starts_it_by_its_environment(caller) {
        let stage = Stage::new(caller);
        let workspace = stage.place.make_dir("other", 0o755);
        stage.place.make_file("work/saggar.toml", "adapter = \"demo\"\n");
        let mut command = stage.place.saggar();
        command.arg("agent");
        command.env("ASH_BRIDGE_SOCKET", stage.socket()).env("ASH_AGENT_DIR", stage.work());
        command.env("ASH_WORKSPACE_DIR", &workspace);
        command.env("ASH_SANDBOX_ID", stage.name()).env("ASH_SESSION_ID", format!("s-{}", stage.name()));
        let served = Served::start(&stage.place, command, &stage.socket());
        let mut client = served.connect();
        client.send(&json!({
            "cmd": "exec",
            "command": "pwd; echo $ASH_SANDBOX_ID $ASH_SESSION_ID; cat $ASH_AGENT_DIR/CLAUDE.md; echo >$ASH_AGENT_DIR/x",
        }));
        let result = client.event();
        let said = format!("{}\n{} s-{}\nThe folder of a test.\n", workspace.display(), stage.name(), stage.name());
        assert_eq!(result["stdout"], said, "{result}");
        assert!(result["stderr"].as_str().unwrap().contains("Read-only"), "{result}");
        assert_eq!(client.event()["ev"], "done");
        served.shut_down(&mut client);
    }

    /// BP-06: an agent that says nothing keeps nobody waiting for the bridge, neither before its start nor after.
    fn bp_06_a_hanging_agent_does_not_delay_the_bridge(caller) {
        let stage = Stage::new(caller);
        let agent = "#!/usr/bin/python3\nimport time\nopen('up', 'a').write('x')\ntime.sleep(1000)\n";
        let script = stage.script("agent", agent);
        let served = stage.serve(&["--adapter", "demo", "--agent-cmd", &script]);
        let up = stage.work().join("up");
        wait::until_written(&up);
        let hangs = served.inside("python3");
        let mut client = served.connect();
        client.query("hi");
        let mut other = served.connect();
        other.send(&json!({"cmd": "exec", "command": "echo here"}));
        assert_eq!(other.event()["stdout"], "here\n");
        assert_eq!(other.event()["ev"], "done");
        // Nobody has given up on the first agent so far: all this came while it hung.
        assert_eq!(client.event_within(Duration::ZERO), None);
        assert!(!hangs.is_gone_by(Deadline::after(Duration::ZERO)));
        assert_eq!(std::fs::read_to_string(up).unwrap(), "x", "it was started once");
        served.shut_down(&mut other);
    }

    /// BP-06: a program that is not there is told before anything listens.
    fn bp_06_a_missing_program_is_127_and_no_ready_byte(caller) {
        let stage = Stage::new(caller);
        let command = stage.command(&[
            "--adapter", "stream-json", "--agent-cmd", "/nonexistent/agent", "--ready-fd", "1",
        ]);
        stage.run(command).refused(127, &["/nonexistent/agent"]);
    }

    /// DECISIONS 22: with messages on stdout the ready byte has no place there.
    fn the_ready_byte_never_mixes_with_messages(caller) {
        let stage = Stage::new(caller);
        let command = stage.command(&["--adapter", "demo", "--ready-fd", "1", "--json"]);
        stage.run(command).refused(2, &["--ready-fd 1"]);
        let mut command = stage.place.saggar();
        command.arg("agent").arg(stage.work()).args(["hi", "--adapter", "demo", "--ready-fd", "1"]);
        stage.run(command).refused(2, &["--ready-fd 1"]);
    }
}
