//! What a sandbox is to be, whoever asked for it.
//!
//! [`SandboxSpec`] is the one model: the agent's front door ([`agent`], from a [`policy`]) and the OCI front
//! door lower to it, and nothing after it knows where it came from. Nothing here does I/O, but for
//! [`policy::load`].

pub mod agent;
pub mod policy;
pub mod protect;
mod sandbox;

pub use sandbox::*;
