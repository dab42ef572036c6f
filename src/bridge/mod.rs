//! The bridge: the agent's conversation, carried across the wall of the sandbox.
//!
//! [`proto`] and [`adapter`] are pure (bytes and time in, events and bytes out).

pub mod adapter;
pub mod proto;
