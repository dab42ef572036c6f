//! Integration tests of the server. They use its HTTP API, and check sessions with `/proc` and the program `saggar`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs, unreachable_pub)]

mod agent_files;
mod agent_versions;
mod agents;
mod api_keys;
mod attachments;
mod auth;
mod backup;
mod capacity;
mod credentials;
mod errors;
mod exec;
mod files;
mod forks;
mod lifecycle;
mod locks;
mod manual;
mod messages;
mod network;
mod open_files;
mod openapi;
mod output;
mod own_python_client;
mod page;
mod page_in_chromium;
mod permissions;
mod postgres;
mod python_client;
mod quarantine;
mod queue;
mod queue_restart;
mod random_kills;
mod rate_limit;
mod remote;
mod repeated;
mod restart;
mod service_manager;
mod sessions;
mod stream;
mod support;
mod tls;
mod traces;
mod typescript_client;
mod usage;
mod warm_pool;
