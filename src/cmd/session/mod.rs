//! `saggar session`: one file per command that prints; the others call [`crate::app::session`] directly.

mod create;
mod events;
mod exec;
mod files;
mod list;
mod logs;
mod prune;
mod show;

pub(super) use create::into_request as create_request;

use super::agent::console_format;
use super::prompt;
use crate::app::session;
use crate::cli::session::{ResumeArgs, SessionCommand, ShowArgs};
use crate::error::{Error, Result};

/// Runs the command.
pub(super) fn run(command: SessionCommand) -> Result<u8> {
    match command {
        SessionCommand::Create(args) => create::run(*args),
        SessionCommand::List(args) => list::run(&args),
        SessionCommand::Show(args) => show::run(&args),
        SessionCommand::Send(args) => {
            let prompt = prompt::read_required(args.prompt, args.prompt_file.as_deref())?;
            session::send(&args.id, &prompt, console_format(args.json))
        }
        SessionCommand::Exec(args) => exec::run(&args),
        SessionCommand::Pause(args) => session::pause(&args.id).map(|()| 0),
        SessionCommand::Resume(args) => resume(&args),
        SessionCommand::End(args) => session::end(&args.id, args.remove).map(|()| 0),
        SessionCommand::Remove(args) => {
            report_failures(args.ids.iter().map(|id| session::remove(id, args.force)))
        }
        SessionCommand::Prune(args) => prune::run(&args),
        SessionCommand::Logs(args) => logs::run(&args),
        SessionCommand::Events(args) => events::run(&args),
        SessionCommand::Files(command) => files::run(command),
    }
}

/// Does all, also after a failure, of which the first is reported.
fn report_failures(outcomes: impl Iterator<Item = Result<()>>) -> Result<u8> {
    let failed: Vec<Error> = outcomes.filter_map(Result::err).collect();
    let more = failed.len().saturating_sub(1);
    match failed.into_iter().next() {
        None => Ok(0),
        Some(error) if more == 0 => Err(error),
        Some(error) => {
            log::warn!("{more} more could not be removed");
            Err(error)
        }
    }
}

fn resume(args: &ResumeArgs) -> Result<u8> {
    session::resume(&args.id, create::recorded_request)?;
    match args.json {
        true => show::run(&ShowArgs { json: true, id: args.id.clone() }),
        false => Ok(0),
    }
}
