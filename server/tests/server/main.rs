//! The server from outside: a client of its HTTP, and what the kernel and the program `saggar` say of its sessions.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs, unreachable_pub)]

mod agents;
mod auth;
mod errors;
mod exec;
mod life;
mod messages;
mod restart;
mod sessions;
mod support;
