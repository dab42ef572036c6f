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
#[path = "sys/libc_start.rs"]
mod libc_start;

/// What the start code calls.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn main(_: c_int, _: *const *const c_char) -> c_int {
    sys::begin::begin();
    let status = run();
    // What is left in the buffer is written by nobody else.
    let _ = std::io::stdout().flush();
    status.into()
}

fn run() -> u8 {
    let args: Vec<OsString> = std::env::args_os().collect();
    if args.get(1).is_some_and(|first| first == saggar::demo::ENTRY) {
        let input = std::io::BufReader::new(std::io::stdin());
        return saggar::demo::run(input, std::io::stdout());
    }
    if args.get(1).is_some_and(|first| first == saggar::session::snapshot::aside::ENTRY) {
        return saggar::session::snapshot::aside::run(&args[2..], std::io::stdout());
    }
    if args.get(1).is_some_and(|first| first == saggar::api::ENTRY) {
        return saggar::api::run();
    }
    if args.get(1).is_some_and(|first| first == saggar::relay::ENTRY) {
        return saggar::relay::run();
    }
    if args.get(1).is_some_and(|first| first == saggar::cmd::BESIDE) {
        return saggar::cmd::beside(&args[2..]);
    }
    match args.get(1).and_then(|first| first.to_str()) {
        Some(saggar::prove::ENTRY) => return saggar::prove::inside::run(&args[2..], std::io::stdout()),
        Some(saggar::prove::outside::BYSTANDER) => return saggar::prove::outside::stand_by(std::io::stdin()),
        Some(saggar::prove::AROUND) => return saggar::cmd::probe_in(&args[2..]),
        _ => {}
    }
    saggar::cmd::main(&args)
}
