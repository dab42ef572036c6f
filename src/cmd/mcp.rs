//! `saggar mcp`: MCP servers on standard input and output.

use crate::app::mailbox;
use crate::cli::mcp::{McpCommand, McpMailboxArgs};
use crate::error::{Code, Error, Result};
use crate::mcp::mailbox::{carry_conversation, is_inside, serve_mailbox};
use std::path::Path;

pub(super) fn run(command: McpCommand) -> Result<u8> {
    match command {
        McpCommand::Mailbox(args) => serve(&args),
    }
}

fn serve(args: &McpMailboxArgs) -> Result<u8> {
    let (Some(run), Some(name)) = (args.run, &args.name) else {
        if is_inside() {
            return carry_conversation();
        }
        return Err(Error::new(Code::Usage, "there is no mailbox here: this is no sandbox that has one")
            .hint("use --run RUN --as NAME; a sandbox gets a mailbox by --mailbox RUN --as NAME"));
    };
    let root = match &args.root {
        Some(root) => root.clone(),
        None => mailbox::default_root("--root DIR")?,
    };
    let repo = args.repo.as_deref().unwrap_or(Path::new("."));
    let repo = repo
        .canonicalize()
        .map_err(|e| Error::new(Code::Invalid, format!("--repo {}: {e}", repo.display())))?;
    serve_mailbox(&root, &repo, run, name)
}
