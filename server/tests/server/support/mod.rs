//! Server processes for tests, and HTTP clients.

#[path = "../../../../tests/support/certificate.rs"]
pub(crate) mod certificate;
mod client;
pub(crate) mod collector;
mod conformity;
pub(crate) mod cutting_proxy;
pub(crate) mod kubernetes;
pub(crate) mod postgres;
mod process;
pub(crate) mod s3;
mod schema;
mod skip;
pub(crate) mod webdriver;

pub use client::{Client, Frame, Response};
pub use conformity::DOCUMENT;
pub use process::{Server, saggar_program};
pub(crate) use skip::report_skip;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The folder of the demo agent.
pub fn hello_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("examples/hello")
}

/// The body that deploys the demo agent under this name.
pub fn deploy_body(name: &str) -> Value {
    json!({ "name": name, "path": hello_folder() })
}

/// A settings file with this text.
pub fn settings_file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

/// Bytes as base64 in the body of a request.
pub fn base64(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Whether a process has exited. A zombie has.
pub fn has_exited(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

/// Sends a signal to a process.
pub fn send_signal(pid: Pid, signal: Signal) {
    kill_process(pid, signal).unwrap();
}

/// Waits until the condition holds, at most a minute: test machines can be busy.
pub fn wait_until(condition: &str, mut is_met: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_met() {
        assert!(start.elapsed() < Duration::from_secs(60), "not within a minute: {condition}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
