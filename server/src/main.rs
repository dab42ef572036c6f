//! `saggar-server`: the HTTP server of saggar (saggar-server(8)).

use clap::Parser;
use saggar_server::settings::{Arguments, LogFormat, Settings};
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> ExitCode {
    let settings = match Settings::read(Arguments::parse(), |name| std::env::var(name).ok()) {
        Ok(settings) => settings,
        Err(error) => return report_error(&error),
    };
    init_logging(settings.log_format);
    match saggar_server::serve(settings).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report_error(&error),
    }
}

/// Logs to standard error, from level `info` on unless `RUST_LOG` sets another filter.
fn init_logging(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,sqlx=warn"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.with_target(false).init(),
        LogFormat::Json => log.json().init(),
    }
}

fn report_error(error: &saggar_server::error::Error) -> ExitCode {
    eprintln!("saggar-server: error: {error}");
    ExitCode::FAILURE
}
