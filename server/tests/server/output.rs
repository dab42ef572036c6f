//! A server whose output nobody can receive.

use crate::support::{Client, Server};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

/// Every write to it fails with ENOSPC (full(4)).
fn full_device() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").unwrap().into()
}

/// Returns a server whose process has exited: its data directory and its command remain.
fn stopped_server() -> Server {
    let mut server = Server::start_with(&[], &[("RUST_LOG", "trace")]);
    assert!(server.stop(Signal::TERM).success());
    server
}

fn assert_exits_at_sigterm(mut process: Child) {
    kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
    assert!(process.wait().unwrap().success());
}

#[test]
fn server_starts_without_usable_standard_output() {
    let server = stopped_server();
    let mut process = server.command().stdout(full_device()).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
    let line = log.find(|line| line.contains("cannot print the address")).expect("a warning");
    let url =
        line.split_whitespace().find(|word| word.starts_with("http://")).expect("an address").to_owned();
    std::thread::spawn(move || log.for_each(drop));
    Client::new(&url, None).get("/health").expect(200);
    assert_exits_at_sigterm(process);
}

#[test]
fn server_serves_without_usable_standard_error() {
    let server = stopped_server();
    let mut process = server.command().stdout(Stdio::piped()).stderr(full_device()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim_end().rsplit_once(" on ").expect("an address").1.to_owned();
    Client::new(&url, None).get("/health").expect(200);
    assert_exits_at_sigterm(process);
}
