//! `saggar pair`: two agents that work on one task.

mod launch;
mod run;
mod show;
mod timeline;

use crate::app::{mailbox, pair};
use crate::cli::pair::{PairCommand, PairPlaceArgs, PairRunIdArgs, PairSendArgs};
use crate::cmd::print_text;
use crate::error::{Code, Error, Result};
use jiff::Timestamp;
use saggar_mailbox::runs::{Run, Runs};
use saggar_mailbox::{Appended, Draft, Limits, MessageType};
use std::path::{Path, PathBuf};

pub(super) fn run(command: PairCommand) -> Result<u8> {
    match command {
        PairCommand::Run(args) => run::run(*args),
        PairCommand::Resume(args) => run::resume(&args),
        PairCommand::Send(args) => send(args),
        PairCommand::Status(args) => show::status(&args),
        PairCommand::Log(args) => show::log(&args),
        PairCommand::Watch(args) => show::watch(&args),
        PairCommand::List(args) => show::list(&args),
        PairCommand::Export(args) => show::export(&args),
    }
}

fn root_directory(root: Option<&Path>) -> Result<PathBuf> {
    root.map_or_else(|| mailbox::default_root("--root DIR"), |root| Ok(root.to_owned()))
}

/// The directory of runs, and the path of the repository, that options name.
fn place_of(place: &PairPlaceArgs) -> Result<(PathBuf, PathBuf)> {
    let repo = place.repo.as_deref().unwrap_or(Path::new("."));
    Ok((root_directory(place.root.as_deref())?, resolve("--repo", repo)?))
}

fn open_run(id: &PairRunIdArgs) -> Result<Run> {
    let (root, repo) = place_of(&id.place)?;
    Ok(Runs::find_run(&root, &repo, id.run)?)
}

fn resolve(option: &str, path: &Path) -> Result<PathBuf> {
    path.canonicalize().map_err(|e| Error::new(Code::Invalid, format!("{option} {}: {e}", path.display())))
}

/// Sends a message of a person.
fn send(args: PairSendArgs) -> Result<u8> {
    let run = open_run(&args.id)?;
    // Only a pair run has a person.
    pair::settings(run.record())?;
    let draft = Draft { message_type: MessageType::Chat, to: args.to, content: args.text, signal: None };
    let (_, appended) = run.mailbox(Limits::default())?.send(pair::PERSON, draft, Timestamp::now())?;
    print_text(&match appended {
        Appended::Stored { id } => format!("Message sent: id={id}\n"),
        Appended::Duplicate { id } => format!("Message duplicate (already sent): id={id}\n"),
    })?;
    Ok(0)
}
