//! BP-07, BP-08, BP-11, BP-13, BP-33 with an agent of `stream-json` that says what a file says.

use std::fs;

use serde_json::json;

use super::served::Stage;
use crate::support::bridge_client::SESSION;

/// Answers each `user` line with the file `lines`, and writes down how it was started and what it heard.
const AGENT: &str = r#"#!/bin/sh
echo "$*" >> args
while IFS= read -r line; do
  printf '%s\n' "$line" >> heard
  case $line in *'"type":"user"'*) cat lines ;; esac
done
"#;

const INIT: &str = r#"{"type":"system","subtype":"init","session_id":"conversation-1"}"#;
const RESULT: &str = r#"{"duration_ms":2.50,"subtype":"success","is_error":false,"type":"result"}"#;

/// What may trip whoever parses more than it must.
const ODD: [&str; 12] = [
    r#"{"message":{"z":1,"a":2.50,"m":-0.0},"type":"assistant"}"#,
    r#"{"type":"assistant","n":1e400,"m":12345678901234567890,"o":-1E-999}"#,
    r#"{"type":"assistant","a":1,"a":2,"type":"assistant"}"#,
    r#"{"type":"assistant","text":"\u0000\u001f\u2028\ud834\udd1e\/\\\""}"#,
    r#"{ "type" : "assistant" ,	"spaced" : [ 1 , 2 ] }"#,
    r#"{"type":"a_kind_of_2031","payload":{"__proto__":{"x":1},"constructor":null}}"#,
    r#"{"type":"user","message":{"role":"user","content":[{"type":"tool_result","content":"€𝄞"}]}}"#,
    r#"{"ev":"done","sessionId":"not an event of the bridge"}"#,
    r#"{"type":"system","subtype":"local_command","content":""}"#,
    r#"{"no_type":true}"#,
    r#"{"type":"assistant","lone":"\ud834"}"#,
    r#"{"type":"assistant","deep":[[[[[[[[[[[[[[[[{}]]]]]]]]]]]]]]]]}"#,
];

as_each_caller! {
    /// BP-11, BP-07: the bytes that the agent wrote, in their order, then one `done`.
    fn bp_11_odd_lines_leave_as_they_came(caller) {
        let stage = Stage::new(caller);
        let lines: Vec<&str> = [INIT].into_iter().chain(ODD).chain([RESULT]).collect();
        stage.place.make_file("work/lines", &format!("{}\n", lines.join("\n")));
        let served = stage.scripted("stream-json", AGENT);
        let mut client = served.connect();
        for _ in 0..2 {
            client.query("say it");
            for line in &lines {
                let expected = format!("{{\"ev\":\"message\",\"data\":{line}}}");
                assert_eq!(String::from_utf8_lossy(&client.raw_event()), expected);
            }
            assert_eq!(client.event(), json!({"ev": "done", "sessionId": SESSION}));
        }
        served.shut_down(&mut client);
    }

    /// BP-07: many messages, all of them, in order; a line without an end and one that is no JSON do no harm.
    fn bp_07_ten_thousand_messages_come_in_order(caller) {
        let stage = Stage::new(caller);
        let many: Vec<String> = (0..10_000).map(|n| format!(r#"{{"type":"assistant","n":{n}}}"#)).collect();
        stage.place.make_file("work/lines", &format!("{INIT}\nno json\n\n{}\n{RESULT}\n", many.join("\n")));
        let served = stage.scripted("stream-json", AGENT);
        let mut client = served.connect();
        let outcome = client.turn("many");
        assert!(outcome.is_done());
        let numbers: Vec<u64> = outcome.of_type("assistant").map(|line| line["n"].as_u64().unwrap()).collect();
        assert!(numbers.into_iter().eq(0..10_000));
        served.shut_down(&mut client);
    }

    /// BP-13: an error of the agent's own is a message, and the turn is done.
    fn bp_13_a_failed_result_is_a_message(caller) {
        let stage = Stage::new(caller);
        let failed = r#"{"type":"result","subtype":"error_max_turns","is_error":true}"#;
        stage.place.make_file("work/lines", &format!("{INIT}\n{failed}\n"));
        let served = stage.scripted("stream-json", AGENT);
        let mut client = served.connect();
        let outcome = client.turn("too many");
        assert!(outcome.is_done());
        assert_eq!(outcome.of_type("result").next().unwrap()["subtype"], "error_max_turns");
        served.shut_down(&mut client);
    }

    /// BP-08: a new process of the runtime starts the agent with its own name of the conversation.
    fn bp_08_resume_names_the_agents_own_conversation(caller) {
        let stage = Stage::new(caller);
        stage.place.make_file("work/lines", &format!("{INIT}\n{RESULT}\n"));
        let served = stage.scripted("stream-json", AGENT);
        let mut client = served.connect();
        assert!(client.turn("first").is_done());
        served.shut_down(&mut client);
        let script = stage.work().join("agent");
        let served = stage.serve(&["--adapter", "stream-json", "--agent-cmd", script.to_str().unwrap(), "--resume"]);
        let mut client = served.connect();
        client.send(&json!({"cmd": "resume", "sessionId": SESSION}));
        // This agent does not answer `initialize`; that it lives is enough after a while, so ask for a turn.
        client.send(&json!({"cmd": "query", "prompt": "second", "sessionId": SESSION, "id": 2}));
        client.events_until(|event| event["ev"] == "done" && event["id"] == 2);
        let args = fs::read_to_string(stage.work().join("args")).unwrap();
        let starts: Vec<&str> = args.lines().collect();
        assert_eq!(starts.len(), 2, "{args}");
        assert!(!starts[0].contains("--resume") && starts[1].contains("--resume=conversation-1"), "{args}");
        served.shut_down(&mut client);
    }

    /// BP-20, DECISIONS 17: fields become flags and control requests; a prompt may be any JSON.
    fn bp_20_fields_reach_the_agent_by_the_table(caller) {
        let stage = Stage::new(caller);
        stage.place.make_file("work/lines", &format!("{INIT}\n{RESULT}\n"));
        let served = stage.scripted("stream-json", AGENT);
        let mut client = served.connect();
        client.send(&json!({
            "cmd": "query", "prompt": [{"type": "text", "text": "block"}], "sessionId": SESSION, "maxTurns": 3,
            "traceContext": "x",
        }));
        assert!(client.outcome().is_done());
        let args = fs::read_to_string(stage.work().join("args")).unwrap();
        assert!(args.lines().last().unwrap().contains("--max-turns"), "{args}");
        let heard = fs::read_to_string(stage.work().join("heard")).unwrap();
        assert!(heard.contains(r#""content":[{"text":"block","type":"text"}]"#), "{heard}");
        served.shut_down(&mut client);
    }
}
