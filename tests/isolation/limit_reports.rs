//! A limit that programs meet is reported once: by an event and a message.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::wrapped::{Wrap, finish};
use crate::support::caller::Caller;
use crate::support::process::Process;

/// Forks until it may not, and then waits for its standard input, and tries again.
const FORKS: &str = "
import os, signal, sys
def fill():
    try:
        while os.fork(): pass
        signal.pause()
    except BlockingIOError:
        pass
fill()
sys.stdin.readline()
fill()
";

fn event(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

/// The lines on standard error with this text.
fn messages(stderr: &str, text: &str) -> usize {
    stderr.lines().filter(|line| line.contains(text)).count()
}

/// While the program runs, where the kernel notifies, and once.
#[test]
fn forks_that_fail_are_reported() {
    let Ok(caller) = Caller::root() else { skip!("this test needs to be started as root") };
    let wrap = Wrap::new(caller);
    let command = wrap
        .command(&["--id", "box", "--pids", "20", "--status-fd", "1"], &["/usr/bin/python3", "-c", FORKS]);
    let mut process = Process::start(&wrap.place, command);
    let mut lines = BufReader::new(process.take_stdout()).lines().map(|line| event(&line.unwrap()));
    assert_eq!(lines.next().unwrap()["event"], "started");
    let mut stdin = process.take_stdin();
    // The kernel does not notify of events in version 1.
    let is_told_at_once = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let at_once = is_told_at_once.then(|| lines.next().unwrap());
    stdin.write_all(b"\n").unwrap();
    let rest: Vec<Value> = at_once.into_iter().chain(lines).collect();
    let [limit, exited] = &rest[..] else { panic!("{rest:?}") };
    let why = "a program could not start another one: 20 processes run (limits.pids)";
    assert_eq!(*limit, json!({ "event": "limit", "id": "box", "limit": "pids", "why": why }));
    assert_eq!((&exited["event"], &exited["limit"]), (&"exited".into(), &"pids".into()), "{exited}");
    assert!(process.wait().success());
    assert_eq!(messages(&process.stderr(), why), 1, "{}", process.stderr());
}

/// Programs that waited long for processor time are told why they were slow; others are not.
#[test]
fn a_long_wait_for_processor_time_is_reported() {
    let Ok(caller) = Caller::root() else { skip!("this test needs to be started as root") };
    let wrap = Wrap::new(caller);
    // It gets 10 ms in 100 ms, so that 200 ms take two seconds.
    let busy = "import time\nwhile time.process_time() < 0.2: pass";
    let ended = wrap.run(&["--cpus", "0.1", "--status-fd", "1"], &["/usr/bin/python3", "-c", busy]);
    let events: Vec<Value> = ended.stdout.lines().map(event).collect();
    let [started, limit, exited] = &events[..] else { panic!("{ended:?}") };
    assert_eq!((&started["event"], &exited["event"]), (&"started".into(), &"exited".into()));
    assert_eq!((&limit["event"], &limit["limit"]), (&"limit".into(), &"cpu".into()));
    let waited = exited["usage"]["cpu_throttled_usec"].as_u64().unwrap();
    let why =
        format!("programs waited {:.1} s for processor time: 0.1 CPUs (limits.cpus)", waited as f64 / 1e6);
    assert!(waited >= 1_000_000 && limit["why"] == why.as_str(), "{limit} {exited}");
    assert_eq!((exited.get("limit"), messages(&ended.stderr, &why)), (None, 1), "{ended:?}");

    // One process cannot use more than this, however slow the machine is.
    let ended = wrap.run(&["--cpus", "1", "--status-fd", "1"], &["/bin/sleep", "1"]);
    assert_eq!(ended.stdout.lines().count(), 2, "{ended:?}");
}

as_each_caller! {
    fn a_file_that_is_too_large_is_reported(caller) {
        let wrap = Wrap::new(caller);
        let policy = wrap.place.make_file("policy.toml", "[limits]\nfsize = \"64M\"\n[protections]\nquiet = true\n");
        let options = ["--policy", policy.to_str().unwrap(), "--id", "box", "--status-fd", "1"];
        let write = ["/bin/sh", "-c", "exec dd if=/dev/zero of=/tmp/x bs=1M seek=64 count=1 2>&-"];
        let process = Process::start(&wrap.place, wrap.command(&options, &write));
        let ended = finish(process);
        let why = "the program was killed when it wrote a file of more than 64M (limits.fsize)";
        let events: Vec<Value> = ended.stdout.lines().map(event).collect();
        assert_eq!(events[1], json!({ "event": "limit", "id": "box", "limit": "fsize", "why": why }));
        assert_eq!(messages(&ended.stderr, why), 1, "{ended:?}");
    }
}
