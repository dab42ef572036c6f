//! BP-30, RB-39: events that a server missed are there when it comes back, each once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::served::{Served, Stage};
use crate::kill::wait_for_nothing;
use crate::support::bridge_client::BridgeClient;
use crate::support::caller::Caller;
use crate::support::process::killed_by;
use crate::support::wait;

/// An agent that says an odd line at once, waits for the file `go`, and says the rest.
const WAITS: &str = "#!/bin/sh\nwhile read -r line; do\n\
    echo '{\"type\":\"assistant\", \"a\":1e400,\"a\":2.50,\"s\":\"\\u0000\\ud800\",\"seq\":9 }'\n\
    : > said\nwhile [ ! -e go ]; do sleep 0.02; done\n\
    echo '{\"type\":\"assistant\",\"n\":12345678901234567890}'\necho '{\"type\":\"result\"}'\ndone\n";

/// An agent that says so many lines of so many bytes in each turn.
fn talkative(lines: u32, bytes: u32) -> String {
    format!(
        "#!/bin/sh\nx=$(head -c {bytes} /dev/zero | tr '\\0' x)\nwhile read -r line; do\ni=0\n\
         while [ $i -lt {lines} ]; do i=$((i+1)); printf '{{\"type\":\"assistant\",\"i\":%d,\"x\":\"%s\"}}\\n' $i \"$x\"; done\n\
         echo '{{\"type\":\"result\"}}'\ndone\n"
    )
}

/// Where the stage's session keeps its events.
fn spool(stage: &Stage) -> PathBuf {
    stage.place.join("state/saggar/sessions").join(stage.name()).join("spool")
}

/// Connects, asks for what comes behind `after`, and reads up to the answer: the lines before it.
fn replay(client: &mut BridgeClient, after: u64) -> Vec<String> {
    client.send(&json!({"cmd": "replay", "after": after, "id": "r"}));
    let mut lines = Vec::new();
    loop {
        let line = String::from_utf8(client.raw_event()).unwrap();
        if line.contains(r#""id":"r""#) {
            assert!(line.starts_with(r#"{"ev":"done""#), "{line}");
            return lines;
        }
        lines.push(line);
    }
}

fn numbers(lines: &[String]) -> Vec<u64> {
    let number = |line: &String| serde_json::from_str::<Value>(line).unwrap()["seq"].as_u64().unwrap();
    lines.iter().map(number).collect()
}

fn spooled(stage: &Stage, script: &str, more: &[&str]) -> Served {
    let script = stage.script("agent", script);
    let mut options = vec!["--adapter", "stream-json", "--agent-cmd", &script, "--spool"];
    options.extend_from_slice(more);
    stage.serve(&options)
}

as_each_caller! {
    /// A server goes in the middle of a turn; what it missed is told byte for byte, then what comes.
    fn bp_30_reconnecting_server_gets_the_whole_turn(caller) {
        let stage = Stage::new(caller);
        let served = spooled(&stage, WAITS, &[]);
        let mut client = served.connect();
        client.send(&json!({"cmd": "query", "prompt": "x", "sessionId": "s", "id": 7}));
        wait::until_exists(&stage.work().join("said"));
        drop(client);
        let mut client = served.connect();
        let odd = "{\"ev\":\"message\",\"data\":{\"type\":\"assistant\", \"a\":1e400,\"a\":2.50,\"s\":\"\\u0000\\ud800\",\"seq\":9 },\"id\":7,\"seq\":1}";
        // The agent has said it; the bridge may read it a moment later.
        let mut lines = replay(&mut client, 0);
        fs::write(stage.work().join("go"), "").unwrap();
        while !lines.last().is_some_and(|line| line.starts_with("{\"ev\":\"done\"")) {
            lines.push(String::from_utf8(client.raw_event()).unwrap());
        }
        let expected = [
            odd,
            "{\"ev\":\"message\",\"data\":{\"type\":\"assistant\",\"n\":12345678901234567890},\"id\":7,\"seq\":2}",
            "{\"ev\":\"message\",\"data\":{\"type\":\"result\"},\"id\":7,\"seq\":3}",
            "{\"ev\":\"done\",\"sessionId\":\"s\",\"id\":7,\"seq\":4}",
        ];
        assert_eq!(lines, expected);
        // Again, from anywhere, to anybody; and nothing to who does not ask.
        let mut other = served.connect();
        assert_eq!(replay(&mut other, 0), expected);
        let mut third = served.connect();
        assert_eq!(replay(&mut third, 2), expected[2..]);
        let mut plain = served.connect();
        let result = plain.exec("echo hello", 5000);
        assert_eq!(result, json!({"ev": "exec_result", "exitCode": 0, "stdout": "hello\n", "stderr": ""}));
        client.send(&json!({"cmd": "replay", "after": 0, "id": 1}));
        let told: Vec<Value> = client.events_until(|event| event["id"] == 1);
        assert_eq!(told[0]["seq"], 5, "what another connection did is told too");
        assert!(told[2]["error"].as_str().unwrap().contains("receives all events already"));
        served.shut_down(&mut plain);
    }

    /// A connection that does not ask hears what it hears without a spool, byte for byte.
    fn connection_without_replay_gets_the_same_bytes_as_without_a_spool(caller) {
        let said = |spool: bool| {
            let stage = Stage::new(caller);
            fs::write(stage.work().join("go"), "").unwrap();
            let script = stage.script("agent", WAITS);
            let mut options = vec!["--adapter", "stream-json", "--agent-cmd", &script];
            if spool {
                options.push("--spool");
            }
            let served = stage.serve(&options);
            let mut client = served.connect();
            let mut heard = Vec::new();
            for line in [
                json!({"cmd": "query", "prompt": "x", "sessionId": "s", "id": "a"}),
                json!({"cmd": "exec", "command": "echo out; echo err >&2; exit 3"}),
                json!({"cmd": "fly"}),
                json!({"cmd": "query", "prompt": "x", "sessionId": "other", "id": "b"}),
                json!({"cmd": "set", "log": false, "id": "c"}),
            ] {
                client.send(&line);
                loop {
                    let line = client.raw_event();
                    let is_last = line.starts_with(b"{\"ev\":\"done\"") || line.starts_with(b"{\"ev\":\"error\"");
                    heard.push(String::from_utf8(line).unwrap());
                    if is_last {
                        break;
                    }
                }
            }
            served.shut_down(&mut client);
            heard
        };
        assert_eq!(said(true), said(false));
    }

    /// What is kept outlives the supervisor, and the numbers go on; an undone command ends in one error.
    fn rb_39_events_and_uuids_outlive_the_supervisor(caller) {
        let stage = Stage::new(caller);
        let script = WAITS.replace("1e400", "1").replace("\\ud800", "");
        let mut served = spooled(&stage, &script, &[]);
        let mut second = served.connect();
        second.send(&json!({"type": "user", "message": {"content": "x"}, "uuid": "taken"}));
        wait::until_exists(&stage.work().join("said"));
        let mut client = served.connect();
        client.send(&json!({"cmd": "query", "prompt": "waits", "sessionId": stage.name(), "id": "w"}));
        client.exec("true", 5000);
        served.process.signal(Signal::SIGKILL);
        assert!(killed_by(served.process.wait(), Signal::SIGKILL));
        wait_for_nothing(&stage.work(), std::time::Duration::ZERO);
        // Half a record at the end, as of a write that was cut.
        let directory = fs::read_dir(spool(&stage)).unwrap().flatten();
        let newest = directory.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "seg")).max();
        let newest = newest.unwrap();
        let mut bytes = fs::read(&newest).unwrap();
        bytes.extend_from_slice(&[7; 20]);
        fs::write(&newest, bytes).unwrap();

        fs::write(stage.work().join("go"), "").unwrap();
        let served = spooled(&stage, &script, &["--resume"]);
        let mut client = served.connect();
        let lines = replay(&mut client, 0);
        assert_eq!(numbers(&lines), (1..=u64::try_from(lines.len()).unwrap()).collect::<Vec<_>>());
        let ends: Vec<&String> = lines.iter().filter(|line| line.contains("the bridge ended before")).collect();
        assert_eq!(ends.len(), 2, "{lines:?}");
        assert!(ends[1].contains(r#""id":"w""#), "{lines:?}");
        // The message that was taken is not taken again; another is, and its number is the next.
        let mut second = served.connect();
        second.send(&json!({"type": "user", "message": {"content": "x"}, "uuid": "taken"}));
        second.send(&json!({"type": "user", "message": {"content": "x"}, "uuid": "new"}));
        let told = client.events_until(|event| event["ev"] == "done");
        assert_eq!(told.iter().filter(|event| event["data"]["type"] == "result").count(), 1);
        assert_eq!(told[0]["seq"].as_u64(), Some(lines.len() as u64 + 1));
        served.shut_down(&mut client);
    }

    /// The bound holds on disk, and what has gone is one gap.
    fn spool_above_its_limit_reports_one_gap(caller) {
        let stage = Stage::new(caller);
        let policy = stage.place.make_file("small.toml", "bridge.spool = '1M'\n");
        let served = spooled(&stage, &talkative(40, 100_000), &["--policy", policy.to_str().unwrap()]);
        let mut client = served.connect();
        client.send(&json!({"cmd": "query", "prompt": "x", "sessionId": "s"}));
        assert_eq!(client.events_until(|event| event["ev"] == "done").len(), 42);
        let size: u64 = fs::read_dir(spool(&stage)).unwrap().flatten().map(|entry| entry.metadata().unwrap().len()).sum();
        assert!(size <= 1 << 20, "{size}");
        let mut other = served.connect();
        let lines = replay(&mut other, 0);
        let gap: Value = serde_json::from_str(&lines[0]).unwrap();
        let to = gap["to"].as_u64().unwrap();
        assert_eq!(gap, json!({"ev": "gap", "from": 1, "to": to}));
        assert!((30..40).contains(&to), "{gap}");
        assert_eq!(numbers(&lines[1..]), (to + 1..=42).collect::<Vec<_>>());
        served.shut_down(&mut client);
    }

    /// A replaying server that does not read costs neither memory nor the others; it is told from the disk.
    fn bp_29_slow_replay_blocks_no_other_client(caller) {
        let stage = Stage::new(caller);
        let served = spooled(&stage, &talkative(400, 100_000), &[]);
        let mut slow = served.connect();
        slow.send(&json!({"cmd": "replay", "after": 0, "id": "r"}));
        assert_eq!(slow.event()["seq"], 0);
        let mut client = served.connect();
        let before = served.peak();
        client.send(&json!({"cmd": "query", "prompt": "x", "sessionId": "s"}));
        assert_eq!(client.events_until(|event| event["ev"] == "done").len(), 402);
        assert!(served.peak() < before + (12 << 10), "{before} KiB before, {} after", served.peak());
        let all = slow.events_until(|event| event["ev"] == "done");
        assert!(all.iter().map(|event| event["seq"].as_u64().unwrap()).eq(1..=402));
        // The whole of it again, to one that reads: not in memory at once either.
        let mut again = served.connect();
        again.send(&json!({"cmd": "replay", "after": 0, "id": "r"}));
        assert_eq!(again.events_until(|event| event["id"] == "r").len(), 403);
        assert!(served.peak() < before + (12 << 10), "{before} KiB before, {} after", served.peak());
        served.shut_down(&mut client);
    }

    /// Shown by explain, bounded for folders, and an error where it cannot be.
    fn folder_policy_cannot_raise_the_spool_limit(caller) {
        let stage = Stage::new(caller);
        let mut command = stage.place.saggar();
        command.arg("explain").arg(stage.work());
        let shown = stage.run(command);
        assert!(shown.stdout.lines().any(|line| line.split_whitespace().eq(["spool", "64M", "built-in"])), "{shown:?}");
        stage.place.make_file("work/saggar.toml", "bridge.spool = '65M'\n");
        let refused = stage.run(stage.command(&["--adapter", "demo", "--spool", "hi"]));
        refused.refused(125, &["bridge.spool"]);
        stage.place.make_file("work/saggar.toml", "bridge.spool = '2M'\n");
        let served = stage.serve(&["--adapter", "demo"]);
        let mut client = served.connect();
        client.send(&json!({"cmd": "replay", "after": 0}));
        assert!(client.event()["error"].as_str().unwrap().contains("--spool"));
        served.shut_down(&mut client);
    }
}

/// A file that takes all that is left.
fn fill(path: &Path) {
    let filler = vec![0; 4096];
    let mut file = fs::File::create(path).unwrap();
    while std::io::Write::write_all(&mut file, &filler).is_ok() {}
    while std::io::Write::write_all(&mut file, b"0").is_ok() {}
}

/// Where nothing can be written the conversation goes on; what was lost is a gap, and no number comes again.
#[test]
fn full_disk_causes_a_gap_and_the_conversation_continues() {
    let caller = match Caller::root() {
        Ok(caller) => caller,
        Err(why) => skip!("{why}"),
    };
    let stage = Stage::new(caller);
    let state = stage.place.join("state");
    let script = stage.script("agent", &talkative(4, 1000));
    let agent = |more: &[&str]| {
        let mut command = stage.command(&["--adapter", "stream-json", "--agent-cmd", &script, "--spool"]);
        command.arg("--bridge-socket").arg(stage.socket()).args(["--ready-fd", "1"]).args(more);
        command
    };
    // In a mount namespace of its own, which goes with it.
    let mut command = stage.place.command(Path::new("/usr/bin/unshare"));
    let words = agent(&[]);
    command.args(["--mount", "sh", "-c", "mount -t tmpfs -o size=2m none \"$0\" && exec \"$@\""]).arg(&state);
    command.arg(words.get_program()).args(words.get_args());
    copy_environment(&words, &mut command);
    let served = Served::start(&stage.place, command, &stage.socket());
    let inside =
        PathBuf::from(format!("/proc/{}/root", served.process.pid())).join(state.strip_prefix("/").unwrap());
    let mut follower = served.connect();
    assert_eq!(replay(&mut follower, 0), [""; 0]);
    let mut client = served.connect();
    let mut turn = || {
        client.send(&json!({"cmd": "query", "prompt": "x", "sessionId": "s"}));
        assert_eq!(client.events_until(|event| event["ev"] == "done").len(), 6);
    };
    turn();
    fill(&inside.join("filler"));
    turn();
    turn();
    fs::remove_file(inside.join("filler")).unwrap();
    turn();
    let live = follower.events_until(|event| event["seq"] == 24);
    assert!(live.iter().map(|event| event["seq"].as_u64().unwrap()).eq(1..=24), "live, all are told");
    let mut other = served.connect();
    let lines = replay(&mut other, 0);
    let gaps: Vec<&String> = lines.iter().filter(|line| line.contains("\"gap\"")).collect();
    assert_eq!(gaps.len(), 1, "{lines:?}");
    let gap: Value = serde_json::from_str(gaps[0]).unwrap();
    // A page that was begun may take a few more of them.
    assert!(gap["from"].as_u64().unwrap() <= 11 && gap["to"] == 18, "{gap}");
    let log = served.process.stderr();
    assert!(
        log.matches("events are not kept").count() == 1 && log.contains("events are kept again"),
        "{log}"
    );
    served.shut_down(&mut other);
}

fn copy_environment(from: &Command, to: &mut Command) {
    for (name, value) in from.get_envs() {
        match value {
            Some(value) => to.env(name, value),
            None => to.env_remove(name),
        };
    }
}
