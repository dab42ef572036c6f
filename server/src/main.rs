//! `saggar-server`: the HTTP server of saggar (saggar-server(8)).

use clap::Parser;
use saggar_server::ash_variables;
use saggar_server::error::Error;
use saggar_server::settings::{Arguments, LogFormat, Mode, Settings};
use saggar_server::traces::TraceExport;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// object_store logs each retry, and the server logs the failure. sqlx logs unknown parameters of a database URL with their
/// values, which can be a misspelled password.
const DEFAULT_FILTER: &str = "info,object_store=warn,sqlx=warn,sqlx_postgres::options=off";

/// The exit status after invalid settings, which a restart does not make valid: `EX_CONFIG` of sysexits(3).
const EXIT_INVALID_SETTINGS: u8 = 78;

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if let Some(Mode::Relay(arguments)) = arguments.mode.take() {
        init_logging(LogFormat::Text);
        return match saggar_server::relay::serve(arguments).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => report_error(&error),
        };
    }
    if arguments.print_openapi {
        return print_openapi();
    }
    let variable = |name: &str| std::env::var(name).ok();
    let settings = match Settings::read(arguments, variable) {
        Ok(settings) => settings,
        Err(error) => return report_invalid_settings(&error),
    };
    init_logging(settings.log_format);
    ash_variables::warnings(variable).for_each(|warning| tracing::warn!("{warning}"));
    let traces = match settings.traces.as_ref().map(TraceExport::start).transpose() {
        Ok(traces) => traces,
        Err(error) => return report_invalid_settings(&error),
    };
    match saggar_server::serve(settings, traces).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report_error(&error),
    }
}

/// Logs to standard error, from level `info` on unless `RUST_LOG` sets another filter.
fn init_logging(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    // Without the last call, a failed write to standard error would panic in the task that logs.
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    match format {
        LogFormat::Text => log.with_target(false).init(),
        LogFormat::Json => log.json().init(),
    }
}

/// Prints the OpenAPI document.
fn print_openapi() -> ExitCode {
    let text = match saggar_server::api::document_text() {
        Ok(text) => text,
        Err(error) => {
            return report_error(&Error::new(format!("cannot create the OpenAPI document: {error}")));
        }
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader needs no more.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => report_error(&Error::new(format!("cannot print the OpenAPI document: {error}"))),
    }
}

fn report_invalid_settings(error: &Error) -> ExitCode {
    report_error(error);
    ExitCode::from(EXIT_INVALID_SETTINGS)
}

fn report_error(error: &Error) -> ExitCode {
    // Nothing is left to tell if standard error is closed; the exit status remains.
    let _ = writeln!(std::io::stderr(), "saggar-server: error: {error}");
    ExitCode::FAILURE
}
