//! BP-26, BP-27, BP-34, and agents that half live: how a turn ends when the agent does not end it.

use nix::sys::signal::Signal;
use serde_json::json;

use super::served::Stage;

const INIT: &str = r#"{"type":"system","subtype":"init","session_id":"c"}"#;
const RESULT: &str = r#"{"type":"result","subtype":"success"}"#;

/// Keeps its conversation in a file, and says it again.
const ON_A_SOCKET: &str = r#"#!/usr/bin/python3
import json, os, socket
name = os.environ["ASH_BRIDGE_SOCKET"]
if os.path.exists(name): os.unlink(name)
server = socket.socket(socket.AF_UNIX)
server.bind(name)
server.listen(1)
peer, _ = server.accept()
peer.sendall(b'{"ev":"ready"}\n')
conversation = []
for line in peer.makefile("rb"):
    command = json.loads(line)
    if command["cmd"] == "resume":
        conversation = json.load(open("conversation"))
    elif command["cmd"] == "query":
        data = {"type": "result", "result": " ".join(conversation)}
        conversation.append(command["prompt"])
        json.dump(conversation, open("conversation", "w"))
        peer.sendall(json.dumps({"ev": "message", "data": data}).encode() + b"\n")
    peer.sendall(json.dumps({"ev": "done", "sessionId": command["sessionId"]}).encode() + b"\n")
"#;

as_each_caller! {
    /// BP-27, BP-26, DECISIONS 16: killed in a turn that would last for half an hour, one error with the signal; the next
    /// turn is whole.
    fn bp_27_a_killed_agent_ends_its_turn_at_once(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let mut client = served.connect();
        assert!(client.turn("hi").is_done());
        for _ in 0..5 {
            client.query("count: 100000");
            client.event();
            served.inside("__demo-agent").signal(Signal::SIGKILL);
            let end = client.outcome().end;
            assert_eq!(end, json!({"ev": "error", "error": "the agent was killed by signal 9 (SIGKILL)"}));
            let outcome = client.turn("recall");
            assert!(outcome.is_done());
            assert_eq!(outcome.of_type("result").count(), 1);
            let said = outcome.of_type("result").next().unwrap()["result"].as_str().unwrap();
            assert!(said.contains("count: 100000"), "it has its conversation: {said}");
        }
        served.shut_down(&mut client);
    }

    /// BP-27: its own exit code is told.
    fn bp_27_agent_crash_is_reported_with_its_exit_code(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let mut client = served.connect();
        let outcome = client.turn("crash");
        assert_eq!(outcome.end, json!({"ev": "error", "error": "the agent exited with code 3"}));
        assert!(client.turn("hi").is_done());
        served.shut_down(&mut client);
    }

    /// DECISIONS 16: a query that finds an idle agent leaving is answered by the next one, with the conversation.
    fn a_query_that_a_leaving_agent_has_not_read_is_answered_by_the_next(caller) {
        let (demo, listens) = (Stage::new(caller), Stage::new(caller));
        let served = [(demo.demo(), "__demo-agent"), (listens.scripted("bridge", ON_A_SOCKET), "python3")];
        for (served, name) in served {
            let mut client = served.connect();
            assert!(client.turn("one").is_done());
            let mut other = served.connect();
            for round in 0..5 {
                // Stopped, it reads nothing; when `exec` has answered, the query was written to it.
                let agent = served.inside(name);
                agent.stop();
                client.query("recall");
                other.send(&json!({"cmd": "exec", "command": "true"}));
                other.events_until(|event| event["ev"] == "done");
                agent.signal(Signal::SIGKILL);
                let outcome = client.outcome();
                assert!(outcome.is_done(), "{name}, {round}: {outcome:?}");
                let said = outcome.of_type("result").map(|result| result["result"].to_string()).collect::<String>();
                assert!(said.contains("one"), "{name}, {round}: it has its conversation: {said}");
            }
            served.shut_down(&mut client);
        }
    }

    /// DECISIONS 16: an agent that dies in its very first turn goes on with what it has of it.
    fn bp_27_an_agent_that_died_in_its_first_turn_keeps_its_conversation(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let mut client = served.connect();
        client.query("count: 100000");
        client.event();
        served.inside("__demo-agent").signal(Signal::SIGKILL);
        assert_eq!(client.outcome().end["ev"], "error");
        let outcome = client.turn("recall");
        let said = outcome.of_type("result").next().unwrap()["result"].as_str().unwrap().to_owned();
        assert!(said.contains("count: 100000"), "{said}");
        served.shut_down(&mut client);
    }

    /// The end of what an agent said before it died is not lost, nor held up by a child that keeps its stdout.
    fn output_of_an_agent_before_its_death_is_delivered(caller) {
        let stage = Stage::new(caller);
        let agent = format!(
            "#!/bin/sh\nread -r line\necho '{INIT}'\nsleep 1000 &\nsetsid sleep 1000 &\n\
             for n in 1 2 3 4 5 6 7 8 9; do echo \"{{\\\"type\\\":\\\"assistant\\\",\\\"n\\\":$n}}\"; done\n\
             echo '{RESULT}'\nexit 4\n"
        );
        let served = stage.scripted("stream-json", &agent);
        let mut client = served.connect();
        let outcome = client.turn("go");
        assert!(outcome.is_done(), "{outcome:?}");
        assert_eq!(outcome.of_type("assistant").count(), 9);
        served.shut_down(&mut client);
    }

    /// A child of the agent's that writes for ever does not hide that the agent died: the turn ends though it goes on.
    fn a_writing_child_does_not_hide_the_death(caller) {
        let stage = Stage::new(caller);
        let agent = "#!/bin/sh\nread -r line\nsetsid yes '{\"type\":\"x\"}' &\nsleep 0.2\nexit 5\n";
        let served = stage.scripted("stream-json", agent);
        let mut client = served.connect();
        let outcome = client.turn("go");
        assert_eq!(outcome.end, json!({"ev": "error", "error": "the agent exited with code 5"}));
        served.shut_down(&mut client);
    }

    /// An agent that closes its streams and lives: an interrupt ends its turn, a shutdown all.
    fn an_agent_without_streams_can_be_ended(caller) {
        let stage = Stage::new(caller);
        let agent = "#!/bin/sh\nread -r line\nexec <&- >&- 2>&-\nexec sleep 1000\n";
        let served = stage.scripted("stream-json", agent);
        let mut client = served.connect();
        client.query("go");
        let before = served.ticks();
        let mut other = served.connect();
        other.send(&json!({"cmd": "exec", "command": "sleep 0.5; echo alive"}));
        assert_eq!(other.event()["stdout"], "alive\n");
        assert_eq!(other.event()["ev"], "done");
        assert!(served.ticks() - before < 10, "the loop does not spin");
        served.shut_down(&mut other);
    }

    /// An agent that writes without reading, and one that neither reads nor writes, while prompts pile up.
    fn agent_that_does_not_read_blocks_no_client(caller) {
        let stage = Stage::new(caller);
        let served = stage.scripted("stream-json", "#!/bin/sh\nexec sleep 1000\n");
        let mut client = served.connect();
        client.query(&"x".repeat(1 << 20));
        let mut other = served.connect();
        let before = served.ticks();
        other.send(&json!({"cmd": "exec", "command": "sleep 0.5; echo alive"}));
        assert_eq!(other.event()["stdout"], "alive\n");
        assert_eq!(other.event()["ev"], "done");
        assert!(served.ticks() - before < 10, "the loop does not spin");
        served.shut_down(&mut other);
    }

    /// BP-34: no path of the host in what a server hears of a failed start.
    fn bp_34_errors_name_no_host_path(caller) {
        let stage = Stage::new(caller);
        let served = stage.scripted("stream-json", "#!/bin/sh\nread -r line\nmv agent gone\nexit 1\n");
        let mut client = served.connect();
        assert_eq!(client.turn("one").end["ev"], "error");
        let end = client.turn("two").end;
        assert_eq!(end["ev"], "error", "{end}");
        let text = end["error"].as_str().unwrap();
        assert!(!text.contains("/var/tmp") && !text.contains(stage.place.path().to_str().unwrap()), "{text}");
        assert_eq!(client.turn("three").end["ev"], "error", "the bridge lives");
        served.shut_down(&mut client);
    }
}
