//! MCP servers (Model Context Protocol). Each is a process of its own, without privileges, that an agent, an editor or the
//! supervisor of a sandbox starts. The official SDK carries the protocol; the modules here have the tools.

mod arguments;
mod confine;
pub mod mailbox;
mod server;

pub(crate) use server::{ToolOutput, ToolSet, serve, serve_sockets};
