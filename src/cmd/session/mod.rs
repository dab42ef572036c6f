//! `saggar session`: one file for each thing to do.

mod create;
mod detach;
mod end;
mod files;
mod list;
mod logs;
mod pause;
mod remove;
mod resume;
mod send;
mod show;

use crate::cli::session::SessionCommand;
use crate::control::caller::Caller;
use crate::error::{Code, Error, Result};
use crate::session::record::Record;
use std::path::Path;

/// Runs the command.
pub(super) fn run(command: SessionCommand) -> Result<u8> {
    match command {
        SessionCommand::Create(args) => create::run(*args),
        SessionCommand::List(args) => list::run(&args),
        SessionCommand::Show(args) => show::run(&args),
        SessionCommand::Send(args) => send::run(&args),
        SessionCommand::Pause(args) => pause::run(&args.id),
        SessionCommand::Resume(args) => resume::run(&args.id),
        SessionCommand::End(args) => end::run(&args),
        SessionCommand::Remove(args) => remove::run(&args.id),
        SessionCommand::Logs(args) => logs::run(&args),
        SessionCommand::Files(command) => files::run(command),
    }
}

/// The control socket of a session that is served.
///
/// # Errors
/// [`Code::State`] when nobody serves it; as [`Caller::connect`].
fn control(record: &Record) -> Result<Caller> {
    let socket = record.control_socket.as_ref().filter(|_| record.is_served());
    let socket = socket.ok_or_else(|| not_served(record))?;
    Caller::connect(Path::new(socket))
}

/// Nobody serves the session.
fn not_served(record: &Record) -> Error {
    let id = &record.id;
    match record.state.after(crate::session::states::Move::Restart) {
        Err(illegal) => illegal.error(id),
        Ok(_) => Error::new(Code::State, format!("session {id} is {}: nobody serves it", record.state))
            .hint(format!("saggar session resume {id}")),
    }
}
