//! Conversion of agent messages to server-sent events and to database rows. The modules `turn` and
//! `session` receive the messages; the others do no I/O, except that `permission_frames` asks for open requests.

mod derive;
mod event_frames;
mod frame;
mod frame_sender;
mod mcp_status;
mod parse;
mod permission_frames;
mod rows;
mod session;
mod stream_event;
mod turn;
mod turn_watch;
mod usage;

pub use derive::derive_frames;
pub use frame::{Frame, FrameId};
pub use frame_sender::FrameReceiver;
pub(crate) use mcp_status::configured_servers;
pub use parse::parse_message;
pub use rows::database_rows;
pub use session::SessionStream;
pub use stream_event::{StreamEvent, TurnSummary};
pub(crate) use turn::event_turn_id;
pub use turn::{TurnStream, new_turn_id};
pub use turn_watch::{TurnConclusion, TurnWatch};
pub use usage::usage_rows;
