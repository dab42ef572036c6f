//! `saggar mcp`: MCP servers on standard input and output.

use crate::cli::mcp::{McpCommand, McpMailboxArgs};
use crate::error::{Code, Error, Result};
use crate::mcp::mailbox::serve_mailbox;
use std::path::{Path, PathBuf};

/// The default directory of runs, below the home directory.
const ROOT: &str = ".agentpair";

pub(super) fn run(command: McpCommand) -> Result<u8> {
    match command {
        McpCommand::Mailbox(args) => mailbox(&args),
    }
}

fn mailbox(args: &McpMailboxArgs) -> Result<u8> {
    let root = match &args.root {
        Some(root) => root.clone(),
        None => home()?.join(ROOT),
    };
    let repo = args.repo.as_deref().unwrap_or(Path::new("."));
    let repo = repo
        .canonicalize()
        .map_err(|e| Error::new(Code::Invalid, format!("--repo {}: {e}", repo.display())))?;
    serve_mailbox(&root, &repo, args.run, &args.name)
}

fn home() -> Result<PathBuf> {
    std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from).ok_or_else(|| {
        Error::new(Code::Invalid, "HOME is not set").hint("name the directory of the runs with --root")
    })
}
