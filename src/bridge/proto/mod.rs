//! The wire protocol of the bridge, without any I/O: bytes to lines, lines to commands, events to lines.
//!
//! One JSON object a line, UTF-8, both ways (seed 000). Inbound lines are checked once, here; what the agent
//! said is never decoded and encoded again (seed 002).

mod command;
mod event;
mod frame;
pub mod json;
mod line;
pub mod permission;
pub mod second;
pub mod spool;
mod uuid;

pub use command::{Answer, BadLine, Command, Exec, Field, Id, Query, Request, Resume, Set};
pub use event::{Event, LogLevel};
pub use frame::{Frame, FrameError, OwnedEvent, decode, encode};
pub use line::{LINE_LIMIT, LineSplitter, Split};
pub use uuid::uuid_v4;

/// The deepest nesting of a command's JSON. It is what serde_json itself reads, so that every reader behind
/// this one can (BP-15).
pub const DEPTH_LIMIT: usize = 128;
