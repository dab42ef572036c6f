//! The bridge: the agent's conversation, carried across the wall of the sandbox.
//!
//! | module | what it is |
//! |---|---|
//! | [`proto`] | lines, commands and events of the wire (pure) |
//! | [`adapter`] | what each kind of agent speaks (pure) |
//! | [`core`] | connections, queue, turn, agent: bytes and time in, actions out (pure) |
//! | [`io`] | the listening socket and its connections on a mio loop |

pub mod adapter;
pub mod core;
pub mod io;
pub mod proto;
