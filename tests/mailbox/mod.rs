//! The mailbox between agents, by the tools that they call (saggar-mailbox(7); AM-01 to AM-22). Its files and rules have
//! tests in `crates/mailbox`.

pub(crate) mod clients;
mod hostile;
mod inside;
mod killed;
mod large;
mod mcp_client;
mod policy;
mod process;
pub(crate) mod tools;
