//! The back end of the `log` macros: writes to standard error or a file, one line for each entry, as text or JSON
//! (`--log-format`). It never logs the environment of a program or a prompt.
//!
//! Text is escaped by [`crate::text`]; JSON is exact. On standard error, which a person reads, entries caused by
//! programs ([`SANDBOX_CAUSED`]) are rate-limited and counted ([`rate_limit`]).

mod rate_limit;

use crate::error::{Error, Result};
use crate::text;
use log::{Level, LevelFilter, Log, Metadata, Record};
use rate_limit::RateLimiter;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, OnceLock, RwLock};
use std::time::Instant;

/// The destination and format of entries.
struct LogBackend {
    json: bool,
    /// The file of `--log`; `None` for standard error.
    file: Option<File>,
}

static LOGGER: OnceLock<LogBackend> = OnceLock::new();

/// The target of entries that a program inside can cause at any rate, such as denied connections.
pub const SANDBOX_CAUSED: &str = "saggar::caused";

/// The target of warnings about what engines usually configure, and what changes nothing for them. They are only in a
/// file: standard error can be that of a container.
pub const USUAL: &str = "saggar::usual";

/// The rate limiter for these lines on standard error.
static RATE_LIMIT: Mutex<RateLimiter> = Mutex::new(RateLimiter::new());

/// A function that receives entries instead of the back end.
type LogSink = Box<dyn Fn(Level, &str) + Send + Sync>;

static SINK: OnceLock<LogSink> = OnceLock::new();

/// Sends all later entries only to `taker`, for a process whose standard error has no reader.
pub fn redirect(taker: LogSink) {
    let _ = SINK.set(taker);
}

/// Sends the entries of a worker to the process that started it, regardless of [`redirect`].
static RELAY: RwLock<Option<LogSink>> = RwLock::new(None);

/// Sends all later entries only to `taker`, for a worker: a fork of a process that has a log, or of another worker.
pub fn relay(taker: LogSink) {
    if let Ok(mut relay) = RELAY.write() {
        *relay = Some(taker);
    }
}

/// Installs the back end for standard error, once. It writes entries down to `level`, or to that of `SAGGAR_LOG`.
pub fn install(json: bool, level: LevelFilter) {
    install_backend(LogBackend { json, file: None }, level);
}

/// Installs the back end for a file, once. Entries are appended down to `level`.
///
/// # Errors
/// [`crate::error::Code::System`] if the file cannot be opened.
pub fn install_file(path: &Path, json: bool, level: LevelFilter) -> Result<()> {
    let mut options = OpenOptions::new();
    // Opening a FIFO without a reader fails instead of waiting.
    options.append(true).create(true).mode(0o644).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    let file =
        options.open(path).map_err(|e| Error::system(format_args!("open the log {}", path.display()), e))?;
    install_backend(LogBackend { json, file: Some(file) }, level);
    Ok(())
}

/// Whether [`install_file`] was called: entries are then not on standard error.
pub fn is_file() -> bool {
    LOGGER.get().is_some_and(|backend| backend.file.is_some())
}

/// The descriptor of the file, for a fork that closes other descriptors and still logs.
pub fn descriptor() -> Option<BorrowedFd<'static>> {
    LOGGER.get().and_then(|backend| backend.file.as_ref()).map(AsFd::as_fd)
}

fn install_backend(backend: LogBackend, level: LevelFilter) {
    let named = std::env::var("SAGGAR_LOG").ok().and_then(|name| name.parse().ok());
    if log::set_logger(LOGGER.get_or_init(|| backend)).is_ok() {
        log::set_max_level(named.unwrap_or(level));
    }
}

/// The level names that readers of runc's log expect.
fn level_name(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warning",
        Level::Info => "info",
        Level::Debug => "debug",
        Level::Trace => "trace",
    }
}

/// The time in RFC 3339 format, in whole seconds, which all readers accept.
fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Writes a line of text to standard error, for a person. Write errors are ignored.
pub fn print_line(line: &str) {
    write_line(&text::one_line(line));
}

/// Writes a line of JSON to standard error, unescaped, for a program.
pub fn print_json(line: &str) {
    write_line(line);
}

/// Logs the number of suppressed lines, if any. Call it after the last entry.
pub fn finish() {
    if let Some(count) = RATE_LIMIT.lock().ok().and_then(|mut flood| flood.take_suppressed()) {
        write_line(&rate_limit::suppressed_notice(count));
    }
}

fn write_limited(line: &str) {
    let Ok(mut flood) = RATE_LIMIT.lock() else { return };
    if flood.allows(Instant::now()) {
        if let Some(count) = flood.take_suppressed() {
            write_line(&rate_limit::suppressed_notice(count));
        }
        write_line(line);
    }
}

/// Uses one write(2), so that lines of several processes are not mixed.
fn write_line(line: &str) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

impl LogBackend {
    fn line(&self, record: &Record<'_>) -> String {
        let (message, level) = (record.args().to_string(), level_name(record.level()));
        match (self.json, &self.file) {
            (true, _) => serde_json::json!({ "level": level, "msg": message, "time": now() }).to_string(),
            (false, Some(_)) => format!("time=\"{}\" level={level} msg={}", now(), text::quoted(&message)),
            (false, None) => format!("saggar: {}", text::one_line(&message)),
        }
    }
}

impl Log for LogBackend {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    /// Uses one write(2) for each entry, so that lines of several processes are not mixed.
    fn log(&self, record: &Record<'_>) {
        let relay = RELAY.read().ok();
        if let Some(taker) = relay.as_deref().and_then(Option::as_ref).or_else(|| SINK.get()) {
            return taker(record.level(), &record.args().to_string());
        }
        let line = self.line(record);
        match &self.file {
            Some(file) => drop((&mut &*file).write_all((line + "\n").as_bytes())),
            None if record.target() == USUAL => {}
            None if !self.json && record.target() == SANDBOX_CAUSED => write_limited(&line),
            None => write_line(&line),
        }
    }

    fn flush(&self) {}
}
