//! Questions of the agent and the responses to them (RB-28 to RB-35), without I/O. The core chooses the recipient of a
//! question and applies the policy.
//!
//! | file | contents |
//! |---|---|
//! | `question` | a line of the agent that asks a question or cancels one |
//! | `response` | a response; it counts as permission only if it is unambiguous |
//! | `question_table` | the open questions, by either of their ids |
//! | `audit` | the audit record of a decision |

mod audit;
mod question;
mod question_table;
mod response;

pub use audit::{AuditRecord, DecidedBy, PermissionDecision};
pub use question::{AgentControlLine, AgentQuestion, HostAccessQuestion, ToolCall};
pub use question_table::{MAX_OPEN_QUESTIONS, PendingQuestion, QuestionTable};
pub use response::{ParsedResponse, PermissionResponse, PermissionVerdict, parse_response, parse_verdict};

#[cfg(test)]
mod tests;
