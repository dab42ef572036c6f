//! `saggar session create`: creates a session.

use super::show;
use crate::app::agent::{AgentRequest, EventImport};
use crate::app::session;
use crate::cli::session::{SessionCreateArgs, SessionCreateParser};
use crate::cmd::agent::sandbox_options;
use crate::cmd::{print_raw, print_text};
use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::session::record::{SessionOptions, SessionRecord};
use clap::Parser;
use std::ffi::OsString;
use std::path::PathBuf;

/// Number of words of the command line that are not recorded: the program, `session`, `create`.
const SKIPPED_WORDS: usize = 3;

pub(super) fn run(args: SessionCreateArgs) -> Result<u8> {
    if args.sandbox.status_fd.is_some() {
        return Err(Error::new(Code::Usage, "--status-fd: a session keeps no descriptor of its creator")
            .hint("subscribe to events on the control socket (saggar-control(7))"));
    }
    if args.sandbox.api_key_fd.is_some() {
        return Err(Error::new(Code::Usage, "--api-key-fd: a session keeps no descriptor of its creator")
            .hint("name a file with --api-key-file: it is read again at each start"));
    }
    let options = SessionOptions { arguments: recorded_words(), directory: current_directory()? };
    let (json, branch) = (args.json, args.worktree.clone());
    let (directory, record) = session::create(into_request(args), branch.as_deref(), options)?;
    match json {
        true => print_raw(&format!("{}\n", show::as_json(&record, &directory)))?,
        false => print_text(&format!("{}\n", record.id))?,
    }
    Ok(0)
}

/// Returns the request that a session was created with.
///
/// # Errors
/// [`Code::State`] if there is none, [`Code::Invalid`] if this version cannot parse it.
pub(super) fn recorded_request(record: &SessionRecord) -> Result<(AgentRequest, SessionOptions)> {
    let id = &record.id;
    let options = record.options.clone().ok_or_else(|| {
        let message = format!("session {id} was not made by saggar session create");
        Error::new(Code::State, message).hint(format!("saggar agent DIR --session {id} --resume"))
    })?;
    let words = std::iter::once(OsString::from("create")).chain(options.arguments.iter().cloned());
    let only = SessionCreateParser::try_parse_from(words)
        .map_err(|e| Error::new(Code::Invalid, format!("the options of session {id}: {}", e.kind())))?;
    let has_worktree = only.create.worktree.is_some();
    let mut request = into_request(only.create);
    if has_worktree {
        request.sandbox.workspace = Some(session::worktree_path(&SandboxId::parse(id)?)?);
    }
    // Each start has a new sandbox, so that remains of the last one are never mistaken for it.
    request.sandbox.id = None;
    // The session has what the snapshot held.
    request.snapshot = None;
    request.events = None;
    request.session = Some(id.clone());
    Ok((request, options))
}

pub(in crate::cmd) fn into_request(args: SessionCreateArgs) -> AgentRequest {
    AgentRequest {
        sandbox: sandbox_options(args.sandbox.into(), args.agent),
        folder: args.dir,
        session: args.session,
        snapshot: args.from,
        events: args.events.map(|file| EventImport { file, next: args.next_event }),
        overrides: args.overrides.into(),
        spool: true,
        ..AgentRequest::default()
    }
}

/// Returns the words of the command line that define the session.
fn recorded_words() -> Vec<OsString> {
    std::env::args_os().skip(SKIPPED_WORDS).collect()
}

fn current_directory() -> Result<PathBuf> {
    std::env::current_dir().map_err(|e| Error::system("find the current directory", e))
}
