//! The wire protocol of the bridge, without I/O: bytes to lines, lines to commands, events to lines.
//!
//! One JSON object per line, UTF-8, in both directions (saggar-bridge(7)). Inbound lines are validated once, here.
//! Lines of the agent are never decoded and encoded again (BP-11).

mod command;
mod event;
mod frame;
pub mod json;
mod line;
pub mod permission;
pub mod sdk_dialect;
pub mod spool;
mod uuid;

pub use command::{
    BridgeCommand, CommandBody, CommandId, ExecCommand, InvalidCommand, QueryCommand, QueryField,
    QuestionResponse, ResumeCommand, SetCommand,
};
pub use event::{BridgeEvent, LogLevel};
pub use frame::{Frame, FrameError, OwnedEvent, decode, encode};
pub use line::{LINE_LIMIT, LineSplitter, SplitLine};
pub use uuid::uuid_v4;

/// Maximum nesting of a command's JSON. It equals serde_json's own limit, so that every later parser of the line
/// accepts the same depth (BP-15).
pub(crate) const DEPTH_LIMIT: usize = 128;
