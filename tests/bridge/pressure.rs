//! BP-29, BP-30: readers that stall, servers that come and go; and a supervisor that rests when there is nothing
//! to do.

use std::thread;
use std::time::Duration;

use serde_json::json;

use super::served::{Served, Stage};
use crate::support::bridge_client::{BridgeClient, SESSION};
use crate::support::deadline::Deadline;

/// Says a gigabyte in each turn, in lines of 64 KiB.
const FLOOD: &str = r#"#!/usr/bin/python3
import sys
line = b'{"type":"assistant","text":"' + b'x' * 65536 + b'"}\n'
for _ in sys.stdin:
    for _ in range(16384):
        sys.stdout.buffer.write(line)
    sys.stdout.buffer.write(b'{"type":"result","subtype":"success"}\n')
    sys.stdout.buffer.flush()
"#;

/// CPU time of the supervisor in a while in which nothing happens.
fn ticks_at_rest(served: &Served) -> u64 {
    let before = served.ticks();
    // A span is measured; nothing is waited for.
    thread::sleep(Duration::from_millis(500));
    served.ticks() - before
}

as_each_caller! {
    /// BP-29: a reader that stops holds back its own turn and nothing else; memory stays bounded; the loop sleeps.
    fn bp_29_a_stalled_reader_costs_little(caller) {
        let stage = Stage::new(caller);
        let served = stage.scripted("stream-json", FLOOD);
        let before = served.rss();
        let mut stalled = served.connect();
        stalled.query("a gigabyte");
        stalled.event();
        let mut other = served.connect();
        other.send(&json!({"cmd": "exec", "command": "echo served"}));
        assert_eq!(other.event()["stdout"], "served\n");
        assert_eq!(other.event()["ev"], "done");
        assert!(ticks_at_rest(&served) < 5, "the loop does not spin");
        assert!(served.peak() < before + (64 << 10), "{} KiB at the most", served.peak());
        // Read on, it is all there.
        let mut count = 1;
        while stalled.raw_event().starts_with(b"{\"ev\":\"message\"") {
            count += 1;
            if count == 1000 {
                break;
            }
        }
        drop(stalled);
        served.shut_down(&mut other);
    }

    /// BP-29: the whole gigabyte, to a reader that reads.
    fn bp_29_a_gigabyte_passes_in_bounded_memory(caller) {
        let stage = Stage::new(caller);
        let served = stage.scripted("stream-json", FLOOD);
        let before = served.rss();
        let mut client = served.connect();
        client.query("a gigabyte");
        let mut buffer = vec![0; 1 << 20];
        let (mut total, mut tail) = (0, Vec::new());
        while !tail.ends_with(b"{\"ev\":\"done\",\"sessionId\":\"test-session\"}\n") {
            let count = client.receive(&mut buffer);
            assert_ne!(count, 0);
            total += count;
            tail = buffer[count.saturating_sub(64)..count].to_vec();
        }
        assert!(total > 1 << 30, "{total}");
        assert!(served.peak() < before + (64 << 10), "{} KiB at the most", served.peak());
        served.shut_down(&mut client);
    }

    /// A supervisor that has nothing to do does nothing, whatever state its agent is in.
    fn an_idle_supervisor_sleeps(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let mut client = served.connect();
        assert!(client.turn("hi").is_done());
        assert_eq!(ticks_at_rest(&served), 0);
        served.shut_down(&mut client);
    }

    /// BP-30: servers that go in the middle of a turn leave no descriptor, and the turn of the next is whole.
    fn bp_30_a_thousand_aborted_connections_leave_nothing(caller) {
        // Nobody but root sees into a supervisor.
        if !crate::support::caller::Caller::current().is_root() {
            skip!("this test needs to be started as root");
        }
        let stage = Stage::new(caller);
        let served = stage.demo();
        let mut client = served.connect();
        assert!(client.turn("hi").is_done());
        let before = served.descriptors();
        for round in 0..1000 {
            let mut other = BridgeClient::connect_only(&served.socket);
            match round % 4 {
                0 => {}
                1 => other.send_bytes(b"{\"cmd\":\"query\",\"prompt\":\"cou"),
                2 => other.send_bytes(b"{\"cmd\":\"exec\",\"command\":\"sleep 100\"}\n"),
                _ => other.send(&json!({"cmd": "query", "prompt": "count: 1000", "sessionId": SESSION})),
            }
        }
        assert!(client.turn("hi").is_done());
        // Killed commands are told of one by one: the last of them has come when this one has.
        let deadline = Deadline::usual();
        while served.descriptors() > before && !deadline.remaining().is_zero() {
            client.send(&json!({"cmd": "exec", "command": ":"}));
            client.events_until(|event| event["ev"] == "done");
        }
        assert!(served.descriptors() <= before, "{} of {before} at first", served.descriptors());
        served.shut_down(&mut client);
    }
}
