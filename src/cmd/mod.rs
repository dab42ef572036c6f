//! The commands: one file per family. Only this module prints to standard output.

mod agent;
mod completions;
mod doctor;
mod explain;
mod mcp;
mod metrics;
mod oci;
mod options;
mod pair;
mod policy;
mod prompt;
mod prove;
mod quarantine;
mod remote;
mod session;
mod shell_command;
mod stats;
mod wrap;

use crate::cli::oci::OciGlobalArgs;
use crate::cli::session::SessionCommand;
use crate::cli::{Cli, CliCommand, LogFormat, SandboxArgs, VERSION, WrapArgs, WrapParser};
use crate::error::{Code, Error};
use crate::launch::agent::cleanup;
use crate::state::counters::{self, StartKind};
use crate::supervise::quarantine_monitor::finish_abandoned_scans;
use crate::sys::startup;
use clap::{CommandFactory, Parser};
use log::LevelFilter;
use std::ffi::OsString;
use std::io::{ErrorKind, StdoutLock, Write};

/// The first argument of saggar when it executes itself as the supervisor of a container with a bridge.
pub const BRIDGE_SUPERVISOR: &str = "__beside";

/// Runs that supervisor. `args` are the root of the container state and the container id; standard input is a
/// socket to the runtime.
pub fn run_bridge_supervisor(args: &[OsString]) -> u8 {
    oci::run_supervisor(args)
}

/// Runs the probe of [`crate::prove`] in the sandbox of another program.
pub fn prove_other_sandbox(words: &[OsString]) -> u8 {
    prove::run_around(words)
}

/// Runs the command line and returns the exit status.
pub fn main(args: &[OsString]) -> u8 {
    // Container engines run --version before any other command.
    if let [_, only] = args
        && ["--version", "-V", "-v"].iter().any(|flag| only == flag)
    {
        return told(print_text(&format!("saggar {VERSION}\n")));
    }
    let command = match parse(args) {
        Ok(command) => command,
        Err(error) if error.use_stderr() => {
            print_usage_error(&error);
            return Code::Usage.exit_status();
        }
        Err(help) => return told(written(help.print().and_then(|()| std::io::stdout().flush()))),
    };
    let sandbox = sandbox_args(&command);
    let format = sandbox.map_or(LogFormat::Text, |sandbox| sandbox.log_format);
    // The OCI commands install their own log.
    if !matches!(command, CliCommand::Oci(_)) {
        let is_verbose = sandbox.is_some_and(|sandbox| sandbox.verbose);
        let level = if is_verbose { LevelFilter::Info } else { LevelFilter::Warn };
        crate::log::install(format == LogFormat::Json, level);
    }
    let starts = matches!(command, CliCommand::Agent(_) | CliCommand::Wrap(_));
    let done = run(command);
    crate::log::finish();
    match done {
        Ok(status) => status,
        Err(error) => {
            if starts {
                counters::count_start_failure(StartKind::Sandbox, &error);
            }
            print_error(&error, format);
            error.code().exit_status()
        }
    }
}

/// The exit status of `--help` and `--version`: 1, with a message, when standard output takes nothing.
fn told(printed: Result<(), Error>) -> u8 {
    match printed {
        Ok(()) => 0,
        Err(error) => {
            print_error(&error, LogFormat::Text);
            1
        }
    }
}

/// Parses the command line. OCI commands have their own parser. `wrap` has a fast parser; what it rejects,
/// including help and errors, goes to the full parser.
fn parse(args: &[OsString]) -> Result<CliCommand, clap::Error> {
    if let Some(parsed) = crate::cli::oci::parse(args) {
        return parsed.map(CliCommand::Oci);
    }
    if args.get(1).is_some_and(|name| name == "wrap") {
        let short = WrapArgs::without_options(&args[2..]);
        let wrap = short.or_else(|| WrapParser::try_parse_from(&args[1..]).ok().map(|only| only.wrap));
        if let Some(wrap) = wrap {
            return Ok(CliCommand::Wrap(Box::new(wrap)));
        }
    }
    let cli = Cli::try_parse_from(args)?;
    if cli.oci != OciGlobalArgs::default() && !matches!(cli.command, CliCommand::Oci(_)) {
        let error = "options before the command are for the OCI commands (create, start, ...)";
        return Err(Cli::command().error(clap::error::ErrorKind::ArgumentConflict, error));
    }
    Ok(cli.command)
}

fn run(command: CliCommand) -> Result<u8, Error> {
    match command {
        CliCommand::Agent(args) => agent::run(*args),
        CliCommand::Wrap(args) => wrap::run(*args),
        CliCommand::Explain(args) => explain::run(&args),
        CliCommand::Doctor(args) => doctor::run(&args),
        CliCommand::Policy(args) => policy::run(&args),
        CliCommand::Completions { shell } => completions::run(shell),
        CliCommand::Stats(args) => stats::run(&args),
        CliCommand::Metrics(args) => metrics::run(&args),
        CliCommand::Session(args) => session::run(args.command),
        CliCommand::Mcp(args) => mcp::run(args.command),
        CliCommand::Pair(args) => pair::run(args.command),
        CliCommand::Remote(args) => remote::run(*args),
        CliCommand::Quarantine(args) => quarantine::run(&args.command),
        CliCommand::Gc => gc(),
        CliCommand::Oci(command) => Ok(oci::main(command)),
    }
}

/// `saggar gc`: removes what dead sandboxes left behind.
fn gc() -> Result<u8, Error> {
    let removed = cleanup::sweep()?;
    let looked = finish_abandoned_scans(None);
    let looks = if looked > 0 { format!(", {looked} looked at") } else { String::new() };
    print_text(&format!("{removed} removed{looks}\n"))?;
    Ok(0)
}

/// The options of the sandbox, if the command has one.
fn sandbox_args(command: &CliCommand) -> Option<&SandboxArgs> {
    match command {
        CliCommand::Agent(args) => Some(&args.sandbox),
        CliCommand::Wrap(args) => Some(&args.sandbox),
        CliCommand::Explain(args) => Some(&args.sandbox),
        CliCommand::Session(args) => match &args.command {
            SessionCommand::Create(args) => Some(&args.sandbox),
            _ => None,
        },
        _ => None,
    }
}

/// Prints a text report. Its names are already [`crate::text::DisplayEscaped`]; no control sequence gets through.
fn print_text(text: &str) -> Result<(), Error> {
    print_raw(&crate::text::multi_line(text))
}

/// Prints machine-readable output such as JSON unchanged. It is not an error if the reader closes the pipe, as in
/// `saggar explain | head`.
fn print_raw(text: &str) -> Result<(), Error> {
    written(std::io::stdout().write_all(text.as_bytes()))
}

/// Standard output, for content of any size.
fn lock_stdout() -> Result<StdoutLock<'static>, Error> {
    written(Ok(()))?;
    Ok(std::io::stdout().lock())
}

/// As [`print_raw`], at once; false if the reader has closed the pipe.
fn print_now(text: &str) -> Result<bool, Error> {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        result => written(result).map(|()| true),
    }
}

fn written(result: std::io::Result<()>) -> Result<(), Error> {
    match result.and_then(|()| check_stdout()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::system("write to standard output", error))
        }
        _ => Ok(()),
    }
}

/// Fails if standard output was closed by the caller.
fn check_stdout() -> std::io::Result<()> {
    match startup::stdout_was_closed() {
        true => Err(std::io::Error::other("it is closed")),
        false => Ok(()),
    }
}

/// Prints notices on standard error.
fn print_notices(lines: &[String]) {
    lines.iter().for_each(|line| crate::log::print_line(line));
}

/// Prints JSON or a text report.
fn print_as(json: bool, text: &str) -> Result<(), Error> {
    if json { print_raw(text) } else { print_text(text) }
}

/// Prints an error as text on standard error: a line for each fault, and one for the hint.
fn print_error_text(error: &Error) {
    crate::log::print_line(&format!("saggar: error: {error}"));
    for other in error.others() {
        crate::log::print_line(&format!("saggar: error: {other}"));
    }
    if let Some(hint) = error.hint_text() {
        crate::log::print_line(&format!("hint: {hint}"));
    }
}

/// Prints an error of the command line, with the prefix of other errors. A lost message ends nothing.
fn print_usage_error(error: &clap::Error) {
    if error.to_string().starts_with("error:") {
        let _ = std::io::stderr().write_all(b"saggar: ");
    }
    let _ = error.print();
}

/// Prints an error on standard error: as [`print_error_text`], or as one JSON object.
fn print_error(error: &Error, format: LogFormat) {
    match format {
        LogFormat::Text => print_error_text(error),
        LogFormat::Json => {
            let time = jiff::Timestamp::now().to_string();
            let mut line = serde_json::json!({
                "level": "error", "msg": error.to_string(), "hint": error.hint_text(),
                "code": error.code().name(), "time": time,
            });
            if !error.others().is_empty() {
                line["others"] = error.others().into();
            }
            crate::log::print_json(&line.to_string());
        }
    }
}
