//! Questions of the agent and their answers (RB-28 to RB-35), pure: who is asked and who decides is the core's.
//!
//! | file | its one job |
//! |---|---|
//! | `ask` | a line of the agent that asks, or takes its question back |
//! | `answer` | an answer, which is never taken for permission unless it plainly is |
//! | `table` | the questions that are open, by either of their ids |
//! | `audit` | what is written of a decision |

mod answer;
mod ask;
mod audit;
mod table;

pub use answer::{Reading, Response, Verdict, read_body, read_response};
pub use ask::{Ask, Asked, HostAsk, Tool};
pub use audit::{Audit, By, Decision};
pub use table::{OPEN, Pending, Table};

#[cfg(test)]
mod tests;
