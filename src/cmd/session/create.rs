//! `saggar session create`.

use super::detach;
use super::show;
use crate::cli::AgentArgs;
use crate::cli::session::{CreateArgs, CreateOnly};
use crate::cmd::{say, say_exactly};
use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::session::record::{Options, Record};
use crate::state;
use clap::Parser;
use std::ffi::OsString;

/// How many words of the command line stand before those that are kept: the program, `session`, `create`.
const BEFORE: usize = 3;

pub(super) fn run(mut args: CreateArgs) -> Result<u8> {
    if args.sandbox.status_fd.is_some() {
        return Err(Error::new(Code::Usage, "--status-fd: a session keeps no descriptor of its creator")
            .hint("subscribe to events on the control socket (saggar-control(7))"));
    }
    if args.sandbox.api_key_fd.is_some() {
        return Err(Error::new(Code::Usage, "--api-key-fd: a session keeps no descriptor of its creator")
            .hint("name a file with --api-key-file: it is read again at each start"));
    }
    let id = match &args.session {
        Some(session) => SandboxId::parse(session)?,
        None => SandboxId::random()?,
    };
    if state::sessions_path()?.join(id.as_str()).join("lock").symlink_metadata().is_ok() {
        return Err(Error::new(Code::Exists, format!("session {id} exists"))
            .hint(format!("saggar session resume {id} goes on with it; or choose another name")));
    }
    args.session = Some(id.to_string());
    let options = Options { words: words()?, directory: current_directory()? };
    let json = args.json;
    detach::start(of_agent(args), options)?;
    let (_, directory, record) = Record::find(id.as_str())?;
    match json {
        true => say_exactly(&format!("{}\n", show::as_json(&record, &directory)))?,
        false => say(&format!("{id}\n"))?,
    }
    Ok(0)
}

/// The arguments that a session was created with.
///
/// # Errors
/// [`Code::State`] when there are none, [`Code::Invalid`] when this version does not understand them.
pub(super) fn remembered(record: &Record) -> Result<(AgentArgs, Options)> {
    let id = &record.id;
    let options = record.options.clone().ok_or_else(|| {
        let message = format!("session {id} was not made by saggar session create");
        Error::new(Code::State, message).hint(format!("saggar agent DIR --session {id} --resume"))
    })?;
    let words = std::iter::once("create".to_owned()).chain(options.words.iter().cloned());
    let only = CreateOnly::try_parse_from(words)
        .map_err(|e| Error::new(Code::Invalid, format!("the options of session {id}: {}", e.kind())))?;
    let mut args = of_agent(only.create);
    // Each start has a sandbox of its own, so that what is left of the last one is never taken for it.
    args.sandbox.id = None;
    args.session = Some(id.clone());
    Ok((args, options))
}

fn of_agent(args: CreateArgs) -> AgentArgs {
    AgentArgs {
        sandbox: args.sandbox,
        agent: args.agent,
        ready_fd: None,
        session: args.session,
        resume: false,
        overrides: args.overrides,
        spool: true,
        json: false,
        dir: Some(args.dir),
        prompt: None,
    }
}

/// The words of the command line that make the session what it is.
fn words() -> Result<Vec<String>> {
    let text = |word: OsString| {
        word.into_string().map_err(|word| {
            let message =
                format!("{}: a session keeps its options as text, and this is not UTF-8", word.display());
            Error::new(Code::Invalid, message).hint("give the path another name, or a link to it")
        })
    };
    std::env::args_os().skip(BEFORE).map(text).collect()
}

fn current_directory() -> Result<std::path::PathBuf> {
    let directory = std::env::current_dir().map_err(|e| Error::system("find the current directory", e))?;
    if directory.to_str().is_none() {
        let message = format!("the current directory {} is not UTF-8", directory.display());
        return Err(Error::new(Code::Invalid, message).hint("call saggar in another one"));
    }
    Ok(directory)
}
