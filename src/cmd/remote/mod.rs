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
use crate::error::Result;
use crate::spec::policy::EnvArgument;
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

/// One JSON object on a line.
fn json_line(value: &Value) -> String {
    format!("{value}\n")
}

/// The text of a field, empty if it has none.
fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}
