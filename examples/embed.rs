//! Runs a command in a sandbox through the library: `cargo run --example embed -- sh -c 'id; exit 3'`.
//!
//! The sandbox has this directory as its workspace, no network, and less memory and fewer processes than usual. It works
//! as root and as an ordinary user.
#![allow(clippy::print_stdout, reason = "an example that prints what it found")]

use saggar::app::wrap::{self, WrapRequest};
use saggar::app::{SandboxOptions, run_subprocess};
use saggar::error::Error;
use saggar::spec::policy::{ByteSize, NetworkMode, PolicyOptions, Protection};
use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    // saggar executes this program again for its own processes.
    if let Some(status) = run_subprocess(&args) {
        return status.into();
    }
    let command = if args.len() > 1 { &args[1..] } else { &["true".into()] };
    let status = run(command).unwrap_or_else(|error| {
        eprintln!("embed: {error}");
        error.code().exit_status()
    });
    println!("exit status {status}");
    status.into()
}

fn run(command: &[OsString]) -> Result<u8, Error> {
    let policy = PolicyOptions {
        network: Some(NetworkMode::None),
        memory: Some(ByteSize::from_mebibytes(256)),
        pids: Some(64),
        // Where the host cannot hold them, the sandbox starts with less, and says so.
        prefer: vec![Protection::Limits],
        ..PolicyOptions::default()
    };
    let sandbox = SandboxOptions { policy, ..SandboxOptions::default() };
    let request = WrapRequest { sandbox, argv: command.to_vec(), ..WrapRequest::default() };
    wrap::prepare(request)?.start()?.supervise().status
}
