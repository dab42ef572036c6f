//! A client of the bridge: a server's end of a connection, in the command dialect.
//!
//! [`BridgeClient`] blocks, and needs no runtime:
//!
//! ```no_run
//! use saggar_bridge::client::{BridgeClient, ClientCommand};
//! # fn main() -> saggar_sys::error::Result<()> {
//! let mut client = BridgeClient::connect("/run/hello.sock".as_ref())?;
//! client.send(&ClientCommand::query("hi", "s1"))?;
//! while let Some(event) = client.receive()? {
//!     if let Some(message) = event.message() {
//!         println!("{message}");
//!     }
//!     if event.is_terminal() {
//!         break;
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! In a program with a loop or a runtime of its own, the two halves without I/O do the same on its sockets: write
//! [`ClientCommand::encode`], and give every byte that was read to an [`EventDecoder`]. The decoder keeps at most one
//! unfinished line. A client that reads nothing for 60 seconds is disconnected (saggar-bridge(7)), so read also while a
//! command is written.
//!
//! A connection can be lost at any time. A client that has sent [`ClientCommand::replay`] knows the number of the last event
//! that it has received, and continues after it on a new connection: [`BridgeClient::connect_after`].
//!
//! The control socket has a client of its own, [`crate::control::client::ControlClient`].

mod command;
mod connection;
mod event;

pub use command::ClientCommand;
pub use connection::BridgeClient;
pub use event::{CommandOutput, EventBody, EventDecoder, ReceivedEvent};
