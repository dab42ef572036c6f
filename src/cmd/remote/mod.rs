//! `saggar remote`: the agents and sessions of a server over HTTP (`saggar_remote`). One file per group of commands.

mod agents;
mod chat;
mod exec;
mod files;
mod hidden_input;
mod interrupt;
mod permissions;
mod server;
mod sessions;
mod turn;

use crate::cli::remote::{RemoteArgs, RemoteCommand};
use crate::error::{Code, Error, Result};
use crate::spec::policy::EnvArgument;
use crate::text::DisplayEscaped;
use serde_json::{Map, Value};

/// Runs the command.
pub(super) fn run(args: RemoteArgs) -> Result<u8> {
    let server = &args.server;
    match args.command {
        RemoteCommand::Login(args) => server::login(server, &args),
        RemoteCommand::Logout => server::logout(),
        RemoteCommand::Status(args) => server::status(&server::connect(server)?, &args),
        RemoteCommand::Deploy(args) => agents::deploy(&server::connect(server)?, args),
        RemoteCommand::Agent(args) => agents::run(&server::connect(server)?, &args.command),
        RemoteCommand::Session(args) => sessions::run(server::connect(server)?, args.command),
        RemoteCommand::Chat(args) => chat::run(server::connect(server)?, args),
        RemoteCommand::Exec(args) => exec::run(&server::connect(server)?, &args),
        RemoteCommand::Files(args) => files::run(&server::connect(server)?, &args.command),
        RemoteCommand::Permission(args) => permissions::run(&server::connect(server)?, &args.command),
    }
}

/// The variables of `--env`, as an object of the API. A name that the caller does not have is left out.
fn variables(arguments: Vec<EnvArgument>) -> Map<String, Value> {
    let value = |argument: EnvArgument| {
        let name = argument.name.as_str().to_owned();
        let value = argument.value.or_else(|| std::env::var(&name).ok())?;
        Some((name, Value::from(value)))
    };
    arguments.into_iter().filter_map(value).collect()
}

/// The objects of a list in a response.
fn list<'a>(response: &'a Value, field: &str) -> &'a [Value] {
    response[field].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// One JSON object on a line.
fn json_line(value: &Value) -> String {
    format!("{value}\n")
}

/// The text of a field, empty if it has none, for another request.
fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// The text of a field on one line, for a report: servers and agents choose it.
fn shown(value: &Value, field: &str) -> String {
    text(value, field).escaped().to_string()
}

/// An id of the server, which may be printed and pasted into a shell.
///
/// # Errors
/// [`Code::Invalid`] for other characters than those of a word.
fn id<'a>(value: &'a Value, field: &str) -> Result<&'a str> {
    let id = text(value, field);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match !id.is_empty() && id.chars().all(is_plain) {
        true => Ok(id),
        false => Err(Error::new(Code::Invalid, format!("the server sent an invalid {field}"))),
    }
}
