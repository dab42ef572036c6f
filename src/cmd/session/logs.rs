//! `saggar session logs`: prints the log of a session.

use crate::app::session::{LogQuery, read_logs};
use crate::bridge::proto::LogLevel;
use crate::cli::session::{LogsArgs, LogsLevel};
use crate::cmd::print_as;
use crate::error::Result;
use crate::session::logs::LogEntry;

pub(super) fn run(args: &LogsArgs) -> Result<u8> {
    let query = LogQuery { after: args.after, follow: args.follow };
    read_logs(&args.id, query, &mut |entries| print(args, entries))?;
    Ok(0)
}

fn print(args: &LogsArgs, entries: &[LogEntry]) -> Result<()> {
    let least = match args.level {
        LogsLevel::Debug => LogLevel::Debug,
        LogsLevel::Info => LogLevel::Info,
        LogsLevel::Warn => LogLevel::Warn,
    };
    let shown = entries.iter().filter(|entry| entry.level >= least);
    print_as(args.json, &shown.map(|entry| line(args, entry)).collect::<String>())
}

fn line(args: &LogsArgs, entry: &LogEntry) -> String {
    if args.json {
        return serde_json::to_string(entry).unwrap_or_default() + "\n";
    }
    entry.to_line()
}
