//! The event loop of one sandbox: one thread, one [`mio::Poll`], everything that hangs on it.
//!
//! [`sandbox`] turns what pid 1 and the gates say into [`sandbox::Happening`]s; [`wrap`] and [`agent`] are
//! the two loops that act on them. [`beside`] is the loop of the bridge of a container, whose sandbox is another's;
//! what it shares with the agent's is in [`talk`].

pub mod agent;
pub mod api;
pub mod beside;
pub mod clock;
mod memory;
mod network;
mod pins;
pub mod quarantine;
pub mod sandbox;
pub mod signals;
pub mod status;
mod talk;
pub mod terminal;
mod tree;
pub mod wrap;
