//! The bridge: carries the agent's conversation between the sandbox and programs on the host. And the control socket, by
//! which a server manages a sandbox.
//!
//! The supervisor of a sandbox runs both on its loop; clients use the same types. The crate starts no process, and knows
//! nothing of how a sandbox is made.
//!
//! | module | contents |
//! |---|---|
//! | [`proto`] | lines, commands and events of the wire (pure) |
//! | [`adapter`] | the protocol of each type of agent (pure) |
//! | [`core`] | connections, queue, turn, agent: bytes and time in, actions out (pure) |
//! | [`io`] | the listening socket and its connections on a mio loop |
//! | [`control`] | the control socket: JSON-RPC 2.0 |
//! | [`client`] | a client of the bridge, blocking, and its halves without I/O |
//! | [`content`] | bytes of files in JSON (pure) |

#![forbid(unsafe_code)]

pub mod adapter;
pub mod client;
pub mod content;
pub mod control;
pub mod core;
pub mod io;
pub mod proto;
