//! KC-32: what a session has logged, from the disk and from the control socket.

use std::io::{BufRead, BufReader};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::stage::{Sessions, control, supervisor};
use crate::support::process::Process;

fn entries(text: &str) -> Vec<Value> {
    text.lines().map(crate::session::stage::json).collect()
}

as_each_caller! {
    /// Both have the same numbers, which go on over starts, and can be read when nobody serves.
    fn kc_32_logs_have_numbers_that_go_on(caller) {
        let sessions = Sessions::new(caller);
        let session = sessions.create("logs", &[]);
        sessions.send("logs", "run: echo one >&2; echo two >&2");
        crate::session::stage::agent(&session).signal(Signal::SIGKILL);
        sessions.run(&["send", "logs", "hi"]);
        let from_disk = entries(&sessions.ok(&["logs", "--json", "logs"]));
        let from_socket = control(&session).get("logs");
        assert!(!from_disk.is_empty(), "{from_socket}");
        assert_eq!(from_socket["entries"], json!(from_disk));
        assert_eq!(from_socket["last"], from_disk.last().unwrap()["index"]);
        for (number, entry) in from_disk.iter().enumerate() {
            assert_eq!(entry["index"], number + 1, "{entry}");
            assert!(entry["ts"].is_u64() && entry["level"].is_string() && entry["text"].is_string(), "{entry}");
        }
        assert!(from_disk.iter().any(|entry| entry["text"].as_str().unwrap().contains("killed by signal 9")));
        let last = from_disk.len();
        let watch = supervisor(&session);
        watch.signal(Signal::SIGKILL);
        watch.wait_gone("the supervisor");
        assert_eq!(entries(&sessions.ok(&["logs", "--json", "logs"])), from_disk);
        sessions.ok(&["resume", "logs"]);
        crate::session::stage::agent(&sessions.show("logs")).signal(Signal::SIGKILL);
        sessions.run(&["send", "logs", "hi"]);
        let more = entries(&sessions.ok(&["logs", "--json", "--after", &last.to_string(), "logs"]));
        assert_eq!(more[0]["index"], last + 1);
        // By level, and as text for people.
        let warnings = entries(&sessions.ok(&["logs", "--json", "--level", "warn", "logs"]));
        assert!(warnings.iter().all(|entry| entry["level"] == "warn"));
        let text = sessions.ok(&["logs", "logs"]);
        assert!(text.lines().next().unwrap().starts_with("1 20"), "{text}");
        assert_eq!(text.lines().count(), last + more.len());
    }

    /// Who follows hears of each entry at once, and of the end.
    fn followed_logs_end_with_the_supervisor(caller) {
        let sessions = Sessions::new(caller);
        let session = sessions.create("tail", &[]);
        let mut process = Process::start(&sessions.stage.place, sessions.command(&["logs", "--follow", "--json", "tail"]));
        let mut lines = BufReader::new(process.take_stdout()).lines();
        crate::session::stage::agent(&session).signal(Signal::SIGKILL);
        sessions.run(&["send", "tail", "hi"]);
        let first = crate::session::stage::json(&lines.next().unwrap().unwrap());
        assert_eq!(first["index"], 1);
        sessions.ok(&["end", "tail"]);
        let rest: Vec<Value> = lines.map(|line| crate::session::stage::json(&line.unwrap())).collect();
        assert!(process.wait().success());
        let all = entries(&sessions.ok(&["logs", "--json", "tail"]));
        assert_eq!([vec![first], rest].concat(), all);
    }
}
