//! The scenarios against the bare agent: what fails here is the mock's fault or the agent's, not saggar's.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::bare_agent::BareAgent;
use crate::mock_api::MockApi;
use crate::support::caller::Caller;
use crate::support::place::Place;
use crate::support::process::killed_by;

/// A place, the mock in it, and the program.
struct Stage {
    api: MockApi,
    program: PathBuf,
    place: Place,
}

impl Stage {
    fn new(caller: Caller, program: &Path) -> Self {
        let place = Place::new(caller);
        Stage { api: MockApi::on_unix(&place.join("api.sock")), program: program.to_owned(), place }
    }

    fn agent(&self, options: &[&str]) -> BareAgent {
        BareAgent::start(&self.place, &self.program, &self.place.join("api.sock"), options)
    }
}

/// What a turn said last.
fn answer(lines: &[Value]) -> &str {
    let result = lines.last().expect("a turn has a result");
    assert_eq!((&result["subtype"], &result["is_error"]), (&json!("success"), &json!(false)), "{result}");
    result["result"].as_str().expect("a result is text")
}

fn session_id(lines: &[Value]) -> &str {
    lines.last().and_then(|result| result["session_id"].as_str()).expect("a result names its session")
}

/// The answer to the agent's question, taken from the line that asks.
fn permission(asked: &Value, response: &Value) -> Value {
    json!({
        "type": "control_response",
        "response": {"subtype": "success", "request_id": asked["request_id"], "response": response},
    })
}

as_each_caller! {
    fn a_turn(caller) {
        let stage = Stage::new(caller, &claude!());
        let mut agent = stage.agent(&[]);
        assert_eq!(answer(&agent.turn("mock:say hello from the model")), "hello from the model");
        assert!(agent.finish().success());
        assert_eq!(stage.api.turns().len(), 1, "a turn is one request");
        assert_eq!(stage.api.other_requests(), [""; 0], "and there is no other");
    }

    fn two_turns_in_one_process(caller) {
        let stage = Stage::new(caller, &claude!());
        let mut agent = stage.agent(&[]);
        let first = agent.turn("mock:say one");
        let second = agent.turn("mock:say two");
        assert_eq!((answer(&first), answer(&second)), ("one", "two"));
        assert_eq!(session_id(&first), session_id(&second));
        assert!(stage.api.last_turn().conversation_has("mock:say one"), "the second turn knows the first");
        assert!(agent.finish().success());
    }

    fn partial_messages(caller) {
        let stage = Stage::new(caller, &claude!());
        let mut agent = stage.agent(&["--include-partial-messages"]);
        let lines = agent.turn("mock:say in three parts");
        let parts: String = lines
            .iter()
            .filter(|line| line["type"] == "stream_event")
            .filter_map(|line| line["event"]["delta"]["text"].as_str())
            .collect();
        assert_eq!(parts, "in three parts");
        assert!(agent.finish().success());
    }

    fn a_tool_call_asks_and_is_allowed(caller) {
        let stage = Stage::new(caller, &claude!());
        let file = stage.place.work().join("made.txt");
        let mut agent = stage.agent(&["--permission-prompt-tool", "stdio"]);
        agent.prompt(&format!("mock:write {} made by the agent", file.display()));
        let asked = agent.until(|line| line["type"] == "control_request").pop().unwrap();
        assert_eq!(asked["request"]["subtype"], "can_use_tool");
        assert_eq!(asked["request"]["tool_name"], "Write");
        assert!(!file.exists(), "nothing is written before the answer");
        let input = &asked["request"]["input"];
        agent.send(&permission(&asked, &json!({"behavior": "allow", "updatedInput": input})));
        agent.result();
        assert_eq!(fs::read_to_string(&file).unwrap(), "made by the agent");
        assert!(agent.finish().success());
    }

    fn a_tool_call_asks_and_is_denied(caller) {
        let stage = Stage::new(caller, &claude!());
        let file = stage.place.work().join("made.txt");
        let mut agent = stage.agent(&["--permission-prompt-tool", "stdio"]);
        agent.prompt(&format!("mock:write {} made by the agent", file.display()));
        let asked = agent.until(|line| line["type"] == "control_request").pop().unwrap();
        agent.send(&permission(&asked, &json!({"behavior": "deny", "message": "not today"})));
        assert!(answer(&agent.result()).contains("not today"), "the model is told why");
        assert!(!file.exists());
        assert!(agent.finish().success());
    }

    fn a_shell_command_runs_in_the_work_folder(caller) {
        let stage = Stage::new(caller, &claude!());
        let mut agent = stage.agent(&["--allowedTools", "Bash"]);
        let lines = agent.turn("mock:run pwd > where.txt && echo it ran");
        assert!(answer(&lines).contains("it ran"));
        let written = fs::read_to_string(stage.place.work().join("where.txt")).unwrap();
        assert_eq!(Path::new(written.trim()), stage.place.work());
        assert!(agent.finish().success());
    }

    fn an_interrupt_mid_stream(caller) {
        let stage = Stage::new(caller, &claude!());
        let mut agent = stage.agent(&["--include-partial-messages"]);
        agent.prompt("mock:stream");
        agent.until(|line| line["event"]["type"] == "content_block_delta");
        agent.control("stop-it", &json!({"subtype": "interrupt"}));
        let lines = agent.result();
        let answered = |line: &Value| line["response"]["request_id"] == "stop-it";
        assert_eq!(lines.iter().filter(|line| answered(line)).count(), 1);
        let result = lines.last().unwrap();
        assert_eq!(result["subtype"], "error_during_execution");
        assert_eq!(result["terminal_reason"], "aborted_streaming");
        stage.api.wait_for_abandoned_streams(1);
        assert_eq!(answer(&agent.turn("mock:say still here")), "still here");
        assert!(agent.finish().success());
    }

    fn resume_after_a_kill_mid_stream(caller) {
        let stage = Stage::new(caller, &claude!());
        let mut agent = stage.agent(&["--include-partial-messages"]);
        let session = session_id(&agent.turn("remember the word kiln. mock:say noted")).to_owned();
        agent.prompt("mock:stream");
        agent.until(|line| line["event"]["type"] == "content_block_delta");
        agent.process().signal(Signal::SIGKILL);
        assert!(killed_by(agent.wait(), Signal::SIGKILL));
        let mut again = stage.agent(&["--resume", &session]);
        let lines = again.turn("mock:say resumed");
        assert_eq!((answer(&lines), session_id(&lines)), ("resumed", session.as_str()));
        assert!(stage.api.last_turn().conversation_has("the word kiln"), "the earlier prompt is in the request");
        assert!(again.finish().success());
    }
}
