//! The bridge: carries the agent's conversation between the sandbox and programs on the host.
//!
//! | module | contents |
//! |---|---|
//! | [`proto`] | lines, commands and events of the wire (pure) |
//! | [`adapter`] | the protocol of each type of agent (pure) |
//! | [`core`] | connections, queue, turn, agent: bytes and time in, actions out (pure) |
//! | [`io`] | the listening socket and its connections on a mio loop |

pub mod adapter;
pub mod core;
pub mod io;
pub mod proto;
