//! The progress line of a terminal: the agent's current activity and its duration. It is a line of its own below the
//! output, appears when there was no output for a second, and is cleared before any other output.

use crate::sys::pty;
use crate::text;
use std::io::Write;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Shorter activities are not shown.
const SHOW_AFTER: Duration = Duration::from_secs(1);
/// Moves to the start of the line and clears it (ECMA-48 EL).
const CLEAR_LINE: &str = "\r\x1b[K";

/// The agent's current activity.
#[derive(Debug)]
pub(super) struct ProgressLine {
    /// Whether standard error is a terminal.
    enabled: bool,
    activity: String,
    since: Instant,
    /// The second that the line shows, while it is shown.
    shown_second: Option<u64>,
}

impl ProgressLine {
    pub(super) fn new(enabled: bool) -> Self {
        ProgressLine { enabled, activity: "thinking".into(), since: Instant::now(), shown_second: None }
    }

    /// A tool call starts.
    pub(super) fn begin_tool(&mut self, what: &str) {
        self.clear();
        self.activity = text::one_line(what).into_owned();
        self.since = Instant::now();
    }

    /// The agent itself is active, and no tool.
    pub(super) fn begin_thinking(&mut self) {
        self.begin_tool("thinking");
    }

    /// Shows the line when it is due and the cursor is at the start of a line; returns the time until the next call.
    pub(super) fn tick(&mut self, at_line_start: bool) -> Option<Duration> {
        if !self.enabled {
            return None;
        }
        let elapsed = self.since.elapsed();
        if elapsed >= SHOW_AFTER && at_line_start && self.shown_second != Some(elapsed.as_secs()) {
            self.shown_second = Some(elapsed.as_secs());
            let columns = pty::window_size(std::io::stderr().as_fd()).map_or(80, |size| size.ws_col.into());
            write_stderr(&format!("{CLEAR_LINE}{}", format_line(&self.activity, elapsed.as_secs(), columns)));
        }
        let next = Duration::from_secs(elapsed.as_secs() + 1);
        Some(next.saturating_sub(self.since.elapsed()))
    }

    /// Clears the line.
    pub(super) fn clear(&mut self) {
        if self.shown_second.take().is_some() {
            write_stderr(CLEAR_LINE);
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Cut to the width of the terminal: a wrapped line could not be cleared.
fn format_line(what: &str, seconds: u64, columns: usize) -> String {
    let time = match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, seconds) => format!("{minutes} min {seconds:02} s"),
    };
    text::fit(&format!("{what} … {time}"), columns.saturating_sub(1)).to_owned()
}

/// Writes to standard error. Errors are ignored: it may be closed.
fn write_stderr(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_the_time_and_never_wraps() {
        assert_eq!(format_line("Bash", 7, 80), "Bash … 7 s");
        assert_eq!(format_line("thinking", 125, 80), "thinking … 2 min 05 s");
        assert_eq!(format_line("a long name of a tool", 7, 10), "a long na");
        assert_eq!(format_line("Bash", 7, 0), "");
    }

    #[test]
    fn where_nobody_is_told_nothing_is_waited_for() {
        assert_eq!(ProgressLine::new(false).tick(true), None);
    }
}
