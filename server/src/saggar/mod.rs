//! The program `saggar`, and connections to the two sockets of its sessions.

mod bridge;
mod control;
mod policy_file;
mod program;

pub use bridge::BridgeConnection;
pub use control::call_control;
pub use policy_file::policy_with_variables;
pub use program::{Failure, Program, SessionRecord, SessionState};
