//! The back end of the `log` macros: standard error or a file, one line an entry, as text or JSON
//! (`--log-format`). Never the environment of a program, never a prompt.

use crate::error::{Error, Result};
use log::{Level, LevelFilter, Log, Metadata, Record};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::OnceLock;

/// Where entries go, and how they look.
struct Backend {
    json: bool,
    /// The file of `--log`; without one standard error.
    file: Option<File>,
}

static LOGGER: OnceLock<Backend> = OnceLock::new();

/// Who takes entries instead of the back end.
type Taker = Box<dyn Fn(Level, &str) + Send + Sync>;

static TAKER: OnceLock<Taker> = OnceLock::new();

/// From now on entries go there alone: for a process that has nobody at its standard error.
pub fn divert(taker: Taker) {
    let _ = TAKER.set(taker);
}

/// Installs the back end for standard error, once. Warnings and errors are written; `SAGGAR_LOG=debug` and its
/// kind show more.
pub fn install(json: bool) {
    set(Backend { json, file: None }, LevelFilter::Warn);
}

/// Installs the back end for a file that is appended to, once. Entries down to `level` are written.
///
/// # Errors
/// [`crate::error::Code::System`] when the file cannot be opened.
pub fn install_file(path: &Path, json: bool, level: LevelFilter) -> Result<()> {
    let mut options = OpenOptions::new();
    // A FIFO that nobody reads is refused, not waited for.
    options.append(true).create(true).mode(0o644).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    let file =
        options.open(path).map_err(|e| Error::system(format_args!("open the log {}", path.display()), e))?;
    set(Backend { json, file: Some(file) }, level);
    Ok(())
}

/// Whether [`install_file`] was called: entries then are not on standard error.
pub fn is_file() -> bool {
    LOGGER.get().is_some_and(|backend| backend.file.is_some())
}

fn set(backend: Backend, level: LevelFilter) {
    let named = std::env::var("SAGGAR_LOG").ok().and_then(|name| name.parse().ok());
    if log::set_logger(LOGGER.get_or_init(|| backend)).is_ok() {
        log::set_max_level(named.unwrap_or(level));
    }
}

/// The names that the readers of runc's log know.
fn level_name(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warning",
        Level::Info => "info",
        Level::Debug => "debug",
        Level::Trace => "trace",
    }
}

/// Seconds and no more, as RFC 3339 has it and every reader takes it.
fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl Backend {
    fn line(&self, record: &Record<'_>) -> String {
        let (message, level) = (record.args().to_string(), level_name(record.level()));
        match (self.json, &self.file) {
            (true, _) => serde_json::json!({ "level": level, "msg": message, "time": now() }).to_string(),
            (false, Some(_)) => format!("time=\"{}\" level={level} msg={message:?}", now()),
            (false, None) => format!("saggar: {message}"),
        }
    }
}

impl Log for Backend {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    /// One write an entry, so that lines of several processes stay whole.
    fn log(&self, record: &Record<'_>) {
        if let Some(taker) = TAKER.get() {
            return taker(record.level(), &record.args().to_string());
        }
        let line = self.line(record) + "\n";
        let _ = match &self.file {
            Some(file) => (&mut &*file).write_all(line.as_bytes()),
            None => std::io::stderr().write_all(line.as_bytes()),
        };
    }

    fn flush(&self) {}
}
