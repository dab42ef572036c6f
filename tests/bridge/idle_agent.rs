//! The end of an agent that runs no turn (`limits.agent_idle`), and its start with the conversation.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::served::{Served, Stage};
use crate::control::client::{ControlClient, serve, socket};
use crate::support::bridge_client::{BridgeClient, Outcome};
use crate::support::deadline::Deadline;
use crate::support::process::Watch;
use crate::support::wait;

/// Speaks stream-json. It stores its conversation in a file, and replies with the earlier prompts. `ask` requests a
/// permission; `wait` runs until the file `go` is there. When its input ends and there is a FIFO `gate`, it creates the
/// file `leaving`, ignores SIGTERM and exits with status 1 once the FIFO is opened for writing.
const AGENT: &str = r#"#!/usr/bin/python3
import json, os, signal, sys, time
def say(line):
    print(json.dumps(line), flush=True)
resumed = [word[9:] for word in sys.argv if word.startswith("--resume=")]
name = resumed[0] if resumed else "conversation-1"
said = json.load(open(name)) if resumed else []
open("starts", "a").write(str(resumed) + "\n")
for line in sys.stdin:
    it = json.loads(line)
    if it["type"] == "user":
        prompt = it["message"]["content"]
        say({"type": "system", "subtype": "init", "session_id": name})
        if prompt == "ask":
            say({"type": "control_request", "request_id": "q", "request": {
                "subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}, "tool_use_id": "t"}})
            while json.loads(sys.stdin.readline())["type"] != "control_response":
                pass
        while prompt == "wait" and not os.path.exists("go"):
            time.sleep(0.01)
        say({"type": "assistant", "said": said})
        said.append(prompt)
        json.dump(said, open(name, "w"))
        say({"type": "result", "subtype": "success", "session_id": name})
if os.path.exists("gate"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open("leaving", "w")
    open("gate").read()
    sys.exit(1)
"#;

/// Speaks the bridge's protocol on its socket, and has its conversation in memory alone.
const IN_MEMORY: &str = r#"#!/usr/bin/python3
import json, os, socket
name = os.environ["ASH_BRIDGE_SOCKET"]
if os.path.exists(name): os.unlink(name)
server = socket.socket(socket.AF_UNIX)
server.bind(name)
server.listen(1)
peer, _ = server.accept()
peer.sendall(b'{"ev":"ready"}\n')
said = []
for line in peer.makefile("rb"):
    command = json.loads(line)
    if command["cmd"] == "query":
        data = {"type": "assistant", "said": list(said)}
        said.append(command["prompt"])
        peer.sendall(json.dumps({"ev": "message", "data": data}).encode() + b"\n")
    peer.sendall(json.dumps({"ev": "done", "sessionId": command["sessionId"]}).encode() + b"\n")
"#;

/// Serves an agent of `adapter`, with a control socket.
fn start(stage: &Stage, adapter: &str, text: &str, options: &[&str]) -> (Served, ControlClient) {
    let script = stage.script("agent", text);
    let served = serve(stage, &[&["--adapter", adapter, "--agent-cmd", &script], options].concat());
    (served, ControlClient::connect(&socket(stage)))
}

fn set_limit(control: &mut ControlClient, limit: &str) {
    control.call("update", &json!({ "limits": { "agent_idle": limit } }));
}

/// The agent's process, which alone runs Python.
fn agent(served: &Served) -> Watch {
    served.inside("python3")
}

/// The earlier prompts that the agent repeats.
fn said(outcome: &Outcome) -> Value {
    assert!(outcome.is_done(), "{outcome:?}");
    outcome.of_type("assistant").next().unwrap()["said"].clone()
}

/// Waits until the end of the agent was noticed.
fn until_ended(control: &mut ControlClient) -> Value {
    let deadline = Deadline::usual();
    loop {
        let state = control.get("state");
        if state["pid"] == 0 {
            return state;
        }
        assert!(!deadline.remaining().is_zero(), "the agent runs: {state}");
        deadline.pause();
    }
}

/// Asserts that the agent runs for longer than the limit of 1 ms.
fn assert_runs_on(control: &mut ControlClient, agent: &Watch) {
    let long = Instant::now();
    while long.elapsed() < Duration::from_millis(100) {
        assert_eq!(control.get("state")["pid"], agent.pid());
    }
}

/// A turn that was sent but may not have begun yet.
fn until_busy(control: &mut ControlClient) {
    let deadline = Deadline::usual();
    while control.get("state")["session"]["busy"] != true {
        assert!(!deadline.remaining().is_zero(), "the turn does not begin");
        deadline.pause();
    }
}

fn starts(stage: &Stage) -> Vec<String> {
    fs::read_to_string(stage.work().join("starts")).unwrap().lines().map(str::to_owned).collect()
}

as_each_caller! {
    /// The process is gone, and everything else stays; the next turn of any client has the conversation.
    fn idle_agent_is_ended_and_the_next_turn_has_its_conversation(caller) {
        let stage = Stage::new(caller);
        let (served, mut control) = start(&stage, "stream-json", AGENT, &["--agent-idle", "1h"]);
        let (mut client, mut other) = (served.connect(), served.connect());
        assert_eq!(said(&client.turn("one")), json!([]));
        assert_eq!(said(&other.turn("two")), json!(["one"]));
        other.send(&json!({"cmd": "set", "log": true}));
        assert_eq!(other.event()["ev"], "done");
        let first = agent(&served);
        set_limit(&mut control, "1ms");
        first.wait_gone("an idle agent");
        let state = until_ended(&mut control);
        assert!(!Path::new(&format!("/proc/{}", first.pid())).exists(), "it is reaped");
        assert_eq!((&state["status"], &state["session"]["state"]), (&json!("running"), &json!("active")));
        assert_eq!(state["session"]["busy"], false);
        // Commands and files do not need it.
        assert_eq!(client.exec("echo here", 60_000)["stdout"], "here\n");
        assert_eq!(control.call("exec", &json!({ "command": "echo there" }))["stdout"], "there\n");
        assert!(control.call("files.read", &json!({ "path": "starts" }))["content"].is_string());
        assert_eq!(control.refused("kill", &json!({ "signal": "TERM" })).0, "state");
        set_limit(&mut control, "1h");
        assert_eq!(said(&client.turn("three")), json!(["one", "two"]));
        assert_ne!(agent(&served).pid(), first.pid());
        assert_eq!(starts(&stage), ["[]", "['conversation-1']"]);
        // Its end was reported once, to the client that reads the log.
        let told = other.event();
        assert_eq!(told["ev"], "log", "{told}");
        assert!(told["text"].as_str().unwrap().contains("ran no turn for 1ms"), "{told}");
        assert_eq!(said(&other.turn("four")), json!(["one", "two", "three"]));
        served.shut_down(&mut client);
    }

    /// With a limit that is always exceeded, turns come at any point of the end: none is lost, nor the conversation.
    fn turns_at_any_point_of_the_end_are_answered(caller) {
        let stage = Stage::new(caller);
        let (served, mut control) = start(&stage, "stream-json", AGENT, &["--agent-idle", "1ms"]);
        let mut clients = [served.connect(), served.connect()];
        let mut expected = Vec::new();
        for round in 0..20 {
            let client = &mut clients[round % 2];
            assert_eq!(said(&client.turn(&round.to_string())), json!(expected));
            expected.push(round.to_string());
            if round % 4 == 0 {
                until_ended(&mut control);
            }
        }
        assert!(starts(&stage).len() > 5);
        assert_eq!(control.get("state")["session"]["state"], "active");
        served.shut_down(&mut clients[0]);
    }

    /// A turn that arrives while the process is being ended waits for its exit, and is the next process's.
    fn turn_waits_for_the_exit_of_an_idle_agent(caller) {
        let stage = Stage::new(caller);
        let (served, mut control) = start(&stage, "stream-json", AGENT, &["--agent-idle", "1h"]);
        let (mut client, mut other) = (served.connect(), served.connect());
        said(&client.turn("one"));
        assert_eq!(client.exec("mkfifo gate", 60_000)["exitCode"], 0);
        let first = agent(&served);
        set_limit(&mut control, "1ms");
        wait::until_exists(&stage.work().join("leaving"));
        client.query("two");
        until_busy(&mut control);
        set_limit(&mut control, "1h");
        assert_eq!(other.exec("mv gate opened; : <> opened", 60_000)["exitCode"], 0);
        assert_eq!(said(&client.outcome()), json!(["one"]));
        assert!(first.is_gone_by(Deadline::usual()));
        assert_eq!(starts(&stage), ["[]", "['conversation-1']"]);
        assert_eq!(control.get("state")["session"]["state"], "active");
        served.shut_down(&mut client);
    }

    /// Neither during a turn nor while a permission request has no answer.
    fn agent_in_use_is_not_ended(caller) {
        let stage = Stage::new(caller);
        let (served, mut control) = start(&stage, "stream-json", AGENT, &["--agent-idle", "1h"]);
        let mut client = served.connect();
        said(&client.turn("one"));
        let first = agent(&served);
        client.query("wait");
        until_busy(&mut control);
        set_limit(&mut control, "1ms");
        assert_runs_on(&mut control, &first);
        client.query("ask");
        stage.place.make_file("work/go", "");
        assert_eq!(said(&client.outcome()), json!(["one"]));
        let asks = |event: &Value| event["data"]["type"] == "control_request";
        client.events_until(asks);
        assert_runs_on(&mut control, &first);
        let allow = json!({"behavior": "allow", "updatedInput": {}});
        let response = json!({"subtype": "success", "request_id": "q", "response": allow});
        client.send(&json!({"type": "control_response", "response": response}));
        assert_eq!(said(&client.outcome()), json!(["one", "wait"]));
        until_ended(&mut control);
        served.shut_down(&mut client);
    }

    /// Neither without the limit, nor where the conversation is in memory alone.
    fn agent_without_the_limit_or_with_its_conversation_in_memory_is_not_ended(caller) {
        for (adapter, text, limit) in [("stream-json", AGENT, None), ("bridge", IN_MEMORY, Some("1ms"))] {
            let stage = Stage::new(caller);
            let (served, mut control) = start(&stage, adapter, text, &[]);
            let mut client = served.connect();
            assert_eq!(said(&client.turn("one")), json!([]), "{adapter}");
            let first = agent(&served);
            limit.into_iter().for_each(|limit| set_limit(&mut control, limit));
            assert_runs_on(&mut control, &first);
            assert_eq!(said(&client.turn("two")), json!(["one"]), "{adapter}");
            served.shut_down(&mut client);
        }
    }

    /// The built-in agent stores its conversation. A shutdown needs no agent.
    fn built_in_agent_is_ended_and_recalls_its_conversation(caller) {
        let stage = Stage::new(caller);
        let served = serve(&stage, &["--adapter", "demo", "--agent-idle", "1ms"]);
        let mut control = ControlClient::connect(&socket(&stage));
        let mut client = served.connect();
        let recalled = |client: &mut BridgeClient| {
            let outcome = client.turn("recall");
            outcome.of_type("result").next().unwrap()["result"].to_string()
        };
        assert!(client.turn("remember this").is_done());
        until_ended(&mut control);
        assert!(recalled(&mut client).contains("remember this"));
        until_ended(&mut control);
        served.shut_down(&mut client);
    }
}
