//! The control socket of a sandbox (saggar-control(7)): JSON-RPC 2.0, one object a line, for a server that looks
//! after many.
//!
//! | module | what it is |
//! |---|---|
//! | [`rpc`] | calls, answers and failures as lines (pure) |
//! | [`method`] | what may be called, with checked parameters (pure) |
//! | [`files`] | those of them that ask for files of the workspace (pure) |
//! | [`clients`] | who is connected: greeting, subscriptions, back-pressure (pure) |
//! | [`journal`] | the last log entries, numbered (pure) |
//! | [`caller`] | the other end, for the commands of saggar itself |
//!
//! The socket itself is carried by [`crate::bridge::io::Hub`].

pub mod caller;
pub mod clients;
pub mod files;
pub mod journal;
pub mod method;
pub mod rpc;
