//! The SDK dialect (saggar-bridge(7), THE SECOND DIALECT): bare lines in the agent's own format, and how the bridge
//! handles them.
//!
//! | file | contents |
//! |---|---|
//! | `sdk_message` | classifies a server's line: response, control request, message, in this order |
//! | `content` | cleans the content of a message |
//! | `filter` | selects the agent's lines that a server receives |
//! | `seen_uuids` | the bounded sets that drop echoes and repetitions |
//! | `control` | the lines that the bridge itself sends |
//! | `closing_result` | the final result of a session |
//!
//! All of it is pure. The core owns connections, turns and the agent.

mod closing_result;
mod content;
pub mod control;
mod filter;
mod sdk_message;
mod seen_uuids;

pub use closing_result::closing_result;
pub use content::clean_content;
pub use filter::{ClassifiedLine, classify_line};
pub use sdk_message::{SdkControlRequest, SdkMessage, UserMessage, parse_sdk_message, selects_sdk_dialect};
pub use seen_uuids::{DEFAULT_REMEMBERED, MAX_UUID_LENGTH, SeenUuids};

#[cfg(test)]
mod tests;
