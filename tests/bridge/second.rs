//! RB-01 to RB-27, RB-36 to RB-39: the second dialect through the real socket, with an agent that writes down
//! what it is told.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::served::{Served, Stage};
use crate::support::bridge_client::BridgeClient;

/// Speaks stream-json. What it is told stands in `told`; what it says, the prompt says:
/// `say:` with a list of lines, `ask:` with ids of questions, `wait` until it is interrupted.
pub(super) const AGENT: &str = r#"#!/usr/bin/python3
import json, sys
told = open("told", "a", buffering=1)
def say(line):
    print(line if isinstance(line, str) else json.dumps(line), flush=True)
def end(subtype):
    say({"type": "result", "subtype": subtype, "session_id": "agent"})
def text(what):
    say({"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": what}]}})
busy, asked = False, []
for line in sys.stdin:
    told.write(line)
    it = json.loads(line)
    if it["type"] == "user":
        busy, prompt = True, it["message"]["content"]
        say({"type": "system", "subtype": "init", "session_id": "agent"})
        if isinstance(prompt, str) and prompt.startswith("say:"):
            for one in json.loads(prompt[4:]):
                say(one)
        elif isinstance(prompt, str) and prompt.startswith("ask:"):
            asked = prompt[4:].split(",")
            for one in asked:
                say({"type": "control_request", "request_id": one, "request": {
                    "subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls " + one},
                    "tool_use_id": "t-" + one, "description": "d"}})
            continue
        elif prompt == "wait":
            text("waiting")
            continue
        else:
            text("done: " + str(prompt))
        busy = False
        end("success")
    elif it["type"] == "control_request":
        say({"type": "control_response", "response": {"subtype": "success", "request_id": it["request_id"]}})
        if it["request"]["subtype"] == "interrupt" and busy:
            busy, asked = False, []
            end("error_during_execution")
    elif it["type"] == "control_response" and it["response"]["request_id"] in asked:
        asked.remove(it["response"]["request_id"])
        text(json.dumps(it["response"]))
        if not asked:
            busy = False
            end("success")
"#;

pub(super) fn scripted(stage: &Stage, options: &[&str]) -> Served {
    let script = stage.script("agent", AGENT);
    let mut all = vec!["--adapter", "stream-json", "--agent-cmd", &script];
    all.extend(options);
    stage.serve(&all)
}

pub(super) fn user(content: &Value, uuid: &str) -> Value {
    json!({"type": "user", "message": {"role": "user", "content": content}, "uuid": uuid})
}

pub(super) fn request(id: &str, body: &Value) -> Value {
    json!({"type": "control_request", "request_id": id, "request": body})
}

/// Asks for something, and hears the answer of that name.
pub(super) fn control(client: &mut BridgeClient, id: &str, body: &Value) -> Value {
    client.send(&request(id, body));
    let answer = |event: &Value| event["response"]["request_id"] == id;
    client.events_until(answer).pop().expect("the answer is the last line")
}

/// The lines that the agent was told. One more turn has been through before: what was said earlier is in it.
fn told(stage: &Stage, client: &mut BridgeClient, mark: &str) -> Vec<Value> {
    client.send(&user(&json!(mark), mark));
    client.events_until(|event| event["message"]["content"][0]["text"] == format!("done: {mark}"));
    let text = fs::read_to_string(stage.work().join("told")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn prompts(told: &[Value]) -> Vec<Value> {
    let users = told.iter().filter(|line| line["type"] == "user");
    users.map(|line| line["message"]["content"].clone()).collect()
}

pub(super) fn session_file(stage: &Stage, name: &str) -> PathBuf {
    stage.place.join("state/saggar/sessions").join(stage.name()).join(name)
}

as_each_caller! {
    /// RB-01, RB-02, RB-03: twelve kinds of lines, and three of them cross, byte for byte.
    fn rb_01_the_conversation_crosses_and_nothing_else(caller) {
        let stage = Stage::new(caller);
        let served = scripted(&stage, &[]);
        let mut client = served.connect();
        let cross = [
            r#"{"n":2.50,"type":"user","a":1e400}"#,
            r#"{"type":"assistant","isVirtual":false, "x":"\u0041"}"#,
            r#"{"subtype":"local_command","type":"system"}"#,
        ];
        let stay = [
            r#"{"type":"user","isVirtual":true}"#,
            r#"{"type":"assistant","isVirtual":true}"#,
            r#"{"type":"system","subtype":"status"}"#,
            r#"{"type":"tool_result"}"#,
            r#"{"type":"progress"}"#,
            r#"{"type":"stream_event"}"#,
            r#"{"type":"rate_limit_event"}"#,
            r#"{"type":"auth_status"}"#,
            r#"{"type":"command_lifecycle"}"#,
        ];
        let lines: Vec<&str> = stay.iter().chain(&cross).copied().collect();
        client.send(&user(&json!(format!("say:{}", json!(lines))), "u1"));
        for line in cross {
            assert_eq!(String::from_utf8(client.raw_event()).unwrap(), line);
        }
        // BP-11: the same, raw, on a connection of the first dialect beside it.
        let mut raw = served.connect();
        let outcome = raw.turn(&format!("say:{}", json!([stay[2], stay[4], cross[2]])));
        assert_eq!(outcome.messages.len(), 5, "init, three lines, result: {outcome:?}");
        served.shut_down(&mut raw);
        assert_eq!(client.event()["type"], "result");
        client.expect_close();
    }

    /// RB-06, RB-12, RB-13: what says nothing is ignored without a word.
    fn rb_06_messages_without_content_are_ignored(caller) {
        let stage = Stage::new(caller);
        let served = scripted(&stage, &[]);
        let mut client = served.connect();
        client.send(&user(&json!("first"), "u0"));
        assert_eq!(client.event()["type"], "assistant");
        for line in ["{}", "[]", "3", "garbage", "\u{0}", r#"{"type":7}"#, r#"{"type":"assistant"}"#, r#"{"cmd":"shutdown"}"#] {
            client.send_bytes(format!("{line}\n").as_bytes());
        }
        client.send_bytes(b"\xff\xfe\n");
        assert_eq!(prompts(&told(&stage, &mut client, "last")), ["first", "last"]);
        served.end_by(Signal::SIGTERM);
    }

    /// RB-07 to RB-09, RB-38, RB-39: echoes and repetitions reach no agent, also over a new connection.
    fn rb_07_echoes_and_repetitions_reach_no_agent(caller) {
        let stage = Stage::new(caller);
        let served = scripted(&stage, &[]);
        let mut client = served.connect();
        let posted: Vec<String> =
            (0..200).map(|n| format!(r#"{{"type":"assistant","uuid":"p{n}"}}"#)).collect();
        client.send(&user(&json!(format!("say:{}", json!(posted))), "u1"));
        for number in 0..200 {
            let line = client.event();
            assert_eq!(line["uuid"], format!("p{number}"));
            client.send(&user(&json!("echo"), &format!("p{number}")));
        }
        client.send(&user(&json!("again"), "u2"));
        client.send(&user(&json!("again"), "u2"));
        let nameless = json!({"type": "user", "message": {"content": "nameless"}});
        client.send(&nameless);
        client.send(&nameless);
        let lines = told(&stage, &mut client, "mark1");
        assert_eq!(prompts(&lines)[1..], [json!("again"), json!("nameless"), json!("nameless"), json!("mark1")]);
        assert_eq!(lines.iter().find(|line| line["message"]["content"] == "again").unwrap()["uuid"], "u2");
        let mut swapped = served.connect();
        swapped.send(&user(&json!("again"), "u2"));
        swapped.send(&user(&json!("echo"), "p7"));
        assert_eq!(prompts(&told(&stage, &mut swapped, "mark2"))[5..], ["mark2"]);
        served.end_by(Signal::SIGTERM);
    }

    /// RB-14, RB-15: what is empty is no message; images have their key, and nothing else changes.
    fn rb_14_message_content_is_normalized(caller) {
        let stage = Stage::new(caller);
        let served = scripted(&stage, &[]);
        let mut client = served.connect();
        for nothing in [json!(null), json!(""), json!([])] {
            client.send(&user(&nothing, ""));
        }
        client.send(&json!({"type": "user", "message": {}}));
        client.send(&json!({"type": "user"}));
        let image = |key: &str| json!({"type": "image", "source": {"type": "base64", key: "image/png", "data": "AA=="}});
        client.send(&user(&json!([image("mediaType"), {"type": "text", "text": "mediaType"}, image("media_type")]), "u1"));
        client.event();
        let lines = told(&stage, &mut client, "mark");
        let expected = json!([image("media_type"), {"type": "text", "text": "mediaType"}, image("media_type")]);
        assert_eq!(prompts(&lines), [expected, json!("mark")]);
        served.end_by(Signal::SIGTERM);
    }

    /// RB-05, RB-17, RB-18, RB-24, RB-26: a thousand requests in any order, each answered once and before anything else,
    /// while a turn runs that an interrupt alone ends.
    fn rb_05_control_requests_are_answered_at_once(caller) {
        let stage = Stage::new(caller);
        let served = scripted(&stage, &[]);
        let mut client = served.connect();
        let initialized = control(&mut client, "i", &json!({"subtype": "initialize"}));
        let pid = initialized["response"]["response"]["pid"].as_u64().unwrap();
        assert_eq!(pid, u64::from(served.process.pid()), "alive, and the one to ask");
        assert_eq!(initialized["session_id"], stage.name());
        assert_eq!(
            initialized["response"]["response"],
            json!({"commands": [], "output_style": "normal", "available_output_styles": ["normal"], "models": [],
                   "account": {}, "pid": pid})
        );
        client.send(&user(&json!("wait"), "u1"));
        assert_eq!(client.event()["message"]["content"][0]["text"], "waiting");
        for number in 0..1000u32 {
            let id = format!("é{}", number.wrapping_mul(7919) % 1000);
            client.send(&request(&id, &json!({"subtype": "fly"})));
            let answer = client.event();
            assert_eq!(answer["response"]["request_id"], id.as_str(), "{answer}");
            assert_eq!(answer["response"]["error"], "REPL bridge does not handle control_request subtype: fly");
        }
        assert_eq!(client.event_within(Duration::ZERO), None, "the turn goes on");
        served.end_by(Signal::SIGTERM);
    }

    /// RB-19 to RB-21, RB-23: what is set holds for the next turn; an interrupt ends one.
    fn rb_19_settings_apply_to_the_next_turn(caller) {
        let stage = Stage::new(caller);
        let served = scripted(&stage, &[]);
        let mut client = served.connect();
        for (id, body, subtype) in [
            ("1", json!({"subtype": "set_model", "model": "m-1"}), "success"),
            ("2", json!({"subtype": "set_max_thinking_tokens", "max_thinking_tokens": 1234}), "success"),
            ("3", json!({"subtype": "set_permission_mode", "mode": "plan"}), "success"),
            ("4", json!({"subtype": "set_permission_mode", "mode": "bypassPermissions"}), "error"),
            ("5", json!({"subtype": "interrupt"}), "success"),
        ] {
            let answer = control(&mut client, id, &body);
            assert_eq!(answer["response"]["subtype"], subtype, "{answer}");
        }
        let lines = told(&stage, &mut client, "mark");
        let set: Vec<&Value> = lines.iter().map(|line| &line["request"]).filter(|body| body.is_object()).collect();
        assert_eq!(
            set,
            [
                &json!({"subtype": "set_model", "model": "m-1"}),
                &json!({"subtype": "set_max_thinking_tokens", "max_thinking_tokens": 1234}),
                &json!({"subtype": "set_permission_mode", "mode": "plan"}),
            ]
        );
        client.send(&user(&json!("wait"), "u1"));
        client.event();
        control(&mut client, "6", &json!({"subtype": "interrupt"}));
        told(&stage, &mut client, "after");
        served.end_by(Signal::SIGTERM);
    }

    /// RB-22: an agent that knows no modes is not said to have one.
    fn rb_22_no_false_success_for_an_agent_without_modes(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let mut client = served.connect();
        let answer = control(&mut client, "1", &json!({"subtype": "set_permission_mode", "mode": "plan"}));
        let text = "set_permission_mode is not supported in this context (onSetPermissionMode callback not registered)";
        assert_eq!(answer["response"]["error"], text);
        client.send(&user(&json!("hi"), "u1"));
        assert_eq!(client.event()["type"], "assistant");
        served.end_by(Signal::SIGTERM);
    }

    /// RB-25: an outbound-only connection changes nothing, and still initializes.
    fn rb_25_outbound_only_changes_nothing(caller) {
        let stage = Stage::new(caller);
        let served = scripted(&stage, &[]);
        let mut client = served.connect();
        client.send(&json!({"cmd": "set", "outboundOnly": true}));
        assert_eq!(client.event()["ev"], "done");
        for (id, subtype) in ["set_model", "set_max_thinking_tokens", "set_permission_mode", "interrupt", "fly"].iter().enumerate() {
            let answer = control(&mut client, &id.to_string(), &json!({"subtype": subtype, "model": "m", "mode": "plan"}));
            assert_eq!(answer["response"]["subtype"], "error", "{answer}");
            assert!(!answer["response"]["error"].as_str().unwrap().is_empty());
        }
        assert_eq!(control(&mut client, "i", &json!({"subtype": "initialize"}))["response"]["subtype"], "success");
        client.send(&user(&json!("not taken"), "u1"));
        let mut other = served.connect();
        let lines = told(&stage, &mut other, "mark");
        assert_eq!(prompts(&lines), ["mark"]);
        assert!(lines.iter().all(|line| line["request"].is_null()), "{lines:?}");
        served.end_by(Signal::SIGTERM);
    }

    /// RB-36, RB-37: one closing result, and then the end; by `shutdown`, by SIGTERM, in a turn.
    fn rb_36_one_closing_result_before_the_end(caller) {
        for by_signal in [false, true] {
            let stage = Stage::new(caller);
            let served = scripted(&stage, &[]);
            let mut client = served.connect();
            client.send(&user(&json!("wait"), "u1"));
            assert_eq!(client.event()["message"]["content"][0]["text"], "waiting");
            if by_signal {
                assert!(served.end_by(Signal::SIGTERM).0.success());
            } else {
                let mut other = served.connect();
                served.shut_down(&mut other);
            }
            let result = client.event();
            assert_eq!((&result["type"], &result["subtype"]), (&json!("result"), &json!("success")), "{result}");
            assert_eq!((&result["num_turns"], &result["session_id"]), (&json!(0), &json!(stage.name())));
            client.expect_close();
        }
    }

    /// BP-27 in this dialect: a turn whose agent dies does not just go silent.
    fn turn_of_a_dead_agent_reports_an_error(caller) {
        let stage = Stage::new(caller);
        let served = scripted(&stage, &[]);
        let mut client = served.connect();
        client.send(&user(&json!("wait"), "u1"));
        client.event();
        served.inside("--permission-prompt-tool").signal(Signal::SIGKILL);
        let notice = client.event();
        assert_eq!((&notice["type"], &notice["subtype"], &notice["level"]), (&json!("system"), &json!("local_command"), &json!("error")));
        assert!(notice["content"].as_str().unwrap().contains("signal 9"), "{notice}");
        told(&stage, &mut client, "mark");
        served.end_by(Signal::SIGTERM);
    }
}
