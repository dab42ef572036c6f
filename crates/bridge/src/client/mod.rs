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
//! [`ClientCommand::encode`], and give every byte that was read to an [`EventDecoder`], which keeps at most one unfinished
//! line. With tokio, for example:
//!
//! ```text
//! let (mut reader, mut writer) = UnixStream::connect(socket).await?.into_split();
//! let (mut decoder, mut last, mut chunk) = (EventDecoder::default(), 0, [0; 65536]);
//! loop {
//!     select! {
//!         Some(command) = commands.recv() => writer.write_all(&command.encode()).await?,
//!         count = reader.read(&mut chunk) => {
//!             let mut bytes = match count? { 0 => break, count => &chunk[..count] };
//!             while let Some(event) = decoder.next(&mut bytes) {
//!                 let event = event?;                       // the first one is Ready
//!                 last = event.number().unwrap_or(last);    // for `replay` on the next connection
//!                 events.send(event).await;
//!             }
//!         }
//!     }
//! }
//! ```
//!
//! A client that reads nothing for 60 seconds is disconnected (saggar-bridge(7)), so in a program that writes long commands
//! the writer is a task of its own.
//!
//! A connection can be lost at any time. A client that has sent [`ClientCommand::replay`] knows the number of the last event
//! that it has received, and continues after it on a new connection: [`BridgeClient::connect_after`].
//!
//! The control socket has a client of its own, [`crate::control::client::ControlClient`].

mod command;
mod connection;
mod event;

pub use command::ClientCommand;
pub use connection::{BridgeClient, CommandSender};
pub use event::{CommandOutput, EventBody, EventDecoder, ReceivedEvent};
