//! The event loop of one sandbox: one thread, one [`mio::Poll`], everything that hangs on it.
//!
//! [`sandbox`] turns what pid 1 and the gates say into [`sandbox::Happening`]s; [`wrap`] and [`agent`] are
//! the two loops that act on them. [`beside`] is the loop of the bridge of a container, whose sandbox is another's;
//! what it shares with the agent's is in [`talk`].

pub mod agent;
pub mod api;
pub mod beside;
pub mod clock;
mod confine;
mod memory;
mod network;
mod pins;
mod privileged;
#[cfg_attr(not(test), deny(clippy::disallowed_methods))]
pub mod quarantine;
mod relay;
pub mod sandbox;
pub mod signals;
pub mod status;
mod talk;
pub mod terminal;
mod tree;
#[cfg_attr(not(test), deny(clippy::disallowed_methods))]
mod worker;
pub mod wrap;
