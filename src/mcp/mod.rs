//! MCP servers (Model Context Protocol) on standard input and output. Each is a process of its own, without privileges,
//! that an agent or an editor starts. The official SDK carries the protocol; the modules here have the tools.

mod arguments;
pub mod mailbox;
mod server;

pub(crate) use server::{ToolOutput, ToolSet, serve};
