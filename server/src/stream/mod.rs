//! Conversion of agent messages to server-sent events and to database rows. Apart from `turn`, the modules do no I/O.

mod derive;
mod frame;
mod parse;
mod rows;
mod turn;
mod usage;

pub use derive::derive_frames;
pub use frame::{Frame, FrameId};
pub use parse::parse_message;
pub use rows::database_rows;
pub(crate) use turn::event_turn_id;
pub use turn::{TurnStream, new_turn_id};
pub use usage::usage_rows;
