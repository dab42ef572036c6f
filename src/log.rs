//! The back end of the `log` macros: standard error or a file, one line an entry, as text or JSON
//! (`--log-format`). Never the environment of a program, never a prompt.
//!
//! Text is shown as [`crate::text`] has it; JSON is exact. On standard error, where a person reads, entries that
//! programs cause ([`CAUSED`]) are counted and not written when there are too many of them ([`flood`]).

mod flood;

use crate::error::{Error, Result};
use crate::text::{self, Show};
use flood::Flood;
use log::{Level, LevelFilter, Log, Metadata, Record};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, OnceLock, RwLock};
use std::time::Instant;

/// Where entries go, and how they look.
struct Backend {
    json: bool,
    /// The file of `--log`; without one standard error.
    file: Option<File>,
}

static LOGGER: OnceLock<Backend> = OnceLock::new();

/// The target of entries that a program inside can cause as often as it likes, refusals of the network among them.
pub const CAUSED: &str = "saggar::caused";

/// How many of these lines standard error has had.
static FLOOD: Mutex<Flood> = Mutex::new(Flood::new());

/// Who takes entries instead of the back end.
type Taker = Box<dyn Fn(Level, &str) + Send + Sync>;

static TAKER: OnceLock<Taker> = OnceLock::new();

/// From now on entries go there alone: for a process that has nobody at its standard error.
pub fn divert(taker: Taker) {
    let _ = TAKER.set(taker);
}

/// Takes the entries of a worker to the process that started it, whatever [`divert`] has set there.
static RELAY: RwLock<Option<Taker>> = RwLock::new(None);

/// From now on entries go there alone: for a worker, which is a copy of a process that has a log, or of another worker.
pub fn relay(taker: Taker) {
    if let Ok(mut relay) = RELAY.write() {
        *relay = Some(taker);
    }
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
        options.open(path).map_err(|e| Error::system(format_args!("open the log {}", path.shown()), e))?;
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

/// Writes a line of text to standard error, for a person. That nobody can read it is no reason to stop.
pub fn tell(line: &str) {
    write_line(&text::line(line));
}

/// The same for a program: JSON, as it is.
pub fn tell_exactly(line: &str) {
    write_line(line);
}

/// Says how many lines were left out, if any were. Call it when nothing more is logged.
pub fn finish() {
    if let Some(count) = FLOOD.lock().ok().and_then(|mut flood| flood.rest()) {
        write_line(&flood::left_out(count));
    }
}

fn bounded(line: &str) {
    let Ok(mut flood) = FLOOD.lock() else { return };
    if flood.admits(Instant::now()) {
        if let Some(count) = flood.rest() {
            write_line(&flood::left_out(count));
        }
        write_line(line);
    }
}

/// One write, so that lines of several processes stay whole.
fn write_line(line: &str) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

impl Backend {
    fn line(&self, record: &Record<'_>) -> String {
        let (message, level) = (record.args().to_string(), level_name(record.level()));
        match (self.json, &self.file) {
            (true, _) => serde_json::json!({ "level": level, "msg": message, "time": now() }).to_string(),
            (false, Some(_)) => format!("time=\"{}\" level={level} msg={}", now(), text::quoted(&message)),
            (false, None) => format!("saggar: {}", text::line(&message)),
        }
    }
}

impl Log for Backend {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    /// One write an entry, so that lines of several processes stay whole.
    fn log(&self, record: &Record<'_>) {
        let relay = RELAY.read().ok();
        if let Some(taker) = relay.as_deref().and_then(Option::as_ref).or_else(|| TAKER.get()) {
            return taker(record.level(), &record.args().to_string());
        }
        let line = self.line(record);
        match &self.file {
            Some(file) => drop((&mut &*file).write_all((line + "\n").as_bytes())),
            None if !self.json && record.target() == CAUSED => bounded(&line),
            None => write_line(&line),
        }
    }

    fn flush(&self) {}
}
