//! The log of a session: from the disk, so that it can be read whether the session is served or not.

use crate::error::{Error, Result};
use crate::session::logs::{self, LogEntry};
use crate::session::record::SessionRecord;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// How many entries are read at once.
const BATCH: usize = 1000;

/// Which entries are read.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogQuery {
    /// Those after this number.
    pub after: u64,
    /// Whether to wait for more until the session is not served any more.
    pub follow: bool,
}

/// Passes the entries of a session to `show`, in batches.
///
/// # Errors
/// [`Error::system`] when the log cannot be watched; what `show` returns.
pub fn read_logs(id: &str, query: LogQuery, show: &mut dyn FnMut(&[LogEntry]) -> Result<()>) -> Result<()> {
    let (_, directory, record) = SessionRecord::find(id)?;
    if !query.follow {
        return pass_entries(&directory, query.after, show).map(drop);
    }
    let fail = |e: Errno| Error::system(format_args!("watch {}", directory.display()), e);
    let watch = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).map_err(fail)?;
    let events = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
    let place = logs::log_directory(&directory);
    // Without a supervisor nothing is added.
    let supervisor = record.supervisor.as_ref().and_then(|supervisor| supervisor.open_pidfd_to_wait().ok());
    if place.is_dir() {
        watch.add_watch(&place, events).map_err(fail)?;
    }
    // The watch stands before the first look, so that nothing falls between.
    let mut last = pass_entries(&directory, query.after, show)?;
    let Some(supervisor) = supervisor else { return Ok(()) };
    loop {
        let is_over = wait(&watch, supervisor.as_fd()).map_err(fail)?;
        last = pass_entries(&directory, last, show)?;
        if is_over {
            return Ok(());
        }
    }
}

/// Waits until something was written or the supervisor has exited; whether it has.
fn wait(watch: &Inotify, supervisor: BorrowedFd<'_>) -> Result<bool, Errno> {
    let mut fds = [PollFd::new(watch.as_fd(), PollFlags::POLLIN), PollFd::new(supervisor, PollFlags::POLLIN)];
    match poll(&mut fds, PollTimeout::NONE) {
        Err(Errno::EINTR) => return Ok(false),
        other => other?,
    };
    let is_over = fds[1].any().unwrap_or(true);
    while watch.read_events().is_ok_and(|events| !events.is_empty()) {}
    Ok(is_over)
}

/// Passes what is after number `after`; the number of the last entry that there is.
fn pass_entries(
    directory: &Path,
    mut after: u64,
    show: &mut dyn FnMut(&[LogEntry]) -> Result<()>,
) -> Result<u64> {
    loop {
        let entries = logs::LogFiles::open_read_only(directory)
            .map(|pieces| pieces.entries_after(after, BATCH))
            .unwrap_or_default();
        let Some(last) = entries.last() else { return Ok(after) };
        after = last.index;
        show(&entries)?;
    }
}
