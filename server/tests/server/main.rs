//! Integration tests of the server. They use its HTTP API, and check sessions with `/proc` and the program `saggar`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs, unreachable_pub)]

mod agents;
mod attachments;
mod auth;
mod errors;
mod exec;
mod files;
mod forks;
mod lifecycle;
mod locks;
mod manual;
mod messages;
mod output;
mod permissions;
mod postgres;
mod queue;
mod queue_restart;
mod restart;
mod sessions;
mod stream;
mod support;
