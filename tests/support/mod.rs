//! What the tests build on: who runs, where, how long to wait, and how to talk to a bridge.
//!
//! Nothing here sleeps to wait for something: waits are blocking reads, `poll(2)`, pidfds and inotify, each
//! with a [`deadline::Deadline`], and a deadline that passes says what was heard until then.

#[macro_use]
pub(crate) mod skip;
pub(crate) mod binary;
pub(crate) mod bridge_client;
pub(crate) mod caller;
pub(crate) mod deadline;
pub(crate) mod lines;
pub(crate) mod mcp_client;
pub(crate) mod network;
pub(crate) mod own_mounts;
pub(crate) mod place;
pub(crate) mod process;
pub(crate) mod source;
pub(crate) mod wait;

mod tests;

/// How often a test repeats what it proves: `short` times, and `long` with SAGGAR_TEST_LONG=1.
pub(crate) fn rounds(short: usize, long: usize) -> usize {
    if std::env::var_os("SAGGAR_TEST_LONG").is_some_and(|wanted| wanted == "1") { long } else { short }
}
