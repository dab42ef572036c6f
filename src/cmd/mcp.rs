//! `saggar mcp`: MCP servers on standard input and output.

use crate::app::{mailbox, mcp, prepare};
use crate::cli::mcp::{McpCommand, McpControlArgs, McpMailboxArgs};
use crate::error::{Code, Error, Result};
use crate::mcp::mailbox::{carry_conversation, is_inside, serve_mailbox};
use crate::spec::policy::{PolicyOptions, SessionPattern};
use std::path::Path;

pub(super) fn run(command: McpCommand) -> Result<u8> {
    match command {
        McpCommand::Mailbox(args) => serve_mailbox_of(&args),
        McpCommand::Control(args) => serve_control(args),
    }
}

fn serve_control(args: McpControlArgs) -> Result<u8> {
    let options = PolicyOptions { mcp_sessions: args.sessions, ..PolicyOptions::default() };
    let sessions = prepare::load_operator_policy(args.policy, options)?.mcp_sessions;
    if sessions.is_empty() {
        return Err(Error::new(Code::Usage, "no policy names a session")
            .hint("use --session NAME, or set mcp.sessions in your policy"));
    }
    let patterns: Vec<SessionPattern> = sessions.into_iter().map(|setting| setting.value).collect();
    mcp::serve_sessions(&patterns)
}

fn serve_mailbox_of(args: &McpMailboxArgs) -> Result<u8> {
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
