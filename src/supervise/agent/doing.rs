//! The progress line of a terminal: what the agent does now, and for how long. It stands on a line of its own below
//! what was printed, comes when nothing has happened for a second, and is taken away before anything else is
//! written.

use crate::sys::pty;
use crate::text;
use std::io::Write;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Shorter waits are not told of.
const PATIENCE: Duration = Duration::from_secs(1);
/// To the start of the line, and clear it (ECMA-48 EL).
const CLEAR: &str = "\r\x1b[K";

/// What the agent does.
#[derive(Debug)]
pub(super) struct Doing {
    /// Whether there is a terminal to tell.
    told: bool,
    what: String,
    since: Instant,
    /// The second that the line shows, while it is there.
    shown: Option<u64>,
}

impl Doing {
    pub(super) fn new(told: bool) -> Self {
        Doing { told, what: "thinking".into(), since: Instant::now(), shown: None }
    }

    /// A tool runs.
    pub(super) fn begin(&mut self, what: &str) {
        self.clear();
        self.what = text::line(what).into_owned();
        self.since = Instant::now();
    }

    /// Nothing runs but the agent itself.
    pub(super) fn begin_thinking(&mut self) {
        self.begin("thinking");
    }

    /// Shows the line when it is due and the cursor is at the start of one; when that is to be looked at next.
    pub(super) fn tick(&mut self, at_line_start: bool) -> Option<Duration> {
        if !self.told {
            return None;
        }
        let elapsed = self.since.elapsed();
        if elapsed >= PATIENCE && at_line_start && self.shown != Some(elapsed.as_secs()) {
            self.shown = Some(elapsed.as_secs());
            let columns = pty::window_size(std::io::stderr().as_fd()).map_or(80, |size| size.ws_col.into());
            write(&format!("{CLEAR}{}", line(&self.what, elapsed.as_secs(), columns)));
        }
        let next = Duration::from_secs(elapsed.as_secs() + 1);
        Some(next.saturating_sub(self.since.elapsed()))
    }

    /// Takes the line away.
    pub(super) fn clear(&mut self) {
        if self.shown.take().is_some() {
            write(CLEAR);
        }
    }
}

impl Drop for Doing {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Never so long that it would wrap: what wraps cannot be taken away.
fn line(what: &str, seconds: u64, columns: usize) -> String {
    let time = match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, seconds) => format!("{minutes} min {seconds:02} s"),
    };
    text::fit(&format!("{what} … {time}"), columns.saturating_sub(1)).to_owned()
}

/// A terminal that is gone is no reason to stop.
fn write(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_the_time_and_never_wraps() {
        assert_eq!(line("Bash", 7, 80), "Bash … 7 s");
        assert_eq!(line("thinking", 125, 80), "thinking … 2 min 05 s");
        assert_eq!(line("a long name of a tool", 7, 10), "a long na");
        assert_eq!(line("Bash", 7, 0), "");
    }

    #[test]
    fn where_nobody_is_told_nothing_is_waited_for() {
        assert_eq!(Doing::new(false).tick(true), None);
    }
}
