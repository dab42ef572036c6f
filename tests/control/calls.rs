//! What may be called, and what comes back.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::client::{ControlClient, serve, socket};
use crate::bridge::served::Stage;
use crate::support::deadline::Deadline;
use crate::support::process::Watch;
use crate::support::wait;

as_each_caller! {
    /// Nothing is done for who has not greeted, and what is no call does not cost the connection.
    fn a_client_greets_first(caller) {
        let stage = Stage::new(caller);
        let served = serve(&stage, &["--adapter", "demo"]);
        let mode = std::fs::metadata(socket(&stage)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let mut client = ControlClient::silent(&socket(&stage));
        assert_eq!(client.refused("shutdown", &json!({})).0, "greeting");
        assert_eq!(client.refused("hello", &json!({ "version": 2 })).0, "version");
        client.send(b"nonsense\n[]\n{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"hello\",\"params\":{\"version\":1}}\n");
        let lines = [client.line(), client.line(), client.line()];
        assert_eq!((&lines[0]["error"]["code"], &lines[1]["error"]["code"]), (&json!(-32700), &json!(-32600)));
        assert_eq!(lines[2]["id"], "x");
        let methods = lines[2]["result"]["methods"].as_array().unwrap();
        assert!(methods.contains(&json!("state")), "{methods:?}");
        assert_eq!(client.refused("snapshots", &json!({})).0, "method");
        assert_eq!(client.refused("kill", &json!({ "signal": "NOPE" })).0, "params");
        client.get("shutdown");
        assert!(served.end().0.success());
    }

    /// DECISIONS 28: the state object of OCI, and what is ours.
    fn the_state_is_what_the_host_sees(caller) {
        let stage = Stage::new(caller);
        let served = serve(&stage, &["--adapter", "demo"]);
        let mut client = ControlClient::connect(&socket(&stage));
        let state = client.get("state");
        assert_eq!((&state["id"], &state["status"]), (&json!(stage.name()), &json!("running")));
        assert_eq!(state["bundle"], stage.work().to_str().unwrap());
        assert_eq!((&state["session"]["id"], &state["session"]["state"]), (&json!(stage.name()), &json!("active")));
        assert_eq!((&state["session"]["busy"], &state["generation"], &state["exit"]), (&json!(false), &json!(1), &json!(null)));
        assert_eq!((&state["network"], &state["networkMode"]), (&json!(null), &json!("none")));
        assert!(state["degraded"].is_array());
        let words = std::fs::read_to_string(format!("/proc/{}/cmdline", state["pid"])).unwrap();
        assert!(words.contains("__demo-agent"), "{words:?}");

        let mut server = served.connect();
        server.query("run: : > up; sleep 1000");
        wait::until_exists(&stage.work().join("up"));
        assert_eq!(client.get("state")["session"]["busy"], true);
        server.send(&json!({ "cmd": "interrupt" }));
        assert!(server.outcome().is_done());
        let session = &client.get("state")["session"];
        assert_eq!((&session["busy"], &session["commandsEnded"]), (&json!(false), &json!(1)), "{session}");
        served.shut_down(&mut server);
        assert!(!socket(&stage).exists());
    }

    /// BP-21 to BP-23 by the other door: beside a turn, with its own limit of time.
    fn commands_run_beside_the_agent(caller) {
        let stage = Stage::new(caller);
        let served = serve(&stage, &["--adapter", "demo"]);
        let mut client = ControlClient::connect(&socket(&stage));
        let long = client.ask("exec", &json!({ "command": "echo begun; sleep 1000 & setsid sleep 1000", "timeout": 1500 }));
        let answer = client.ask("exec", &json!({ "command": "echo out; echo err >&2; pwd; exit 7" }));
        // The short one is answered first.
        let short = client.answer(answer);
        let said = json!({ "exitCode": 7, "stdout": format!("out\n{}\n", stage.work().display()), "stderr": "err\n", "truncated": false, "timedOut": false });
        assert_eq!(short["result"], said);
        let ended = client.answer(long);
        assert_eq!(ended["result"], json!({ "exitCode": 124, "stdout": "begun\n", "stderr": "", "truncated": false, "timedOut": true }));
        for (pid, words) in served.process.descendants() {
            if let Some(left) = Watch::of(pid).filter(|_| words.iter().any(|word| word == "sleep")) {
                left.wait_gone("what the command had started");
            }
        }
        client.get("shutdown");
        assert!(served.end().0.success());
    }

    /// An attached command ends with its connection, and no other one does.
    fn an_attached_command_ends_with_its_client(caller) {
        let stage = Stage::new(caller);
        let served = serve(&stage, &["--adapter", "demo"]);
        let mut attached = ControlClient::connect(&socket(&stage));
        let mut other = ControlClient::connect(&socket(&stage));
        attached.ask("exec", &json!({ "command": ": > one; sleep 1000 & exec sleep 1000", "attached": true }));
        other.ask("exec", &json!({ "command": ": > two; exec sleep 2000" }));
        for name in ["one", "two"] {
            wait::until_exists(&stage.work().join(name));
        }
        let sleeps = |time: &str| -> Vec<Watch> {
            let found = served.process.descendants().into_iter().filter(|(_, words)| *words == ["sleep", time]);
            found.filter_map(|(pid, _)| Watch::of(pid)).collect()
        };
        // Each file is there before its program is executed.
        let deadline = Deadline::usual();
        let [doomed, _] = [("1000", 2), ("2000", 1)].map(|(time, count)| loop {
            let found = sleeps(time);
            if found.len() == count {
                break found;
            }
            assert!(!deadline.remaining().is_zero(), "{} of {count} run `sleep {time}`", found.len());
            deadline.pause();
        });
        drop(other);
        drop(attached);
        doomed.iter().for_each(|sleep| sleep.wait_gone("an attached command"));
        assert_eq!(sleeps("2000").len(), 1);
        let mut client = ControlClient::connect(&socket(&stage));
        client.get("shutdown");
        assert!(served.end().0.success());
    }

    /// A server that frees a sandbox must not end work that began a moment ago.
    fn a_shutdown_of_an_idle_sandbox_ends_no_work(caller) {
        let stage = Stage::new(caller);
        let served = serve(&stage, &["--adapter", "demo"]);
        let mut client = ControlClient::connect(&socket(&stage));
        let if_idle = json!({ "ifIdle": true });
        let mut server = served.connect();
        server.query("run: : > turn; sleep 1000");
        wait::until_exists(&stage.work().join("turn"));
        assert_eq!(client.refused("shutdown", &if_idle).0, "state");
        server.send(&json!({ "cmd": "interrupt" }));
        assert!(server.outcome().is_done());
        let command = client.ask("exec", &json!({ "command": ": > command; sleep 1000" }));
        wait::until_exists(&stage.work().join("command"));
        let mut other = ControlClient::connect(&socket(&stage));
        assert_eq!(other.refused("shutdown", &if_idle).0, "state");
        assert_eq!(other.refused("shutdown", &json!({ "idle": true })).0, "params");
        client.call("exec.cancel", &json!({ "id": command }));
        client.answer(command);
        other.call("shutdown", &if_idle);
        assert!(served.end().0.success());
    }

    fn the_output_of_a_command_is_limited(caller) {
        let stage = Stage::new(caller);
        let served = serve(&stage, &["--adapter", "demo"]);
        let mut client = ControlClient::connect(&socket(&stage));
        let command = "echo first; head -c 5000 /dev/zero | tr '\\0' x; echo last; echo err >&2";
        let result = client.call("exec", &json!({ "command": command, "limit": 20 }));
        let stdout = "first\nxxxx\n[4991 bytes left out]\nxxxxxlast\n";
        assert_eq!((&result["stdout"], &result["stderr"]), (&json!(stdout), &json!("err\n")), "{result}");
        assert_eq!((&result["truncated"], &result["timedOut"]), (&json!(true), &json!(false)));
        client.get("shutdown");
        assert!(served.end().0.success());
    }

    /// A client may give up methods, for a process that it hands the connection to, and not get them back.
    fn a_connection_is_limited_to_methods(caller) {
        let stage = Stage::new(caller);
        let served = serve(&stage, &["--adapter", "demo"]);
        let mut client = ControlClient::silent(&socket(&stage));
        let refused = client.refused("hello", &json!({ "version": 1, "methods": ["exec", "nope"] }));
        assert_eq!((refused.0.as_str(), refused.1.contains("nope")), ("params", true), "{refused:?}");
        client.call("hello", &json!({ "version": 1, "methods": ["exec", "hello"] }));
        assert_eq!(client.call("exec", &json!({ "command": "echo x" }))["stdout"], "x\n");
        for method in ["state", "shutdown", "update", "permission.respond", "nope"] {
            assert_eq!(client.refused(method, &json!({})).0, "method", "{method}");
        }
        client.call("hello", &json!({ "version": 1, "methods": ["hello", "exec", "shutdown"] }));
        client.call("hello", &json!({ "version": 1 }));
        assert_eq!(client.refused("shutdown", &json!({})).0, "method");
        ControlClient::connect(&socket(&stage)).get("shutdown");
        assert!(served.end().0.success());
    }

    fn a_command_is_cancelled_by_its_own_client(caller) {
        let stage = Stage::new(caller);
        let served = serve(&stage, &["--adapter", "demo"]);
        let mut client = ControlClient::connect(&socket(&stage));
        let mut other = ControlClient::connect(&socket(&stage));
        let long = client.ask("exec", &json!({ "command": ": > up; sleep 1000 & setsid sleep 1000" }));
        wait::until_exists(&stage.work().join("up"));
        for client in [&mut other, &mut client] {
            let (name, message) = client.refused("exec.cancel", &json!({ "id": 1000 }));
            assert_eq!((name.as_str(), message.contains("no command")), ("state", true), "{message}");
        }
        assert_eq!(other.refused("exec.cancel", &json!({ "id": long })).0, "state");
        assert_eq!(client.call("exec.cancel", &json!({ "id": long })), json!({}));
        let ended = client.answer(long);
        assert_eq!(ended["error"]["data"]["name"], "state", "{ended}");
        assert_eq!(ended["error"]["message"], "exec: the command was cancelled");
        for (pid, words) in served.process.descendants() {
            if let Some(left) = Watch::of(pid).filter(|_| words.iter().any(|word| word == "sleep")) {
                left.wait_gone("what the command had started");
            }
        }
        assert_eq!(client.refused("exec.cancel", &json!({ "id": long })).0, "state");
        // One that may not have started yet.
        let soon = client.ask("exec", &json!({ "command": "sleep 1000" }));
        assert_eq!(client.call("exec.cancel", &json!({ "id": soon })), json!({}));
        assert_eq!(client.answer(soon)["error"]["data"]["name"], "state");
        client.get("shutdown");
        assert!(served.end().0.success());
    }

    /// A signal reaches the agent; its death is told, and the next query starts it again.
    fn the_agent_can_be_killed(caller) {
        let stage = Stage::new(caller);
        let served = serve(&stage, &["--adapter", "demo"]);
        let mut client = ControlClient::connect(&socket(&stage));
        let mut server = served.connect();
        server.query("run: : > up; sleep 1000");
        wait::until_exists(&stage.work().join("up"));
        assert_eq!(client.call("kill", &json!({ "signal": "KILL" })), json!({}));
        assert!(!server.outcome().is_done());
        let state = client.get("state");
        assert_eq!((&state["pid"], &state["session"]["state"]), (&json!(0), &json!("error")), "{state}");
        assert!(state["session"]["lastExit"].as_str().unwrap().contains("SIGKILL"), "{state}");
        assert_eq!(client.refused("kill", &json!({})).0, "state");
        assert!(server.turn("hi").is_done());
        assert_eq!(client.get("state")["session"]["state"], "active");
        served.shut_down(&mut server);
    }

    /// Calls in pieces and in heaps, from many at once: each is answered once, to who has asked.
    fn many_clients_call_at_once(caller) {
        let stage = Stage::new(caller);
        let served = serve(&stage, &["--adapter", "demo"]);
        let mut clients: Vec<_> = (0..20).map(|_| ControlClient::connect(&socket(&stage))).collect();
        for client in &mut clients {
            let ids: Vec<u64> = (0..50).map(|_| client.ask("state", &json!({}))).collect();
            ids.into_iter().for_each(|id| assert_eq!(client.answer(id)["result"]["id"], stage.name()));
        }
        clients[0].get("shutdown");
        assert!(served.end().0.success());
    }
}
