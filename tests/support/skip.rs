//! A skip is counted and loud: a suite that proves less than it seems to is worse than a failing one.
//!
//! Each skip prints a line on the real stderr (not the one that the test harness captures) and appends it to
//! `$SAGGAR_TEST_SKIPS`, by default `target/tmp/skipped`. With `SAGGAR_TEST_ALL=1` a skip is a failure.

use std::env;
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};

/// Ends the current test as skipped, for the given reason (arguments as for `format!`).
macro_rules! skip {
    ($($why:tt)*) => {{
        fn here() {}
        $crate::support::skip::record(std::any::type_name_of_val(&here), format_args!($($why)*));
        return;
    }};
}

/// Two tests of one body: called as root, and as an ordinary user; each is skipped where this user cannot be.
///
/// `as_each_caller! { fn name(caller) { … } }` makes `name::as_root` and `name::as_ordinary_user`.
macro_rules! as_each_caller {
    ($($(#[$meta:meta])* fn $name:ident($caller:ident) $body:block)+) => {$(
        $(#[$meta])*
        mod $name {
            // What the body needs is in scope where it is written, not here.
            #[allow(unused_imports)]
            use super::*;

            #[test]
            fn as_root() {
                match $crate::support::caller::Caller::root() {
                    Ok(caller) => body(caller),
                    Err(why) => skip!("{why}"),
                }
            }

            #[test]
            fn as_ordinary_user() {
                match $crate::support::caller::Caller::ordinary() {
                    Ok(caller) => body(caller),
                    Err(why) => skip!("{why}"),
                }
            }

            fn body($caller: $crate::support::caller::Caller) $body
        }
    )+};
}

/// Records a skip; called by [`skip!`] with the path of a function inside the test.
pub(crate) fn record(path: &str, why: fmt::Arguments<'_>) {
    // The harness names the thread of a test after it, unless it runs tests on the main one.
    let thread = std::thread::current();
    let test = match thread.name() {
        Some(name) if name != "main" => name,
        _ => path.trim_end_matches("::here"),
    };
    assert!(env::var_os("SAGGAR_TEST_ALL").is_none_or(|all| all != "1"), "{test} may not be skipped: {why}");
    let line = format!("SKIPPED {test}: {why}\n");
    // One write each, so that lines of parallel tests stay whole.
    io::stderr().write_all(line.as_bytes()).expect("stderr takes the skip line");
    let file = env::var("SAGGAR_TEST_SKIPS")
        .unwrap_or_else(|_| concat!(env!("CARGO_TARGET_TMPDIR"), "/skipped").to_owned());
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(&file)
        .and_then(|mut skipped| skipped.write_all(line.as_bytes()))
        .unwrap_or_else(|error| panic!("cannot count a skip in {file}: {error}"));
}
