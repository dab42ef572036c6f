//! The harness by itself: a test that waits for the wrong thing proves nothing.

use std::fs;
use std::io::{self, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;

use super::bridge_client::BridgeClient;
use super::caller::Caller;
use super::deadline::Deadline;
use super::lines::Lines;
use super::place::Place;
use super::process::{Process, Watch, killed_by};
use super::wait;

fn place() -> Place {
    Place::new(Caller::current())
}

#[test]
fn lines_are_split_wherever_the_bytes_are() {
    let (mut peer, ours) = UnixStream::pair().unwrap();
    let mut lines = Lines::new(ours);
    let writer = thread::spawn(move || {
        for byte in "{\"a\":\"€\"}\n\nlast\n".bytes() {
            peer.write_all(&[byte]).unwrap();
        }
    });
    assert_eq!(lines.next_json(Deadline::usual()), json!({"a": "€"}));
    assert_eq!(lines.next_line(Deadline::usual()).unwrap().as_deref(), Some(&b""[..]));
    assert_eq!(lines.next_line(Deadline::usual()).unwrap().as_deref(), Some(&b"last"[..]));
    assert_eq!(lines.next_line(Deadline::usual()).unwrap(), None);
    writer.join().unwrap();
}

#[test]
fn a_line_that_does_not_come_is_a_timeout_and_a_torn_one_an_error() {
    let (mut peer, ours) = UnixStream::pair().unwrap();
    let mut lines = Lines::new(ours);
    peer.write_all(b"torn").unwrap();
    let error = lines.next_line(Deadline::after(Duration::from_millis(1))).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    drop(peer);
    let error = lines.next_line(Deadline::usual()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn a_bridge_client_reads_a_turn_to_its_end() {
    let place = place();
    let socket = place.join("b.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"{\"ev\":\"ready\"}\n").unwrap();
        let mut lines = Lines::new(stream.try_clone().unwrap());
        let query = lines.next_json(Deadline::usual());
        assert_eq!((&query["cmd"], &query["prompt"]), (&json!("query"), &json!("hi")));
        let events = "{\"ev\":\"message\",\"data\":{\"type\":\"assistant\",\"n\":2.50}}\n{\"ev\":\"done\",\"sessionId\":\"\"}\n";
        stream.write_all(events.as_bytes()).unwrap();
        assert_eq!(lines.next_line(Deadline::usual()).unwrap().as_deref(), Some(&b"not json"[..]));
        stream.write_all(b"{\"ev\":\"error\",  \"error\":\"no\"}\n").unwrap();
    });
    let mut client = BridgeClient::connect(&socket);
    let outcome = client.turn("hi");
    assert!(outcome.is_done());
    assert_eq!(outcome.of_type("assistant").count(), 1);
    client.send_bytes(b"not json\n");
    assert_eq!(client.raw_event(), b"{\"ev\":\"error\",  \"error\":\"no\"}");
    client.expect_close();
    server.join().unwrap();
}

#[test]
fn waiting_for_a_path_sees_it_come_and_go() {
    let place = place();
    let path = place.join("mark");
    let maker = {
        let path = path.clone();
        thread::spawn(move || fs::write(path, "").unwrap())
    };
    wait::until_exists(&path);
    maker.join().unwrap();
    let remover = {
        let path = path.clone();
        thread::spawn(move || fs::remove_file(path).unwrap())
    };
    wait::until_gone(&path);
    remover.join().unwrap();
}

as_each_caller! {
    fn a_command_of_a_place_runs_as_the_caller_with_nothing_of_ours(caller) {
        let place = Place::new(caller);
        let script = "id -u; id -G; env | cut -d= -f1 | sort | xargs; touch mine; cat /proc/net/dev";
        let mut command = place.command(Path::new("/bin/sh"));
        command.arg(place.make_file("probe.sh", script));
        let mut process = Process::start(&place, command);
        let mut lines = Lines::new(process.take_stdout());
        let mut line = || lines.next_line(Deadline::usual()).unwrap().map(|line| String::from_utf8(line).unwrap());
        assert_eq!(line(), Some(caller.uid().to_string()));
        let groups = line().unwrap();
        let expected = if caller.is_root() {
            "HOME LANG PATH PWD SAGGAR_STATE_DIR XDG_RUNTIME_DIR XDG_STATE_HOME"
        } else {
            "HOME LANG PATH PWD XDG_RUNTIME_DIR XDG_STATE_HOME"
        };
        assert_eq!(line().as_deref(), Some(expected));
        if Caller::root().is_ok() {
            assert!(!groups.contains(' '), "no group but its own: {groups}");
            let interfaces: Vec<String> = std::iter::from_fn(&mut line).skip(2).collect();
            assert!(matches!(&interfaces[..], [only] if only.trim().starts_with("lo:")), "{interfaces:?}");
        }
        assert!(process.wait().success(), "{}", process.stderr());
        assert!(place.work().join("mine").exists());
    }
}

as_each_caller! {
    fn the_binary_of_this_build_runs_as_the_caller(caller) {
        let place = Place::new(caller);
        let mut command = place.saggar();
        command.arg("--version");
        let mut process = Process::start(&place, command);
        assert!(process.wait().success(), "{}", process.stderr());
    }
}

#[test]
fn descendants_are_found_and_a_dropped_process_takes_its_group_along() {
    let place = place();
    let mut command = place.command(Path::new("/bin/sh"));
    command.args(["-c", "sh -c 'echo up; cat; :'; :"]);
    let mut process = Process::start(&place, command);
    let mut lines = Lines::new(process.take_stdout());
    lines.next_line(Deadline::usual()).unwrap();
    let (inner, _) = process
        .descendants()
        .into_iter()
        .find(|(_, arguments)| arguments.iter().any(|argument| argument.contains("echo up")))
        .expect("the inner shell is a descendant");
    let watch = Watch::of(inner).unwrap();
    drop(process);
    watch.wait_gone("the inner shell");
}

#[test]
fn a_signal_ends_a_process_as_that_signal() {
    let place = place();
    let mut process = Process::start(&place, place.command(Path::new("/bin/cat")));
    process.signal(Signal::SIGTERM);
    assert!(killed_by(process.wait(), Signal::SIGTERM));
}
