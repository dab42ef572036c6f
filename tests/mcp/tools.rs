//! What each tool does.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::stage::{client, dev, error, shell};
use crate::session::stage::Sessions;
use crate::support::deadline::Deadline;
use crate::support::mcp_client::{CallResult, McpClient};

const SLEEP: &str = "echo $$ > pid; exec sleep 100000";

/// The pid of the command that wrote it, inside; waits until it is there.
fn pid_inside(client: &mut McpClient) -> String {
    let deadline = Deadline::usual();
    loop {
        let pid = client.call("read_file", json!({ "path": "pid" }));
        if !pid.is_error && pid.text.ends_with('\n') {
            return pid.text.trim().to_owned();
        }
        assert!(!deadline.remaining().is_zero(), "the command did not start: {pid:?}");
        deadline.pause();
    }
}

fn wait_gone(client: &mut McpClient, pid: &str) {
    let deadline = Deadline::usual();
    while shell(client, &format!("kill -0 {pid} 2>/dev/null && echo alive || :")) == "alive\n" {
        assert!(!deadline.remaining().is_zero(), "{pid} lives");
        deadline.pause();
    }
}

as_each_caller! {
    fn tools_are_listed_with_what_they_change(caller) {
        let sessions = Sessions::new(caller);
        let mut client = client(&sessions, &["dev"]);
        let tools = client.request("tools/list", &json!({}))["result"]["tools"].clone();
        let names: Vec<(&str, bool)> = tools
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| {
                assert_eq!(tool["inputSchema"]["additionalProperties"], false, "{tool}");
                let reads = tool["annotations"]["readOnlyHint"].as_bool().unwrap();
                assert_eq!(tool["annotations"]["destructiveHint"], !reads, "{tool}");
                (tool["name"].as_str().unwrap(), reads)
            })
            .collect();
        assert_eq!(names, [
            ("list_sessions", true),
            ("run_command", false),
            ("list_files", true),
            ("read_file", true),
            ("write_file", false),
            ("diff", true),
            ("apply", false),
            ("logs", true),
        ]);
        for (method, params, code) in [
            ("tools/call", json!({ "name": "nope", "arguments": {} }), -32602),
            ("tools/call", json!({ "name": 7 }), -32602),
            ("tools/call", json!({ "name": "diff", "arguments": "x" }), -32602),
            ("nope", json!({}), -32601),
        ] {
            let refused = client.request(method, &params);
            assert_eq!(refused["error"]["code"], code, "{refused}");
        }
        assert!(client.end().success());
    }

    fn commands_and_files_are_those_of_the_sandbox(caller) {
        let sessions = dev(caller);
        let mut client = client(&sessions, &["dev"]);
        let listed = client.call("list_sessions", json!({}));
        let row = &listed.structured["sessions"][0];
        assert_eq!((&row["session"], &row["state"], &row["served"]), (&json!("dev"), &json!("active"), &json!(true)));
        assert!(listed.text.starts_with("dev: active; folder /"), "{listed:?}");

        let result = client.call("run_command", json!({ "command": "cat a.txt; echo two >&2; exit 3" }));
        assert_eq!(result.text, "one\n[standard error]\ntwo\n[exit status 3]");
        assert!(!result.is_error);
        assert_eq!(result.structured["exitCode"], 3);
        assert_eq!(shell(&mut client, "grep Seccomp: /proc/self/status"), "Seccomp:\t2\n");

        let written = client.call("write_file", json!({ "path": "b.txt", "content": "ä\n" }));
        assert_eq!(written.text, "Written: b.txt");
        assert_eq!(shell(&mut client, "cat b.txt; mkdir -p d/e"), "ä\n");
        client.call("write_file", json!({ "path": "d/bin", "content": "/wA=", "encoding": "base64" }));
        assert_eq!(shell(&mut client, "od -An -tx1 d/bin"), " ff 00\n");
        assert!(error(&mut client, "read_file", json!({ "path": "d/bin" })).contains("UTF-8"));
        let bytes = client.call("read_file", json!({ "path": "d/bin", "encoding": "base64" }));
        assert_eq!(bytes.text, "/wA=");
        let part = client.call("read_file", json!({ "path": "a.txt", "offset": 1, "limit": 4 }));
        assert_eq!(part.text, "ne\n");

        let names = |result: &CallResult| -> Vec<String> {
            let entries = result.structured["entries"].as_array().unwrap();
            let mut names: Vec<String> =
                entries.iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&client.call("list_files", json!({}))), ["CLAUDE.md", "a.txt", "b.txt", "d"]);
        assert_eq!(names(&client.call("list_files", json!({ "path": "d" }))), ["bin", "e"]);

        let difference = client.call("diff", json!({}));
        assert_eq!(difference.text, "A b.txt\nA d/\nA d/bin\nA d/e/\n");
        let patch = client.call("diff", json!({ "patch": true, "paths": ["b.txt"] }));
        assert_eq!(patch.text, "A b.txt\n--- /dev/null\n+++ b/b.txt\n@@ -0,0 +1 @@\n+ä\n");

        shell(&mut client, "kill $(pgrep -f demo | head -1) 2>/dev/null; :");
        let logs = client.call("logs", json!({}));
        assert!(!logs.is_error && logs.structured["entries"].is_array(), "{logs:?}");
        assert!(client.end().success());
    }

    fn what_a_call_cannot_do_is_named(caller) {
        let sessions = dev(caller);
        let mut client = client(&sessions, &["dev"]);
        for (tool, arguments, words) in [
            ("run_command", json!({}), "the argument command is missing"),
            ("run_command", json!({ "command": "x", "timeout": "1s" }), "timeout is not a whole number"),
            ("run_command", json!({ "command": "x", "timeout": 0 }), "timeout"),
            ("run_command", json!({ "command": "a\u{0}b" }), "NUL"),
            ("read_file", json!({ "path": "/etc/passwd" }), "/etc/passwd"),
            ("read_file", json!({ "path": "../x" }), "../x"),
            ("read_file", json!({ "path": "none" }), "none"),
            ("write_file", json!({ "path": ".git/hooks/pre-commit", "content": "x" }), ".git/hooks"),
            ("write_file", json!({ "path": "big", "content": "x".repeat(1 << 20) }), "longer than"),
            ("list_files", json!({ "after": "x" }), "after"),
            ("diff", json!({ "paths": ["../x"] }), "../x"),
            ("diff", json!({ "paths": ["none"] }), "nothing has changed there"),
            ("diff", json!({ "paths": vec!["x".repeat(1000); 100] }), "fewer paths"),
            ("apply", json!({}), "is being served"),
            ("logs", json!({ "after": -1 }), "after is not a whole number"),
            ("list_sessions", json!({ "session": "dev" }), "unknown argument"),
        ] {
            let text = error(&mut client, tool, arguments.clone());
            assert!(text.contains(words), "{tool}: {text}");
        }
        sessions.ok(&["end", "dev"]);
        for tool in ["run_command", "write_file"] {
            let arguments = if tool == "run_command" {
                json!({ "command": "x" })
            } else {
                json!({ "path": "x", "content": "" })
            };
            assert!(error(&mut client, tool, arguments).contains("session dev has ended"));
        }
        // What is on the disk is still shown.
        assert_eq!(client.call("diff", json!({})).text, "Nothing has changed.");
    }

    fn a_long_output_is_shortened_and_says_so(caller) {
        let sessions = dev(caller);
        let mut client = client(&sessions, &["dev"]);
        let answer = client.request("tools/call", &json!({
            "name": "run_command",
            "arguments": { "command": "echo first; head -c 12000000 /dev/zero | tr '\\0' x; echo; echo last >&2" },
        }));
        let result = CallResult::of(&answer);
        assert!(result.text.starts_with("first\nxxx") && result.text.ends_with("last\n[exit status 0]"));
        assert!(result.text.contains("bytes left out]") && result.text.len() < 200_000, "{}", result.text.len());
        assert_eq!(result.structured["truncated"], true);
        let note = answer["result"]["content"][1]["text"].as_str().unwrap();
        assert!(note.starts_with("The output is not complete"), "{note}");

        shell(&mut client, "seq 100000 > long");
        let answer = client.request("tools/call", &json!({ "name": "diff", "arguments": { "patch": true } }));
        let result = CallResult::of(&answer);
        assert!(result.text.starts_with("A long\n") && result.text.len() <= 256 << 10, "{}", result.text.len());
        let note = answer["result"]["content"][1]["text"].as_str().unwrap();
        assert!(note.starts_with("This is not all of the difference"), "{note}");
        let part = client.request("tools/call", &json!({ "name": "read_file", "arguments": { "path": "long" } }));
        let note = part["result"]["content"][1]["text"].as_str().unwrap();
        assert_eq!(note, "The file has 588895 bytes; the next part begins at offset 524288.");
    }

    fn calls_run_at_once(caller) {
        let sessions = dev(caller);
        let mut client = client(&sessions, &["dev"]);
        // Each waits for the next one, and the last one for none.
        const CALLS: usize = 24;
        let command = |number: usize| match number {
            CALLS => format!("touch f{number}"),
            _ => format!("until [ -e f{} ]; do sleep 0.05; done; touch f{number}", number + 1),
        };
        let mut waiting: Vec<u64> = (1..=CALLS)
            .map(|number| client.start_call("run_command", &json!({ "command": command(number) })))
            .collect();
        while !waiting.is_empty() {
            let response = client.response();
            assert_eq!(CallResult::of(&response).structured["exitCode"], 0, "{response}");
            waiting.retain(|id| response["id"] != *id);
        }
    }

    fn a_cancelled_command_is_killed(caller) {
        let sessions = dev(caller);
        let mut client = client(&sessions, &["dev"]);
        let call = client.start_call("run_command", &json!({ "command": SLEEP }));
        let pid = pid_inside(&mut client);
        client.notify("notifications/cancelled", &json!({ "requestId": call }));
        wait_gone(&mut client, &pid);
    }

    /// However the client ends the server.
    fn a_command_ends_with_its_server(caller) {
        let sessions = dev(caller);
        let mut second = client(&sessions, &["dev"]);
        for signal in [None, Some(Signal::SIGTERM), Some(Signal::SIGKILL)] {
            let mut first = client(&sessions, &["dev"]);
            first.start_call("run_command", &json!({ "command": SLEEP }));
            let pid = pid_inside(&mut second);
            match signal {
                None => assert!(first.end().success()),
                Some(signal) => drop(first.end_by(signal)),
            }
            wait_gone(&mut second, &pid);
            shell(&mut second, "rm pid");
        }
    }

    fn more_calls_than_a_sandbox_serves_wait(caller) {
        let sessions = dev(caller);
        let mut client = client(&sessions, &["dev"]);
        let tools = [("read_file", json!({ "path": "a.txt" })), ("diff", json!({})), ("list_sessions", json!({})), ("run_command", json!({ "command": ":" }))];
        let mut waiting: Vec<u64> =
            tools.iter().cycle().take(160).map(|(tool, arguments)| client.start_call(tool, arguments)).collect();
        while !waiting.is_empty() {
            let response = client.response();
            assert!(!CallResult::of(&response).is_error, "{response}");
            waiting.retain(|id| response["id"] != *id);
        }
    }

    fn a_timeout_kills_the_command(caller) {
        let sessions = dev(caller);
        let mut client = client(&sessions, &["dev"]);
        let result = client.call("run_command", json!({ "command": SLEEP, "timeout": 300 }));
        assert_eq!(result.text, "[killed at its timeout]");
        assert_eq!((&result.structured["exitCode"], &result.structured["timedOut"]), (&json!(124), &json!(true)));
    }

    fn a_sandbox_that_ends_ends_its_calls(caller) {
        let sessions = dev(caller);
        let mut client = client(&sessions, &["dev"]);
        let call = client.start_call("run_command", &json!({ "command": SLEEP }));
        pid_inside_by_another(&sessions);
        sessions.ok(&["end", "dev"]);
        let response = client.response();
        assert_eq!(response["id"], call);
        assert!(CallResult::of(&response).is_error, "{response}");
        assert!(!client.call("list_sessions", json!({})).is_error);
    }
}

fn pid_inside_by_another(sessions: &Sessions) -> Value {
    let mut other = client(sessions, &["dev"]);
    pid_inside(&mut other).into()
}
