//! The commands: one file for each family. Only here anything is printed to standard output.

mod agent;
mod api;
mod completions;
mod disk;
mod doctor;
mod explain;
mod find;
mod folder_files;
mod metrics;
mod oci;
mod overrides;
mod policy;
mod prepare;
mod prove;
mod quarantine;
mod reach;
mod scripts;
mod session;
mod sockets;
mod start;
mod stats;
mod wrap;

use crate::cli::oci::Global;
use crate::cli::session::SessionCommand;
use crate::cli::{Cli, Command, LogFormat, VERSION, WrapArgs, WrapOnly};
use crate::error::{Code, Error};
use crate::launch::guard;
use crate::state::counters::{self, Kind};
use crate::supervise::quarantine::sweep_unfinished;
use clap::{CommandFactory, Parser};
use std::ffi::OsString;

/// The first argument of saggar when it executes itself as the supervisor beside a container.
pub const BESIDE: &str = "__beside";

/// That supervisor: the root of the containers' state and the container's id follow, and the runtime waits on
/// standard input.
pub fn beside(args: &[OsString]) -> u8 {
    oci::beside(args)
}

/// The sandbox of another program around the probe of [`crate::prove`].
pub fn probe_in(words: &[OsString]) -> u8 {
    prove::around(words)
}

/// Runs the command line; the exit status of saggar.
pub fn main(args: &[OsString]) -> u8 {
    // Container engines ask for it before they do anything else.
    if let [_, only] = args
        && ["--version", "-V", "-v"].iter().any(|flag| only == flag)
    {
        return match say(&format!("saggar {VERSION}\n")) {
            Ok(()) => 0,
            Err(_) => 1,
        };
    }
    let command = match parse(args) {
        Ok(command) => command,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { Code::Usage.exit_status() } else { 0 };
        }
    };
    let format = log_format(&command);
    // The OCI verbs have a log of their own.
    if !matches!(command, Command::Oci(_)) {
        crate::log::install(format == LogFormat::Json);
    }
    let starts = matches!(command, Command::Agent(_) | Command::Wrap(_));
    let done = run(command);
    crate::log::finish();
    match done {
        Ok(status) => status,
        Err(error) => {
            if starts {
                counters::refused(Kind::Sandbox, &error);
            }
            report(&error, format);
            error.code().exit_status()
        }
    }
}

/// The command line. What the short way for `wrap` does not take, help and errors among it, goes the long way;
/// OCI verbs have a way of their own.
fn parse(args: &[OsString]) -> Result<Command, clap::Error> {
    if let Some(parsed) = crate::cli::oci::parse(args) {
        return parsed.map(Command::Oci);
    }
    if args.get(1).is_some_and(|name| name == "wrap") {
        let short = WrapArgs::without_options(&args[2..]);
        let wrap = short.or_else(|| WrapOnly::try_parse_from(&args[1..]).ok().map(|only| only.wrap));
        if let Some(wrap) = wrap {
            return Ok(Command::Wrap(Box::new(wrap)));
        }
    }
    let cli = Cli::try_parse_from(args)?;
    if cli.oci != Global::default() && !matches!(cli.command, Command::Oci(_)) {
        let error = "the options before the command are those of the OCI verbs (create, start, ...)";
        return Err(Cli::command().error(clap::error::ErrorKind::ArgumentConflict, error));
    }
    Ok(cli.command)
}

fn run(command: Command) -> Result<u8, Error> {
    match command {
        Command::Agent(args) => agent::run(*args),
        Command::Wrap(args) => wrap::run(*args),
        Command::Explain(args) => explain::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Policy(args) => policy::run(&args),
        Command::Completions { shell } => completions::run(shell),
        Command::Stats(args) => stats::run(&args),
        Command::Metrics(args) => metrics::run(&args),
        Command::Session(args) => session::run(args.command),
        Command::Quarantine(args) => quarantine::run(&args.command),
        Command::Gc => gc(),
        Command::Oci(command) => Ok(oci::main(command)),
    }
}

/// `saggar gc`: what dead sandboxes left.
fn gc() -> Result<u8, Error> {
    let removed = guard::sweep()?;
    let looked = sweep_unfinished(None);
    let looks = if looked > 0 { format!(", {looked} looked at") } else { String::new() };
    say(&format!("{removed} removed{looks}\n"))?;
    Ok(0)
}

fn log_format(command: &Command) -> LogFormat {
    match command {
        Command::Agent(args) => args.sandbox.log_format,
        Command::Wrap(args) => args.sandbox.log_format,
        Command::Explain(args) => args.sandbox.log_format,
        Command::Session(args) => match &args.command {
            SessionCommand::Create(args) => args.sandbox.log_format,
            _ => LogFormat::Text,
        },
        _ => LogFormat::Text,
    }
}

/// Prints a report for people, in which names are [`crate::text::Shown`] already; nothing of it drives a terminal.
fn say(text: &str) -> Result<(), Error> {
    say_exactly(&crate::text::block(text))
}

/// Prints what a program reads, JSON above all, as it is. A reader that has seen enough, as in
/// `saggar explain | head`, is no error.
fn say_exactly(text: &str) -> Result<(), Error> {
    use std::io::{ErrorKind, Write};
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::system("write to standard output", error))
        }
        _ => Ok(()),
    }
}

/// Prints what is JSON or a report for people.
fn say_as(json: bool, text: &str) -> Result<(), Error> {
    if json { say_exactly(text) } else { say(text) }
}

/// An error on standard error: one line, then the hint; or one JSON object.
fn report(error: &Error, format: LogFormat) {
    match format {
        LogFormat::Text => {
            crate::log::tell(&format!("saggar: {error}"));
            if let Some(hint) = error.hint_text() {
                crate::log::tell(&format!("hint: {hint}"));
            }
        }
        LogFormat::Json => {
            let time = jiff::Timestamp::now().to_string();
            let line = serde_json::json!({
                "level": "error", "msg": error.to_string(), "hint": error.hint_text(),
                "code": error.code().name(), "time": time,
            });
            crate::log::tell_exactly(&line.to_string());
        }
    }
}
