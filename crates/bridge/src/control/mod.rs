//! The control socket of a sandbox (saggar-control(7)): JSON-RPC 2.0, one object per line, for a server that manages
//! many sandboxes.
//!
//! | module | contents |
//! |---|---|
//! | [`rpc`] | requests, responses and errors as lines (pure) |
//! | [`method`] | the methods, with checked parameters (pure) |
//! | [`files`] | the `files.*` methods (pure) |
//! | [`server`] | the connected clients: greeting, subscriptions, back-pressure (pure) |
//! | [`journal`] | the newest log entries, numbered (pure) |
//! | [`client`] | a client, for the commands of saggar itself |
//!
//! [`crate::io::ConnectionHub`] owns the socket itself.

pub mod client;
pub mod files;
pub mod journal;
pub mod method;
pub mod rpc;
pub mod server;
