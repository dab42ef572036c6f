//! The commands: one file for each family. Only here anything is printed to standard output.

mod agent;
mod completions;
mod doctor;
mod explain;
mod find;
mod policy;
mod prepare;
mod start;
mod wrap;

use crate::cli::{Cli, Command, LogFormat};
use crate::error::{Code, Error};
use crate::launch::guard;
use clap::Parser;
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the command line; the exit status of saggar.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { Code::Usage.exit_status() } else { 0 });
        }
    };
    let format = log_format(&cli.command);
    crate::log::install(format == LogFormat::Json);
    match run(cli.command) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            report(&error, format);
            ExitCode::from(error.code().exit_status())
        }
    }
}

fn run(command: Command) -> Result<u8, Error> {
    match command {
        Command::Agent(args) => agent::run(*args),
        Command::Wrap(args) => wrap::run(*args),
        Command::Explain(args) => explain::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Policy(args) => policy::run(&args),
        Command::Completions { shell } => completions::run(shell),
        Command::Gc => gc(),
    }
}

/// `saggar gc`: what dead sandboxes left.
fn gc() -> Result<u8, Error> {
    let removed = guard::sweep()?;
    say(&format!("{removed} removed\n"))?;
    Ok(0)
}

fn log_format(command: &Command) -> LogFormat {
    match command {
        Command::Agent(args) => args.sandbox.log_format,
        Command::Wrap(args) => args.sandbox.log_format,
        Command::Explain(args) => args.sandbox.log_format,
        _ => LogFormat::Text,
    }
}

/// Prints `text`. A reader that has seen enough, as in `saggar explain | head`, is no error.
fn say(text: &str) -> Result<(), Error> {
    use std::io::{ErrorKind, Write};
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::system("write to standard output", error))
        }
        _ => Ok(()),
    }
}

/// An error on standard error: one line, then the hint; or one JSON object.
fn report(error: &Error, format: LogFormat) {
    match format {
        LogFormat::Text => {
            eprintln!("saggar: {error}");
            if let Some(hint) = error.hint_text() {
                eprintln!("hint: {hint}");
            }
        }
        LogFormat::Json => {
            let time = jiff::Timestamp::now().to_string();
            let line = serde_json::json!({
                "level": "error", "msg": error.to_string(), "hint": error.hint_text(),
                "code": error.code().name(), "time": time,
            });
            eprintln!("{line}");
        }
    }
}
