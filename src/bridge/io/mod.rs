//! The sockets of the bridge, on a mio loop that the supervisor owns.
//!
//! [`Listener`] makes the socket file safely, [`Hub`] carries bytes between its connections and a core
//! ([`super::core::Bridge`], or any other [`Core`]), [`Outbox`] is what waits to be written.

mod core;
mod hub;
mod listener;
mod outbox;
mod peer;

pub use core::{Core, Step};
pub use hub::{Hub, TOKENS};
pub use listener::{Listener, Unpublished, expand};
pub use outbox::Outbox;

#[cfg(test)]
mod tests;
