//! The back end of the `log` macros: standard error, one line an entry, as text or JSON
//! (`--log-format`). Never the environment of a program, never a prompt.

use log::{LevelFilter, Log, Metadata, Record};
use std::io::Write;
use std::sync::OnceLock;

struct StandardError {
    json: bool,
}

static LOGGER: OnceLock<StandardError> = OnceLock::new();

/// Installs the back end, once. Warnings and errors are written; `SAGGAR_LOG=debug` and its kind show more.
pub fn install(json: bool) {
    let level = std::env::var("SAGGAR_LOG").ok().and_then(|name| name.parse().ok());
    if log::set_logger(LOGGER.get_or_init(|| StandardError { json })).is_ok() {
        log::set_max_level(level.unwrap_or(LevelFilter::Warn));
    }
}

impl Log for StandardError {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let line = if self.json {
            let (time, level) = (jiff::Timestamp::now().to_string(), record.level().as_str().to_lowercase());
            serde_json::json!({ "time": time, "level": level, "msg": record.args().to_string() }).to_string()
        } else {
            format!("saggar: {}", record.args())
        };
        let _ = writeln!(std::io::stderr(), "{line}");
    }

    fn flush(&self) {}
}
