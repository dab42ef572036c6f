//! BP-12, BP-14 to BP-20, BP-25, BP-28: what servers say, well and badly, alone and together.

use serde_json::{Value, json};

use super::served::Stage;
use crate::support::bridge_client::{BridgeClient, SESSION};

fn refuses(client: &mut BridgeClient, line: &[u8]) {
    client.send_bytes(line);
    let event = client.event();
    assert_eq!(event["ev"], "error", "{} → {event}", String::from_utf8_lossy(&line[..line.len().min(200)]));
    assert!(!event["error"].as_str().unwrap().contains("/var/tmp"), "BP-34: {event}");
}

/// Clock ticks of 10 ms that say nothing about a cost.
const COST_FLOOR: u64 = 30;

/// What the demo agent says of a prompt.
fn echo(client: &mut BridgeClient, json: &str) -> Vec<u8> {
    client.query(&format!("echo-json: {json}"));
    loop {
        let line = client.raw_event();
        if !line.windows(13).any(|part| part == b"\"type\":\"syste") {
            while client.event()["ev"] != "done" {}
            return line;
        }
    }
}

as_each_caller! {
    /// BP-14, BP-15, BP-16: each bad line is one `error`, and the connection goes on.
    fn bp_15_each_bad_line_is_one_error(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let mut client = served.connect();
        let deep = format!("{}1{}\n", "[".repeat(100_000), "]".repeat(100_000));
        let deep_prompt = format!(
            "{{\"cmd\":\"query\",\"sessionId\":\"s\",\"prompt\":{}1{}}}\n", "[".repeat(2000), "]".repeat(2000)
        );
        let lines: [&[u8]; 20] = [
            b"{\"cmd\":\"fly\"}\n",
            b"hello\n",
            b"[]\n",
            b"7\n",
            b"\"cmd\"\n",
            b"null\n",
            b"{}\n",
            b"{\"cmd\":\"query\"}\n",
            b"{\"cmd\":\"query\",\"prompt\":\"x\"}\n",
            b"{\"cmd\":\"query\",\"prompt\":\"x\",\"sessionId\":7}\n",
            b"{\"cmd\":7}\n",
            b"{\"cmd\":\"interrupt\",\"ev\":\"ready\"}\n",
            b"{\"cmd\":\"resume\"}\n",
            b"{\"cmd\":\"exec\"}\n",
            b"{\"cmd\":\"interrupt\",\"__proto__\":{}}\n",
            b"{\"cmd\":\"interrupt\",\"constructor\":1}\n",
            b"{\"cmd\":\"interrupt\",\"prototype\":1}\n",
            b"{\"cmd\":\"inter\xffrupt\"}\n",
            b"{\"cmd\":\"interrupt\"\0}\n",
            deep.as_bytes(),
        ];
        for line in lines {
            refuses(&mut client, line);
        }
        refuses(&mut client, deep_prompt.as_bytes());
        // BP-17: blank lines and carriage returns are nothing.
        client.send_bytes(b"\n  \n\r\n\t\n");
        client.send_bytes(b"{\"cmd\":\"query\",\"prompt\":\"hi\",\"sessionId\":\"test-session\"}\r\n");
        assert!(client.outcome().is_done());
        served.shut_down(&mut client);
    }

    /// BP-15: a hundred thousand of them, from a server that does not read meanwhile, and then a turn.
    fn bp_15_a_storm_of_bad_lines_is_answered_and_survived(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let mut other = served.connect();
        let mut client = served.connect();
        for _ in 0..100 {
            client.send_bytes(&b"{\"cmd\":\"fly\"}\n".repeat(100));
            for _ in 0..100 {
                assert_eq!(client.event()["ev"], "error");
            }
        }
        assert!(other.turn("hi").is_done());
        assert!(client.turn("hi").is_done());
        served.shut_down(&mut client);
    }

    /// BP-18: a character may be cut at any byte.
    fn bp_18_characters_split_at_any_byte_are_decoded(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let mut client = served.connect();
        let line = format!("{}\n", json!({"cmd": "query", "prompt": "€𝄞", "sessionId": SESSION}));
        for at in 1..line.len() {
            client.send_bytes(&line.as_bytes()[..at]);
            client.send_bytes(&line.as_bytes()[at..]);
            let outcome = client.outcome();
            let result = outcome.of_type("result").next().unwrap();
            assert_eq!(result["result"], "You said: €𝄞", "cut at {at}");
        }
        served.shut_down(&mut client);
    }

    /// BP-11: what the agent says leaves as the bytes that it said.
    fn bp_11_odd_numbers_pass_the_demo_agent_as_they_are(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let mut client = served.connect();
        let odd = r#"{"z":2.50,"a":1e400,"a":12345678901234567890,"b":"\u0000\ud834\udd1e"}"#;
        let expected = format!("{{\"ev\":\"message\",\"data\":{odd}}}");
        assert_eq!(String::from_utf8(echo(&mut client, odd)).unwrap(), expected);
        served.shut_down(&mut client);
    }

    /// BP-19: 49 MiB are a line, at a cost that is linear in its length; 65 MiB cost their connection and nothing else;
    /// the memory is given back.
    fn bp_19_line_above_the_size_limit_closes_its_connection(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let mut other = served.connect();
        let mut client = served.connect();
        let before = served.rss();
        let mut cost = |size: usize| {
            let begun = served.process.ticks();
            client.query(&format!("echo-json: \"{}\"", "x".repeat(size)));
            let mut longest = 0;
            loop {
                let line = client.raw_event();
                longest = longest.max(line.len());
                if line.starts_with(b"{\"ev\":\"done\"") {
                    break;
                }
            }
            assert_eq!(longest, size + r#"{"ev":"message","data":""}"#.len());
            served.process.ticks() - begun
        };
        let (small, large) = (cost(7 << 20), cost(49 << 20));
        // Seven times the length: a quadratic cost would be 49 times as much.
        assert!(large <= 28 * small + COST_FLOOR, "{small} and {large} ticks");
        // 256 MiB of buffers are the bound of DECISIONS 20.
        assert!(served.peak() < before + (300 << 10), "{} KiB at the most", served.peak());
        let mut huge = served.connect();
        let chunk = vec![b'y'; 1 << 20];
        // The rest is discarded, and no reset is in the place of the error.
        for _ in 0..70 {
            huge.try_send_bytes(&chunk).expect("it is read");
        }
        let event = huge.event();
        assert_eq!(event["ev"], "error", "{event}");
        huge.expect_close();
        assert!(other.turn("hi").is_done());
        assert!(served.rss() < before + (120 << 10), "{} KiB are left of {before}", served.rss());
        served.shut_down(&mut other);
    }

    /// BP-28, BP-25, DECISIONS 16: events go to who asked; turns queue; an `exec` of another does not wait.
    fn bp_28_events_go_only_to_the_requesting_server(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let (mut one, mut two) = (served.connect(), served.connect());
        one.query("count: 50");
        one.event();
        two.query("echo-json: \"of two\"");
        let mut third = served.connect();
        third.send(&json!({"cmd": "exec", "command": "echo quick"}));
        assert_eq!(third.event()["stdout"], "quick\n");
        assert_eq!(third.event(), json!({"ev": "done", "sessionId": ""}));
        let first = one.outcome();
        assert_eq!(first.of_type("result").next().unwrap()["result"], "counted to 50");
        let second = two.outcome();
        assert!(second.messages.contains(&Value::from("of two")), "{second:?}");
        assert!(first.is_done() && second.is_done());
        served.shut_down(&mut one);
    }

    /// BP-25: without ids, an `exec` waits behind the turn of its own connection; with ids it is told apart.
    fn bp_25_an_exec_never_ends_a_turn(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let mut client = served.connect();
        client.query("count: 20");
        client.send(&json!({"cmd": "exec", "command": "echo after"}));
        let events = client.events_until(|event| event["sessionId"] == "");
        let kinds: Vec<&str> = events.iter().map(|event| event["ev"].as_str().unwrap()).collect();
        assert_eq!(kinds[kinds.len() - 3..], ["done", "exec_result", "done"], "{kinds:?}");
        assert!(kinds[..kinds.len() - 3].iter().all(|kind| *kind == "message"), "BP-12: {kinds:?}");
        client.send(&json!({"cmd": "query", "id": "q", "prompt": "count: 100000", "sessionId": SESSION}));
        client.send(&json!({"cmd": "exec", "id": "e", "command": "echo beside"}));
        let events = client.events_until(|event| event["ev"] == "done");
        assert_eq!(events.last().unwrap()["id"], "e", "{events:?}");
        client.send(&json!({"cmd": "interrupt"}));
        let last = client.events_until(|event| event["ev"] == "done").pop().unwrap();
        assert_eq!(last["id"], "q");
        served.shut_down(&mut client);
    }
}
