//! A run from its task to its approval, and what is shown of it.

use std::fs;

use serde_json::{Value, json};

use super::place::{Pairs, expected, fields};
use crate::support::deadline::Deadline;
use crate::support::lines::Lines;

/// An agent that speaks stream-json and has no model: each turn it tries to write to the work tree, and sends what its
/// role calls for, by the server that is in its configuration.
const AGENT: &str = r#"#!/usr/bin/python3
import json, os, subprocess, sys
config = json.loads(next(a for a in sys.argv if a.startswith('{"mcpServers"')))
server = config['mcpServers']['mailbox']
child = subprocess.Popen([server['command'], *server['args']], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def ask(number, method, params):
    child.stdin.write(json.dumps({'jsonrpc': '2.0', 'id': number, 'method': method, 'params': params}) + '\n')
    child.stdin.flush()
    return json.loads(child.stdout.readline())
ask(1, 'initialize', {'protocolVersion': '2025-11-25', 'capabilities': {}, 'clientInfo': {'name': 't', 'version': '1'}})
def send(**message):
    return ask(2, 'tools/call', {'name': 'send_to_agent', 'arguments': message})
for line in sys.stdin:
    prompt = json.loads(line)
    if prompt.get('type') != 'user':
        continue
    text = json.dumps(prompt)
    try:
        open('by-the-agent', 'a').write('x')
        wrote = 'wrote'
    except OSError as error:
        wrote = error.strerror
    if 'the worker' in text:
        send(to='reviewer', message_type='result', content=wrote)
        send(to='', message_type='signal', signal='DONE', content='')
    else:
        send(to='', message_type='signal', signal='PASS', content=wrote)
    print(json.dumps({'type': 'result', 'subtype': 'success', 'is_error': False, 'result': 'sent', 'session_id': 's'}), flush=True)
"#;

as_each_caller! {
    fn am_21_two_sandboxed_agents_have_the_example_conversation(caller) {
        let pairs = Pairs::new(caller);
        let ended = pairs.stage.run(pairs.run_command(&[]));
        assert_eq!(ended.code, 0, "{ended:?}");
        let lines: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0], json!({ "event": "begun", "run": 1, "worker": "codex", "reviewer": "claude", "maxIterations": 5 }));
        assert_eq!(lines[1..7].iter().map(fields).collect::<Vec<_>>(), expected());
        assert_eq!(lines[7], json!({ "event": "ended", "run": 1, "result": "approved", "iterations": 2 }));
        assert_eq!((lines.len(), pairs.messages(1)), (8, expected()));
        // Nothing is left but the run.
        assert_eq!(pairs.sessions(), [""; 0]);
        // The next run has the next number; each has its messages.
        let again = pairs.stage.run(pairs.run_command(&[]));
        assert_eq!(again.code, 0, "{again:?}");
        assert_eq!(pairs.messages(2), expected());
    }

    fn what_is_shown_is_what_happened(caller) {
        let pairs = Pairs::new(caller);
        pairs.stage.run(pairs.run_command(&[]));
        let status: Value = serde_json::from_str(&pairs.ok(&["status", "--json", "1"])).unwrap();
        assert_eq!(
            (&status["state"], &status["iteration"], &status["pass"], &status["done"], &status["messages"]),
            (&json!("approved"), &json!(2), &json!(1), &json!(true), &json!(6)),
            "{status}"
        );
        let text = pairs.ok(&["status", "1"]);
        assert!(text.contains("worker      codex\n") && text.contains("signals     DONE yes, PASS 1, FAIL 0\n"), "{text}");
        let logged: Vec<_> = pairs.ok(&["log", "1"]).lines().map(|line| fields(&serde_json::from_str(line).unwrap())).collect();
        assert_eq!(logged, expected());
        let watched = pairs.ok(&["watch", "1"]);
        assert_eq!(watched.lines().count(), 7, "{watched}");
        let listed: Value = serde_json::from_str(&pairs.ok(&["list", "--json"])).unwrap();
        assert_eq!((&listed["run"], &listed["state"]), (&json!(1), &json!("approved")), "{listed}");
        let exported = pairs.ok(&["export", "1"]);
        for (section, content) in [
            ("## claude to codex: task", "Add email validation to LoginForm"),
            ("## claude to all: signal PASS", "Looks good"),
        ] {
            let (_, after) = exported.split_once(section).unwrap_or_else(|| panic!("no {section}: {exported}"));
            assert!(after.contains(&format!("```\n{content}\n```\n")), "{exported}");
        }
    }

    /// By default the agents are those of folders in the work tree, and nothing needs to be installed.
    fn the_example_runs(caller) {
        let pairs = Pairs::new(caller);
        let example = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/pair");
        for agent in ["worker", "reviewer"] {
            pairs.stage.place.make_dir(&format!("work/{agent}"), 0o755);
            for file in ["CLAUDE.md", "saggar.toml"] {
                let text = fs::read_to_string(example.join(agent).join(file)).unwrap();
                pairs.stage.place.make_file(&format!("work/{agent}/{file}"), &text);
            }
        }
        let said = pairs.ok(&["run", "--task", "Add email validation to LoginForm"]);
        let last: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        assert_eq!((&last["result"], &last["iterations"]), (&json!("approved"), &json!(2)), "{said}");
        let both = pairs.ok(&["run", "--task", "Both", "--both-review"]);
        assert!(both.lines().last().unwrap().contains("approved"), "{both}");
    }

    /// Of any adapter. The reviewer cannot write to the work tree, unless it may.
    fn agents_of_an_adapter_have_the_tools_and_the_work_tree(caller) {
        let pairs = Pairs::new(caller);
        let script = pairs.stage.script("agent", AGENT);
        let policy = format!("adapter = 'stream-json'\nagent_cmd = ['{script}']\n");
        for (agent, more, reviewed) in [
            ("read", &[][..], "Read-only file system"),
            ("write", &["--reviewer-writes"], "wrote"),
        ] {
            let worker = pairs.add_agent(&format!("worker-{agent}"), &policy);
            let reviewer = pairs.stage.place.make_dir(agent, 0o755).join("reviewer");
            fs::rename(pairs.add_agent(&format!("reviewer-{agent}"), &policy), &reviewer).unwrap();
            let words = ["run", "--task", agent, "--worker", worker.to_str().unwrap(), "--reviewer", reviewer.to_str().unwrap()];
            let ended = pairs.run(&[&words, more].concat());
            assert_eq!(ended.code, 0, "{ended:?}");
            let messages: Vec<[String; 5]> = ended.stdout.lines().map(|line| fields(&serde_json::from_str(line).unwrap())).collect();
            assert!(messages.iter().any(|message| message[2] == "result" && message[3] == "wrote"), "{messages:?}");
            assert!(messages.iter().any(|message| message[4] == "PASS" && message[3] == reviewed), "{messages:?}");
        }
        assert_eq!(fs::read_to_string(pairs.stage.work().join("by-the-agent")).unwrap(), "xxx");
    }

    /// Neither agent writes what the other is told by its folder.
    fn folders_of_agents_in_the_work_tree_are_read_only(caller) {
        let pairs = Pairs::new(caller);
        let script = pairs.stage.script("agent", &AGENT.replace("by-the-agent", "reviewer/CLAUDE.md"));
        for agent in ["worker", "reviewer"] {
            pairs.stage.place.make_dir(&format!("work/{agent}"), 0o755);
            pairs.stage.place.make_file(&format!("work/{agent}/CLAUDE.md"), "An agent of a test.\n");
            let policy = format!("adapter = 'stream-json'\nagent_cmd = ['{script}']\n");
            pairs.stage.place.make_file(&format!("work/{agent}/saggar.toml"), &policy);
        }
        let said = pairs.ok(&["run", "--task", "x", "--reviewer-writes"]);
        assert_eq!(said.matches("Read-only file system").count(), 2, "{said}");
        assert_eq!(fs::read_to_string(pairs.stage.work().join("reviewer/CLAUDE.md")).unwrap(), "An agent of a test.\n");
    }

    /// An error of the agent, such as one of its model, is the end of the run and not a turn.
    fn an_error_of_an_agent_is_told(caller) {
        let pairs = Pairs::new(caller);
        let fails = "#!/bin/sh\nread -r line\necho '{\"type\":\"result\",\"is_error\":true,\"result\":\"API Error: 401\"}'\nread -r line\n";
        let script = pairs.stage.script("fails", fails);
        fs::write(pairs.stage.place.join("codex/saggar.toml"), format!("adapter = 'stream-json'\nagent_cmd = ['{script}']\n")).unwrap();
        let ended = pairs.stage.run(pairs.run_command(&[]));
        assert!(ended.code == 125 && ended.stdout.contains("\"reason\":\"API Error: 401\""), "{ended:?}");
    }

    /// Runs with one number, of two roots, have sessions of their own; a run goes on with more iterations, also where a
    /// session was ended.
    fn a_run_goes_on_with_more_iterations(caller) {
        let pairs = Pairs::new(caller);
        let ended = pairs.stage.run(pairs.run_command(&["--max-iterations", "1"]));
        assert!(ended.code == 1 && ended.stdout.contains("\"result\":\"not-approved\""), "{ended:?}");
        let kept = pairs.sessions();
        assert_eq!(kept.len(), 2, "{kept:?}");
        let other = pairs.stage.place.join("other");
        let ended = pairs.stage.run(pairs.run_command(&["--root", other.to_str().unwrap()]));
        assert_eq!((ended.code, pairs.sessions().len()), (0, 2), "{ended:?}");
        assert_eq!(pairs.run(&["resume", "1"]).code, 1, "all iterations are used up");
        let worker = kept.iter().find(|session| session.ends_with("-worker")).unwrap();
        let mut end = pairs.stage.place.saggar();
        end.args(["session", "end", worker]);
        assert_eq!(pairs.stage.run(end).code, 0);
        let ended = pairs.run(&["resume", "1", "--max-iterations", "5"]);
        assert_eq!(ended.code, 0, "{ended:?}");
        assert_eq!((pairs.messages(1), pairs.sessions().len()), (expected(), 0));
    }

    /// While a run waits for an agent, a person sends, and others watch; an interrupted run goes on later.
    fn a_person_takes_part(caller) {
        let pairs = Pairs::new(caller);
        // The reviewer waits until there is a message of the person for it.
        let waits = "#!/bin/sh\nread -r line\nuntil [ -e go-on ]; do sleep 0.05; done\n";
        let script = pairs.stage.script("waits", waits);
        fs::write(pairs.stage.place.join("claude/saggar.toml"), format!("adapter = 'stream-json'\nagent_cmd = ['{script}']\n")).unwrap();
        let mut runner = pairs.start(pairs.run_command(&[]));
        let mut lines = Lines::new(runner.take_stdout());
        lines.until(Deadline::usual(), |line| line["type"] == "result");
        let mut watch = pairs.start(pairs.command(&["watch", "1"]));
        let mut watched = Lines::new(watch.take_stdout());
        watched.until(Deadline::usual(), |line| line["type"] == "result");
        let sent = pairs.ok(&["send", "1", "--to", "codex", "Use the new parser"]);
        assert!(sent.starts_with("Message sent: id="), "{sent}");
        for seen in [&mut lines, &mut watched] {
            let message = seen.next_json(Deadline::usual());
            assert_eq!(fields(&message), ["person", "codex", "chat", "Use the new parser", ""].map(str::to_owned));
        }
        assert_eq!(pairs.run(&["resume", "1"]).code, 125, "another process runs it");
        runner.signal(nix::sys::signal::Signal::SIGINT);
        fs::write(pairs.stage.work().join("go-on"), "").unwrap();
        assert_eq!(runner.wait().code(), Some(130), "{}", runner.stderr());
        let ended = watched.until(Deadline::usual(), |line| line["event"] == "ended");
        assert_eq!(ended.last().unwrap()["result"], "interrupted");
        assert!(watch.wait().success());
        let status: Value = serde_json::from_str(&pairs.ok(&["status", "--json", "1"])).unwrap();
        assert_eq!((&status["state"], &status["active"]), (&json!("interrupted"), &json!("claude")), "{status}");
    }
}
