//! The one integration binary: every test that needs a process, a socket or a kernel is a module here.
//!
//! `support` is what they build on; a test that this machine cannot run calls `skip!`, which is counted and
//! loud, and a failure when `SAGGAR_TEST_ALL=1`.

// Everything in this crate is a test, and a test may panic; clippy only knows that of `#[test]` functions.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[macro_use]
mod support;
mod bridge;
mod cgroup;
mod changes;
mod control;
mod embed;
mod introspection;
mod isolation;
mod kill;
mod layers;
mod mailbox;
mod manual;
mod mcp;
mod mock_api;
mod network;
mod oci;
mod pair;
mod plan;
mod processes;
mod provenance;
mod quarantine;
mod races;
mod real_agent;
mod requirements;
mod session;
mod terminal;
