use super::*;
use serde_json::Value;
use std::io::{BufReader, PipeReader, PipeWriter, pipe};
use std::thread::JoinHandle;

/// A demo agent connected by two pipes.
struct TestAgent {
    input: Option<PipeWriter>,
    output: BufReader<PipeReader>,
    thread: JoinHandle<u8>,
}

impl TestAgent {
    fn start() -> TestAgent {
        TestAgent::start_at(None)
    }

    fn start_at(home: Option<PathBuf>) -> TestAgent {
        let (input_reader, input) = pipe().unwrap();
        let (output, output_writer) = pipe().unwrap();
        let thread = std::thread::spawn(move || run_at(home, BufReader::new(input_reader), output_writer));
        let mut agent = TestAgent { input: Some(input), output: BufReader::new(output), thread };
        assert_eq!(agent.receive()["ev"], "ready");
        agent
    }

    fn send(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    fn query(&mut self, prompt: &str) {
        self.send(
            &serde_json::json!({"cmd": "query", "prompt": prompt, "sessionId": "demo-test"}).to_string(),
        );
    }

    fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{line:?}: {e}"))
    }

    /// The events up to and including the terminal event.
    fn turn(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let event = self.receive();
            let over = event["ev"] != "message";
            events.push(event);
            if over {
                return events;
            }
        }
    }

    fn end(mut self) -> u8 {
        self.input = None;
        self.thread.join().unwrap()
    }
}

fn types(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["data"]["type"].as_str().unwrap_or(event["ev"].as_str().unwrap()))
        .collect()
}

#[test]
fn bp_07_a_greeting_is_answered_with_the_shapes_of_an_sdk() {
    let mut agent = TestAgent::start();
    agent.query("hi");
    let events = agent.turn();
    assert_eq!(types(&events), ["system", "assistant", "result", "done"]);
    assert_eq!(events[0]["data"]["session_id"], "demo-test");
    assert_eq!(agent.end(), 0);
}

#[test]
fn a_command_runs_and_shows_as_a_tool_call_with_its_result() {
    let mut agent = TestAgent::start();
    agent.query("run: echo out; echo err >&2; exit 3");
    let events = agent.turn();
    assert_eq!(types(&events), ["system", "assistant", "user", "assistant", "result", "done"]);
    let result = &events[2]["data"]["message"]["content"][0];
    assert_eq!(result["content"], "out\nerr\n");
    assert_eq!(result["is_error"], true);
    assert_eq!(agent.end(), 0);
}

#[test]
fn bp_09_an_interrupt_ends_a_count_and_a_command_in_the_middle() {
    let mut agent = TestAgent::start();
    for prompt in ["count: 1000000", "run: sleep 100 & sleep 100", "ask: true"] {
        agent.query(prompt);
        agent.receive();
        agent.send(r#"{"cmd":"interrupt"}"#);
        let events = agent.turn();
        let [.., result, done] = &events[..] else { panic!("{events:?}") };
        assert_eq!(
            (&result["data"]["subtype"], &done["ev"]),
            (&"error_during_execution".into(), &"done".into())
        );
    }
    assert_eq!(agent.end(), 0);
}

#[test]
fn a_question_is_asked_and_only_an_allow_runs_the_command() {
    let mut agent = TestAgent::start();
    for (answer, expected) in [
        (r#"{"behavior":"deny","message":"no"}"#, 3),
        (r#"{"behavior":"allow"}"#, 5),
        (r#"{"behavior":"allow","updatedInput":{"command":"echo other"}}"#, 5),
    ] {
        agent.query("ask: echo asked");
        agent.receive();
        let ask = agent.receive();
        assert_eq!(ask["data"]["request"]["subtype"], "can_use_tool");
        let id = &ask["data"]["request_id"];
        agent.send(&format!(
            r#"{{"type":"control_response","response":{{"subtype":"success","request_id":{id},"response":{answer}}}}}"#
        ));
        let events = agent.turn();
        assert_eq!(events.len(), expected, "{events:?}");
        if answer.contains("other") {
            assert_eq!(events[1]["data"]["message"]["content"][0]["content"], "other\n");
        }
    }
    assert_eq!(agent.end(), 0);
}

#[test]
fn bp_11_raw_json_leaves_as_it_came() {
    let mut agent = TestAgent::start();
    agent.query(r#"echo-json: {"n":1e400,"n":12345678901234567890}"#);
    agent.receive();
    let mut line = String::new();
    agent.output.read_line(&mut line).unwrap();
    assert_eq!(line, "{\"ev\":\"message\",\"data\":{\"n\":1e400,\"n\":12345678901234567890}}\n");
    agent.turn();
    assert_eq!(agent.end(), 0);
}

#[test]
fn a_crash_is_a_crash() {
    let mut agent = TestAgent::start();
    agent.query("crash");
    assert_eq!(agent.thread.join().unwrap(), CRASH_EXIT_CODE);
}

#[test]
fn bp_08_a_resumed_conversation_knows_its_prompts_and_a_fresh_one_does_not() {
    let home = tempfile::tempdir().unwrap();
    let reply_text = |agent: &mut TestAgent| {
        agent.query("recall");
        agent.turn()[1]["data"]["message"]["content"][0]["text"].as_str().unwrap().to_owned()
    };
    let mut agent = TestAgent::start_at(Some(home.path().into()));
    agent.query("my name is Ann");
    agent.turn();
    agent.end();
    let mut agent = TestAgent::start_at(Some(home.path().into()));
    agent.send(r#"{"cmd":"resume","sessionId":"demo-test"}"#);
    assert_eq!(types(&agent.turn()), ["done"]);
    assert!(reply_text(&mut agent).contains("my name is Ann"));
    agent.end();
    let mut agent = TestAgent::start_at(Some(home.path().into()));
    assert!(!reply_text(&mut agent).contains("Ann"));
    agent.end();
}
