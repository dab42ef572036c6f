//! The second dialect (seed 003): bare lines of the agent's own kind, and what a bridge does with them.
//!
//! | file | its one job |
//! |---|---|
//! | `inbound` | which of its lines a server said: answer, control request, message, in this order |
//! | `content` | what a message says, cleaned up |
//! | `filter` | which of the agent's lines a server is told |
//! | `seen` | the bounded sets that drop echoes and repetitions |
//! | `control` | the lines that the bridge itself says |
//! | `closing` | the one result at the end |
//!
//! All of it is pure; connections, turns and the agent are the core's.

mod closing;
mod content;
pub mod control;
mod filter;
mod inbound;
mod seen;

pub use closing::closing_result;
pub use content::clean;
pub use filter::{Outgoing, look};
pub use inbound::{Inbound, Request, User, fixes, read};
pub use seen::{LONGEST, SEEN, Seen};

#[cfg(test)]
mod tests;
