//! A server of a test's own, and clients of it.

mod client;
mod process;

pub use client::{Client, Frame};
pub use process::Server;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The folder of the demo agent.
pub fn hello() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("examples/hello")
}

/// The body of a deployment of the demo agent.
pub fn hello_body(name: &str) -> Value {
    json!({ "name": name, "path": hello() })
}

/// Whether a process is gone; one that only its parent has to notice is.
pub fn is_gone(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

/// Kills a process.
pub fn kill(pid: Pid, signal: Signal) {
    kill_process(pid, signal).unwrap();
}

/// Waits until something holds; a minute is for machines that are busy.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(10));
    }
}
