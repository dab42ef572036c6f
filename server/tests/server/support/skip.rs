//! Skipped tests are reported as those of the other crates (tests/support/skip.rs): on standard error and in the file
//! `SAGGAR_TEST_SKIPS`. With `SAGGAR_TEST_ALL=1`, a skip is a failure.

use std::fs::OpenOptions;
use std::io::{self, Write};

/// Reports that the current test, or a part of it, is skipped.
///
/// # Panics
/// If `SAGGAR_TEST_ALL` is 1.
pub(crate) fn report_skip(reason: &str) {
    // The harness names the thread of a test after the test.
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    assert!(std::env::var_os("SAGGAR_TEST_ALL").is_none_or(|all| all != "1"), "skipped {test}: {reason}");
    let line = format!("SKIPPED {test}: {reason}\n");
    // One write each, so that lines of parallel tests stay whole.
    io::stderr().write_all(line.as_bytes()).unwrap();
    let file = std::env::var("SAGGAR_TEST_SKIPS")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../target/tmp/skipped").to_owned());
    OpenOptions::new().create(true).append(true).open(file).unwrap().write_all(line.as_bytes()).unwrap();
}
