//! The `saggar` binary.
//!
//! It has the `main` of C, not that of Rust's runtime, which reads the map of this process's memory and prepares for
//! an overflow of its stack: a twentieth of a millisecond in every start. What of it we need is in [`sys::begin`].
#![cfg_attr(not(test), no_main)]
#![allow(unsafe_code, reason = "main and what comes before it have names that C gives them")]

use saggar::sys;
use std::ffi::{OsString, c_char, c_int};
use std::io::Write;

#[cfg(all(saggar_libc_start, not(test)))]
mod libc_start;

/// What the start code calls.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn main(_: c_int, _: *const *const c_char) -> c_int {
    sys::startup::prepare_process();
    let status = run();
    // What is left in the buffer is written by nobody else.
    let _ = std::io::stdout().flush();
    status.into()
}

fn run() -> u8 {
    let args: Vec<OsString> = std::env::args_os().collect();
    if let Some(status) = saggar::app::run_subprocess(&args) {
        return status;
    }
    match args.get(1).and_then(|first| first.to_str()) {
        Some(saggar::cmd::BRIDGE_SUPERVISOR) => saggar::cmd::run_bridge_supervisor(&args[2..]),
        Some(saggar::prove::PROVE_OTHER) => saggar::cmd::prove_other_sandbox(&args[2..]),
        _ => saggar::cmd::main(&args),
    }
}
