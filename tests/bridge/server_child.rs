//! DECISIONS 36: saggar as the child of a server that starts it in place of its own bridge process. [`StandIn`] does what
//! such a server does: it gives everything in the environment, waits for one byte, and has one connection, whose commands
//! have no ids.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::served::{Served, Stage};
use crate::support::bridge_client::BridgeClient;
use crate::support::caller::Caller;
use crate::support::process::Process;
use crate::support::wait;

/// Writes down its arguments and environment, and a line to standard error.
const AGENT: &str = "#!/bin/sh\nprintf '<%s>\\n' \"$@\" > args\nenv > environment\necho 'a line of the agent' >&2\n\
    while read -r line; do echo '{\"type\":\"result\"}'; done\n";

struct StandIn {
    stage: Stage,
    workspace: PathBuf,
    variables: Vec<(String, String)>,
}

impl StandIn {
    /// A server whose agents are demo agents.
    fn new(caller: Caller) -> Self {
        let stage = Stage::new(caller);
        stage.place.make_file("work/saggar.toml", "adapter = \"demo\"\n");
        let workspace = stage.place.make_dir("space", 0o755);
        stage.place.make_file("space/CLAUDE.md", "The prompt of the session.\n");
        StandIn { stage, workspace, variables: Vec::new() }
    }

    /// The same with an agent that speaks stream-json: a script in the workspace.
    fn with_stream_json(caller: Caller) -> Self {
        let stand_in = StandIn::new(caller);
        let script = stand_in.stage.place.make_file("space/agent", AGENT);
        fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let policy = format!("adapter = \"stream-json\"\nagent_cmd = \"{}\"\n", script.display());
        stand_in.stage.place.make_file("work/saggar.toml", &policy);
        stand_in
    }

    fn set(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The command of such a server: no options at all.
    fn command(&self) -> Command {
        let mut command = self.stage.place.saggar();
        command.arg("agent");
        command.env("ASH_BRIDGE_SOCKET", self.stage.socket()).env("ASH_AGENT_DIR", self.stage.work());
        command.env("ASH_WORKSPACE_DIR", &self.workspace).env("HOME", &self.workspace);
        command.env("ASH_SANDBOX_ID", self.stage.name()).env("ASH_SESSION_ID", self.session());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    fn session(&self) -> String {
        format!("s-{}", self.stage.name())
    }

    fn start(&self) -> Served {
        Served::start(&self.stage.place, self.command(), &self.stage.socket())
    }

    fn session_directory(&self) -> PathBuf {
        self.stage.place.join("state/saggar/sessions").join(self.session())
    }
}

fn query(client: &mut BridgeClient, prompt: &str) {
    client.send(&json!({ "cmd": "query", "prompt": prompt, "sessionId": "opaque" }));
}

/// The events of one turn, to its end.
fn turn(client: &mut BridgeClient, prompt: &str) -> Vec<Value> {
    query(client, prompt);
    client.events_until(|event| event["ev"] == "done" || event["ev"] == "error")
}

fn output(events: &[Value]) -> String {
    events.iter().map(Value::to_string).collect()
}

as_each_caller! {
    fn one_connection_without_ids_holds_conversation_and_commands(caller) {
        let server = StandIn::new(caller);
        let served = server.start();
        let mut client = served.connect();
        turn(&mut client, "my name is Ann");
        client.send(&json!({ "cmd": "exec", "command": "echo out; exit 3" }));
        let result = client.event();
        assert_eq!((&result["exitCode"], &result["stdout"]), (&json!(3), &json!("out\n")));
        assert_eq!(client.event()["ev"], "done");
        assert!(output(&turn(&mut client, "recall")).contains("my name is Ann"));
        served.shut_down(&mut client);
    }

    /// FINDINGS B3: the result comes at once, and the listener of the turn sees only the end of its own turn.
    fn exec_during_a_turn_neither_waits_nor_ends_it(caller) {
        let server = StandIn::new(caller);
        let served = server.start();
        let mut client = served.connect();
        client.send(&json!({ "cmd": "exec", "command": "mkfifo fifo" }));
        client.events_until(|event| event["ev"] == "done");
        for _ in 0..5 {
            query(&mut client, "run: cat fifo");
            client.events_until(|event| event["data"]["message"]["content"][0]["type"] == "tool_use");
            client.send(&json!({ "cmd": "exec", "command": "echo during" }));
            assert_eq!(client.event()["stdout"], "during\n");
            client.send(&json!({ "cmd": "exec", "command": "echo go > fifo" }));
            let mut sessions = Vec::new();
            while sessions.len() < 3 {
                let events = client.events_until(|event| event["ev"] == "done");
                sessions.push(events.last().unwrap()["sessionId"].clone());
            }
            assert_eq!(sessions, ["opaque", "", ""]);
        }
        served.shut_down(&mut client);
    }

    fn workspace_is_the_home_directory(caller) {
        let server = StandIn::new(caller);
        let served = server.start();
        let mut client = served.connect();
        let said = output(&turn(&mut client, "run: printf '%s' \"<$HOME|$CLAUDE_CONFIG_DIR>\"; pwd"));
        let home = server.workspace.display();
        assert!(said.contains(&format!("<{home}|{home}/.claude>{home}")), "{said}");
        served.shut_down(&mut client);
    }

    fn second_start_with_the_same_session_resumes_it(caller) {
        let server = StandIn::new(caller);
        let served = server.start();
        let mut client = served.connect();
        turn(&mut client, "my name is Ann");
        served.shut_down(&mut client);
        let served = server.start();
        let mut client = served.connect();
        client.send(&json!({ "cmd": "resume", "sessionId": "opaque" }));
        assert_eq!(client.event()["ev"], "done");
        assert!(output(&turn(&mut client, "recall")).contains("my name is Ann"));
        served.shut_down(&mut client);
    }

    fn refused_start_leaves_no_session(caller) {
        let server = StandIn::new(caller);
        server.stage.place.make_file("work/saggar.toml", "agent_cmd = \"/nonexistent/agent\"\n");
        let ended = server.stage.run(server.command());
        assert_ne!(ended.code, 0, "{ended:?}");
        assert!(ended.stderr.contains("/nonexistent/agent"), "{ended:?}");
        assert!(!server.session_directory().exists());
        server.stage.place.make_file("work/saggar.toml", "adapter = \"demo\"\n");
        let served = server.start();
        let mut client = served.connect();
        assert_eq!(turn(&mut client, "hi").last().unwrap()["ev"], "done");
        served.shut_down(&mut client);
    }

    fn environment_is_passed_as_given(caller) {
        let server = StandIn::new(caller).set("STRIPE_SECRET_KEY", "given").set("ODD", "a b\"c");
        let served = server.start();
        let mut client = served.connect();
        client.send(&json!({ "cmd": "exec", "command": "echo \"$STRIPE_SECRET_KEY|$ODD|$ASH_BRIDGE_SOCKET|$XDG_RUNTIME_DIR\"" }));
        assert_eq!(client.event()["stdout"], "given|a b\"c||\n");
        assert_eq!(client.event()["ev"], "done");
        served.shut_down(&mut client);
    }

    fn named_variables_are_passed_alone(caller) {
        let server = StandIn::new(caller).set("STRIPE_SECRET_KEY", "given").set("OTHER", "given");
        let server = server.set("ASH_SANDBOX_ENV", "STRIPE_SECRET_KEY,ABSENT");
        let served = server.start();
        let mut client = served.connect();
        client.send(&json!({ "cmd": "exec", "command": "echo \"$STRIPE_SECRET_KEY|$OTHER|$ABSENT\"" }));
        assert_eq!(client.event()["stdout"], "given||\n");
        assert_eq!(client.event()["ev"], "done");
        served.shut_down(&mut client);
        let invalid = StandIn::new(caller).set("ASH_SANDBOX_ENV", "A=B");
        invalid.stage.run(invalid.command()).refused(2, &["ASH_SANDBOX_ENV", "list names of variables"]);
    }

    fn denied_variable_is_not_passed(caller) {
        let server = StandIn::new(caller).set("STRIPE_SECRET_KEY", "given");
        server.stage.place.make_file("work/saggar.toml", "adapter = \"demo\"\n[env]\ndeny = [\"STRIPE_SECRET_KEY\"]\n");
        let served = server.start();
        let mut client = served.connect();
        client.send(&json!({ "cmd": "exec", "command": "echo \"<$STRIPE_SECRET_KEY>\"" }));
        assert_eq!(client.event()["stdout"], "<>\n");
        assert_eq!(client.event()["ev"], "done");
        served.shut_down(&mut client);
    }

    /// FINDINGS B7: nobody can answer, so the default mode asks nobody.
    fn permission_requests_follow_the_mode(caller) {
        let server = StandIn::new(caller);
        let served = server.start();
        let mut client = served.connect();
        let events = turn(&mut client, "ask: echo allowed");
        assert!(output(&events).contains("allowed\\n"), "{events:?}");
        assert!(!events.iter().any(|event| event["data"]["type"] == "control_request"), "{events:?}");
        served.shut_down(&mut client);
        let audit = fs::read_to_string(server.session_directory().join("audit.jsonl")).unwrap();
        assert!(audit.contains("\"by\":\"rule\"") && audit.contains("\"decision\":\"allow\""), "{audit}");

        let server = StandIn::new(caller).set("ASH_PERMISSION_MODE", "default");
        let served = server.start();
        let mut client = served.connect();
        query(&mut client, "ask: echo allowed");
        let asked = client.events_until(|event| event["data"]["type"] == "control_request");
        let id = &asked.last().unwrap()["data"]["request_id"];
        let denial = json!({ "subtype": "success", "request_id": id, "response": { "behavior": "deny", "message": "no" } });
        client.send(&json!({ "type": "control_response", "response": denial }));
        assert_eq!(client.events_until(|event| event["ev"] == "done").last().unwrap()["ev"], "done");
        served.shut_down(&mut client);
    }

    fn unknown_permission_mode_is_refused(caller) {
        let server = StandIn::new(caller).set("ASH_PERMISSION_MODE", "always");
        let ended = server.stage.run(server.command());
        ended.refused(2, &["ASH_PERMISSION_MODE", "always", "bypassPermissions"]);
        assert!(!server.session_directory().exists());
    }

    fn standard_error_of_the_agent_reaches_the_server(caller) {
        let server = StandIn::with_stream_json(caller);
        let served = server.start();
        let mut client = served.connect();
        turn(&mut client, "hi");
        client.send(&json!({ "cmd": "shutdown" }));
        let (_, stderr) = served.end();
        assert!(stderr.lines().any(|line| line == "a line of the agent"), "{stderr}");
    }

    /// FINDINGS B6: what the server wrote into the workspace is of this session.
    fn files_of_the_workspace_take_precedence_over_those_of_the_folder(caller) {
        let server = StandIn::with_stream_json(caller);
        server.stage.place.make_file("work/.mcp.json", "{\"mcpServers\":{}}");
        let servers = server.stage.place.make_file("space/.mcp.json", "{\"mcpServers\":{}}");
        let served = server.start();
        let mut client = served.connect();
        turn(&mut client, "hi");
        served.shut_down(&mut client);
        let arguments = fs::read_to_string(server.workspace.join("args")).unwrap();
        assert!(arguments.contains(&format!("<--mcp-config>\n<{}>\n", servers.display())), "{arguments}");
        assert!(!arguments.contains("append-system-prompt"), "{arguments}");
        // Without them, those of the folder are given.
        fs::remove_file(&servers).unwrap();
        fs::remove_file(server.workspace.join("CLAUDE.md")).unwrap();
        let served = server.start();
        let mut client = served.connect();
        turn(&mut client, "hi");
        served.shut_down(&mut client);
        let arguments = fs::read_to_string(server.workspace.join("args")).unwrap();
        assert!(arguments.contains("<--append-system-prompt>\n<The folder of a test."), "{arguments}");
        assert!(arguments.contains("<--mcp-config>\n</run/agent/.mcp.json>\n"), "{arguments}");
    }

    /// FINDINGS B9: the server has run them.
    fn scripts_of_the_folder_are_not_run(caller) {
        let server = StandIn::new(caller);
        for script in ["install.sh", "startup.sh"] {
            server.stage.script(script, "#!/bin/sh\ntouch \"$ASH_WORKSPACE_DIR/ran\"\n");
        }
        let served = server.start();
        let mut client = served.connect();
        turn(&mut client, "hi");
        served.shut_down(&mut client);
        assert!(!server.workspace.join("ran").exists());
    }

    /// FINDINGS B1: a killed server leaves no sandbox behind.
    fn sandbox_ends_with_a_killed_server(caller) {
        let server = StandIn::new(caller);
        let command = server.command();
        let mut shell = server.stage.place.command("/bin/sh".as_ref());
        shell.args(["-c", "\"$@\" >ready & wait", "sh"]).arg(command.get_program()).args(command.get_args());
        shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let mut shell = Process::start(&server.stage.place, shell);
        wait::until_written(&server.stage.work().join("ready"));
        shell.signal(Signal::SIGKILL);
        shell.wait();
        wait::until_gone(&server.stage.socket());
        crate::kill::wait_for_nothing(&server.workspace, std::time::Duration::ZERO);
    }
}
