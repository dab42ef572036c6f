//! `saggar session logs`: from the disk, so that it works whoever serves the session, or nobody.

use crate::bridge::proto::LogLevel;
use crate::cli::session::{LogsArgs, LogsLevel};
use crate::cmd::say_as;
use crate::error::{Error, Result};
use crate::session::logs::{self, Entry};
use crate::session::record::Record;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::os::fd::AsFd;
use std::path::Path;

/// How many entries are read at once.
const SOME: usize = 1000;

pub(super) fn run(args: &LogsArgs) -> Result<u8> {
    let (_, directory, record) = Record::find(&args.id)?;
    if !args.follow {
        print(args, &directory, args.after)?;
        return Ok(0);
    }
    let fail = |e: Errno| Error::system(format_args!("watch {}", directory.display()), e);
    let watch = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).map_err(fail)?;
    let events = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
    let place = logs::place(&directory);
    // Without a supervisor nothing is added.
    let supervisor = record.supervisor.as_ref().and_then(|supervisor| supervisor.open().ok());
    if place.is_dir() {
        watch.add_watch(&place, events).map_err(fail)?;
    }
    // The watch stands before the first look, so that nothing falls between.
    let mut last = print(args, &directory, args.after)?;
    let Some(supervisor) = supervisor else { return Ok(0) };
    loop {
        let mut fds = [
            PollFd::new(watch.as_fd(), PollFlags::POLLIN),
            PollFd::new(supervisor.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            other => other.map_err(fail)?,
        };
        let over = fds[1].any().unwrap_or(true);
        while watch.read_events().is_ok_and(|events| !events.is_empty()) {}
        last = print(args, &directory, last)?;
        if over {
            return Ok(0);
        }
    }
}

/// Prints what is after number `after`; the number of the last entry that there is.
fn print(args: &LogsArgs, directory: &Path, after: u64) -> Result<u64> {
    let least = match args.level {
        LogsLevel::Debug => LogLevel::Debug,
        LogsLevel::Info => LogLevel::Info,
        LogsLevel::Warn => LogLevel::Warn,
    };
    let mut after = after;
    loop {
        let entries = logs::Pieces::of(directory).map(|pieces| pieces.after(after, SOME)).unwrap_or_default();
        let Some(last) = entries.last() else { return Ok(after) };
        after = last.index;
        let shown = entries.iter().filter(|entry| entry.level >= least);
        say_as(args.json, &shown.map(|entry| line(args, entry)).collect::<String>())?;
    }
}

fn line(args: &LogsArgs, entry: &Entry) -> String {
    if args.json {
        return serde_json::to_string(entry).unwrap_or_default() + "\n";
    }
    let time = jiff::Timestamp::from_millisecond(i64::try_from(entry.ts).unwrap_or(0)).unwrap_or_default();
    let text = crate::text::line(&entry.text);
    format!("{} {} {:<5} {text}\n", entry.index, time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ"), entry.level.name())
}
