//! The event loop of one sandbox: one thread, one [`mio::Poll`], everything that hangs on it.
//!
//! [`sandbox`] turns what pid 1 and the gates say into [`sandbox::Happening`]s; [`wrap`] and [`agent`] are
//! the two loops that act on them.

pub mod agent;
pub mod beside;
mod pins;
pub mod quarantine;
pub mod sandbox;
pub mod signals;
pub mod status;
pub mod terminal;
mod tree;
pub mod wrap;
