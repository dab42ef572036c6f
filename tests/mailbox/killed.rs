//! Sandboxes that send at once, and whose supervisors are killed at any moment.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::inside::lines;
use super::mcp_client::{PYTHON_CLIENT, sandboxed};
use crate::support::deadline::Deadline;
use crate::support::place::Place;
use crate::support::process::{Process, Watch};

const WRITERS: usize = 8;

/// Sends `NAME 1` to `NAME LAST`, from the first that it has no answer for, and writes down what was acknowledged.
const WRITER: &str = "
import sys
name, last, answered = sys.argv[1], int(sys.argv[2]), sys.argv[3]
with open(answered, 'a+') as file:
    file.seek(0)
    done = len(file.read().splitlines())
    client = Client().begin()
    for number in range(done + 1, last + 1):
        result = client.send('', 'chat', f'{name} {number}')
        assert not result['isError'], result
        # A line is one write.
        file.write(f'{number}\\n')
        file.flush()
";

/// Messages of each writer.
const MESSAGES: usize = 1000;

/// One writer: its sandbox is started again after each kill, until it has sent everything.
fn write(place: &Place, name: &str) {
    let answered = answered(place, name);
    let script = format!("{PYTHON_CLIENT}{WRITER}");
    let argv = ["/usr/bin/python3", "-c", &script, name, &MESSAGES.to_string(), answered.to_str().unwrap()]
        .map(str::to_owned);
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    for attempt in 1.. {
        let mut process = Process::start(place, sandboxed(place, name, &[], &argv));
        drop(process.take_stdin());
        // Each is killed a little later than the one before, so that all come to an end.
        let moment = Deadline::after(Duration::from_millis(40 * attempt));
        if !Watch::of(process.pid()).unwrap().is_gone_by(moment) {
            process.signal(Signal::SIGKILL);
        }
        if process.wait().success() {
            return;
        }
        assert!(attempt < 200, "{name} does not come to an end: {}", process.stderr());
    }
}

fn answered(place: &Place, name: &str) -> PathBuf {
    place.work().join(format!("{name}.answered"))
}

fn count(path: &Path) -> usize {
    fs::read_to_string(path).unwrap_or_default().lines().count()
}

as_each_caller! {
    fn am_10_messages_of_killed_sandboxes_are_there_once_and_in_order(caller) {
        let place = Place::new(caller);
        let names: Vec<String> = (1..=WRITERS).map(|number| format!("agent-{number}")).collect();
        thread::scope(|scope| {
            for name in &names {
                scope.spawn(|| write(&place, name));
            }
        });
        let sent: Vec<Value> = lines(&place);
        assert_eq!(sent.len(), WRITERS * MESSAGES);
        for name in &names {
            let contents: Vec<&str> = sent.iter().filter(|line| line["from"] == name.as_str()).map(|line| line["content"].as_str().unwrap()).collect();
            let expected: Vec<String> = (1..=MESSAGES).map(|number| format!("{name} {number}")).collect();
            assert_eq!(contents, expected);
            assert_eq!(count(&answered(&place, name)), MESSAGES);
        }
    }
}
