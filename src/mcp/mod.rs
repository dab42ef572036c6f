//! MCP servers (Model Context Protocol). Each is a process of its own, without privileges, that an agent, an editor or the
//! supervisor of a sandbox starts. The official SDK carries the protocol; the modules here have the tools.

mod arguments;
mod confine;
pub(crate) mod control;
pub mod mailbox;
mod question;
mod server;
mod transport;
mod turns;

pub(crate) use server::{ToolOutput, ToolReply, ToolSet, serve, serve_sockets};
