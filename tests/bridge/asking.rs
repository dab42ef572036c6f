//! RB-28 to RB-35: questions of the agent, their answers, the rules of the policy and the audit.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::second::{control, scripted, session_file, user};
use super::served::Stage;
use crate::support::bridge_client::BridgeClient;

fn respond(id: &Value, response: &Value) -> Value {
    json!({"type": "control_response", "response": {"subtype": "success", "request_id": id, "response": response}})
}

/// Reads so many questions.
fn questions(client: &mut BridgeClient, count: usize) -> Vec<Value> {
    (0..count)
        .map(|_| client.events_until(|event| event["type"] == "control_request").pop().unwrap())
        .collect()
}

/// The next answer that the agent says it has got.
fn got(client: &mut BridgeClient) -> Value {
    let line = client.events_until(|event| event["type"] == "assistant").pop().unwrap();
    serde_json::from_str(line["message"]["content"][0]["text"].as_str().unwrap()).unwrap()
}

fn audit(stage: &Stage) -> Vec<Value> {
    let text = fs::read_to_string(session_file(stage, "audit.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

as_each_caller! {
    /// RB-28 to RB-31: asked under a fresh name, answered in any order, once, byte for byte; all of it audited.
    fn rb_28_permission_requests_are_answered_once_in_any_order(caller) {
        let stage = Stage::new(caller);
        let served = scripted(&stage, &[]);
        let mut client = served.connect();
        client.send(&user(&json!("ask:a,b,c"), "u1"));
        let asked = questions(&mut client, 3);
        for (question, name) in asked.iter().zip(["a", "b", "c"]) {
            assert_ne!(question["request_id"], name);
            let body = json!({"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": format!("ls {name}")},
                              "tool_use_id": format!("t-{name}"), "description": "d"});
            assert_eq!(question["request"], body);
        }
        let ids: Vec<&Value> = asked.iter().map(|question| &question["request_id"]).collect();
        client.send(&respond(&json!("b"), &json!({"behavior": "allow"})));
        client.send(&respond(&json!("unknown"), &json!({"behavior": "allow"})));
        let allow = json!({"behavior": "allow", "updatedInput": {"command": "ls other"}, "updatedPermissions": [{"x": [1]}]});
        client.send(&respond(ids[2], &allow));
        assert_eq!(got(&mut client), json!({"subtype": "success", "request_id": "c", "response": allow}));
        client.send(&respond(ids[2], &json!({"behavior": "deny"})));
        let deny = json!({"behavior": "deny", "message": "not today", "interrupt": false});
        client.send(&respond(ids[0], &deny));
        assert_eq!(got(&mut client), json!({"subtype": "success", "request_id": "a", "response": deny}));
        // RB-29: neither yes nor no is no.
        client.send(&respond(ids[1], &json!({"behavior": "maybe"})));
        let denied = got(&mut client);
        assert_eq!((&denied["request_id"], &denied["response"]["behavior"]), (&json!("b"), &json!("deny")));
        served.end_by(Signal::SIGTERM);
        let decided: Vec<[String; 4]> = audit(&stage)
            .iter()
            .map(|line| ["request_id", "decision", "by", "tool"].map(|key| line[key].as_str().unwrap().to_owned()))
            .collect();
        let expected = [["c", "allow", "server", "Bash"], ["a", "deny", "server", "Bash"], ["b", "deny", "bridge", "Bash"]];
        assert_eq!(decided, expected);
        assert_eq!(audit(&stage)[0]["changed"], true);
        let mode = fs::metadata(session_file(&stage, "audit.jsonl")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    /// RB-28: a server of the first dialect hears the agent's own line and answers by the agent's own name.
    fn rb_28_first_dialect_server_gets_the_agents_own_request_line(caller) {
        let stage = Stage::new(caller);
        let served = scripted(&stage, &[]);
        let mut client = served.connect();
        client.query("ask:a");
        let question = client.events_until(|event| event["data"]["type"] == "control_request").pop().unwrap();
        assert_eq!(question["data"]["request_id"], "a");
        client.send(&respond(&json!("a"), &json!({"behavior": "maybe"})));
        assert!(client.event()["error"].as_str().unwrap().contains("neither allow nor deny"));
        client.send(&respond(&json!("a"), &json!({"behavior": "allow"})));
        let outcome = client.outcome();
        assert!(outcome.is_done());
        assert_eq!(outcome.messages.len(), 2, "the agent's words, its result, and nothing else: {outcome:?}");
        // The same name again could be answered by a late answer: it is not asked.
        client.query("ask:a");
        let outcome = client.outcome();
        assert!(outcome.of_type("control_request").next().is_none(), "{outcome:?}");
        served.shut_down(&mut client);
    }

    /// RB-32, RB-33: an interrupt and the agent's death close what is open, and say so.
    fn rb_33_interrupt_and_agent_death_close_open_requests(caller) {
        let stage = Stage::new(caller);
        let served = scripted(&stage, &[]);
        let mut client = served.connect();
        client.send(&user(&json!("ask:a"), "u1"));
        let asked = questions(&mut client, 1);
        client.send(&json!({"type": "control_request", "request_id": "i", "request": {"subtype": "interrupt"}}));
        let cancel = client.events_until(|event| event["type"] == "control_cancel_request").pop().unwrap();
        assert_eq!(cancel["request_id"], asked[0]["request_id"]);
        client.send(&respond(&asked[0]["request_id"], &json!({"behavior": "allow"})));
        client.send(&user(&json!("ask:b"), "u2"));
        let asked = questions(&mut client, 1);
        served.inside("--permission-prompt-tool").signal(Signal::SIGKILL);
        let cancel = client.events_until(|event| event["type"] == "control_cancel_request").pop().unwrap();
        assert_eq!(cancel["request_id"], asked[0]["request_id"]);
        assert_eq!(client.event()["subtype"], "local_command");
        // The next agent has a question of its own; the old answer is not for it.
        client.send(&user(&json!("ask:c"), "u3"));
        let fresh = questions(&mut client, 1);
        client.send(&respond(&asked[0]["request_id"], &json!({"behavior": "allow"})));
        client.send(&respond(&fresh[0]["request_id"], &json!({"behavior": "deny", "message": "no"})));
        assert_eq!(got(&mut client)["response"]["behavior"], "deny");
        served.end_by(Signal::SIGTERM);
        let by: Vec<Value> = audit(&stage).iter().map(|line| line["by"].clone()).collect();
        assert_eq!(by, ["interrupt", "exit", "server"]);
    }

    /// RB-34 and `permissions.timeout`: nobody answers, and the turn goes on without permission.
    fn rb_34_unanswered_permission_request_is_denied_after_the_timeout(caller) {
        let stage = Stage::new(caller);
        let policy = stage.place.make_file("policy.toml", "[permissions]\ntimeout = '200ms'\n");
        let served = scripted(&stage, &["--policy", policy.to_str().unwrap()]);
        let mut client = served.connect();
        client.query("ask:a");
        let outcome = client.outcome();
        assert!(outcome.is_done());
        assert!(outcome.of_type("control_cancel_request").any(|line| line["request_id"] == "a"), "{outcome:?}");
        let said = outcome.of_type("assistant").next().unwrap()["message"]["content"][0]["text"].as_str().unwrap();
        assert!(said.contains("deny") && said.contains("no answer within 200ms"), "{said}");
        served.shut_down(&mut client);
        assert_eq!(audit(&stage)[0]["by"], "timeout");
    }

    /// RB-35: the same names in two sandboxes are two questions.
    fn rb_35_permission_requests_of_two_sandboxes_are_separate(caller) {
        let stages = [Stage::new(caller), Stage::new(caller)];
        let served = [scripted(&stages[0], &[]), scripted(&stages[1], &[])];
        let mut clients = [served[0].connect(), served[1].connect()];
        let mut ids = Vec::new();
        for client in &mut clients {
            client.send(&user(&json!("ask:same"), "u1"));
            ids.push(questions(client, 1)[0]["request_id"].clone());
        }
        assert_ne!(ids[0], ids[1]);
        clients[0].send(&respond(&ids[1], &json!({"behavior": "allow"})));
        clients[0].send(&respond(&ids[0], &json!({"behavior": "deny", "message": "mine"})));
        assert_eq!(got(&mut clients[0])["response"]["message"], "mine");
        clients[1].send(&respond(&ids[1], &json!({"behavior": "allow"})));
        assert_eq!(got(&mut clients[1])["response"]["behavior"], "allow");
        for served in served {
            served.end_by(Signal::SIGTERM);
        }
    }

    /// `[permissions]`: rules answer, a denial stands over an allowance, the record names rule and layer; the
    /// agent's own folder takes away and never gives.
    fn rules_of_the_policy_answer_the_agent(caller) {
        let stage = Stage::new(caller);
        let rules = "[permissions]\nallow = ['Bash']\ndeny = ['Bash(ls b*)']\n";
        let policy = stage.place.make_file("policy.toml", rules);
        stage.place.make_file("work/saggar.toml", "[permissions]\nask = ['Bash(ls c)']\n");
        let served = scripted(&stage, &["--policy", policy.to_str().unwrap()]);
        let mut client = served.connect();
        client.send(&user(&json!("ask:a,b,c"), "u1"));
        // The question may overtake what the agent says of the answers before it.
        let lines: Vec<Value> = (0..3).map(|_| client.event()).collect();
        let (asked, said): (Vec<&Value>, Vec<&Value>) =
            lines.iter().partition(|line| line["type"] == "control_request");
        let answer = |line: &Value| -> Value {
            serde_json::from_str(line["message"]["content"][0]["text"].as_str().unwrap()).unwrap()
        };
        let allowed = answer(said[0]);
        assert_eq!(allowed["response"], json!({"behavior": "allow", "updatedInput": {"command": "ls a"}}));
        assert_eq!(answer(said[1])["response"]["behavior"], "deny");
        client.send(&respond(&asked[0]["request_id"], &json!({"behavior": "deny", "message": "no"})));
        assert_eq!(got(&mut client)["request_id"], "c");
        served.end_by(Signal::SIGTERM);
        let audit = audit(&stage);
        assert_eq!(audit[0]["rule"], format!("Bash (--policy {})", policy.display()));
        assert!(audit[1]["rule"].as_str().unwrap().starts_with("Bash(ls b*) ("), "{audit:?}");
        stage.place.make_file("work/saggar.toml", "[permissions]\nallow = ['Bash']\n");
        let ended = stage.run(stage.command(&["--adapter", "demo", "hi"]));
        ended.refused(125, &["permissions.allow = Bash", "may only tighten"]);
        stage.place.make_file("work/saggar.toml", "[permissions]\ndeny = ['mcp__x(y)']\n");
        let ended = stage.run(stage.command(&["--adapter", "demo", "hi"]));
        ended.refused(125, &["saggar.toml:2", "permissions.deny[0]", "the field of this tool"]);
    }

    /// `permissions.modes` is the verdict on a mode, in either dialect.
    fn rb_21_the_policy_says_which_modes_may_be_set(caller) {
        let stage = Stage::new(caller);
        let policy = stage.place.make_file("policy.toml", "[permissions]\nmodes = ['plan']\n");
        let served = scripted(&stage, &["--policy", policy.to_str().unwrap()]);
        let mut client = served.connect();
        let mut set = |id: &str, mode: &str| control(&mut client, id, &json!({"subtype": "set_permission_mode", "mode": mode}));
        assert_eq!(set("1", "plan")["response"]["subtype"], "success");
        let refused = set("2", "acceptEdits");
        assert!(refused["response"]["error"].as_str().unwrap().contains("does not permit"), "{refused}");
        let mut first = served.connect();
        first.send(&json!({"cmd": "query", "prompt": "x", "sessionId": "s", "permissionMode": "acceptEdits"}));
        assert!(first.event()["error"].as_str().unwrap().contains("does not permit"));
        served.end_by(Signal::SIGTERM);
    }
}
