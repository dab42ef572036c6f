//! What the agent says, as server-sent events and as rows of the database. Both are made of the same messages by rules
//! without I/O.

mod derive;
mod frame;
mod rows;
mod turn;

pub use derive::frames_of;
pub use frame::{Frame, FrameId};
pub use rows::rows_of;
pub(crate) use turn::turn_of;
pub use turn::{TurnStream, turn_id};
