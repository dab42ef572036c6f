//! The sockets of the bridge, on a mio loop that the supervisor owns.
//!
//! [`UnixSocketListener`] creates the socket file, [`ConnectionHub`] carries bytes between its connections and a core
//! ([`super::core::Bridge`] or another [`HubCore`]), and [`Outbox`] buffers output.

mod hub;
mod hub_core;
mod listener;
mod outbox;
mod peer_filter;

pub use hub::{ConnectionHub, HUB_TOKENS};
pub use hub_core::{HubCore, HubStep};
pub use listener::{UnixSocketListener, UnpublishedListener, expand_socket_path};
pub use outbox::Outbox;
