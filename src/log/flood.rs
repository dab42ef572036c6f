//! How many lines a person gets to see on standard error: a program can cause hundreds a second, by calling hosts that
//! it may not call, and would push what matters off the screen. What is left out is counted; events and JSON have it.

use std::time::{Duration, Instant};

/// Lines that may come at once.
const AT_ONCE: u32 = 32;
/// One more after each of these.
const EVERY: Duration = Duration::from_millis(500);

/// The count of lines.
#[derive(Debug)]
pub(super) struct Flood {
    /// Lines that may still come, as of `since`.
    room: u32,
    since: Option<Instant>,
    left_out: u64,
}

impl Flood {
    pub(super) const fn new() -> Self {
        Flood { room: AT_ONCE, since: None, left_out: 0 }
    }

    /// Whether a line may be written now; one that may not is counted.
    pub(super) fn admits(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let lines = now.saturating_duration_since(since).as_millis() / EVERY.as_millis();
        let lines = u32::try_from(lines).unwrap_or(AT_ONCE).min(AT_ONCE);
        if lines > 0 {
            self.room = (self.room + lines).min(AT_ONCE);
            self.since = Some(now);
        }
        match self.room.checked_sub(1) {
            Some(room) => {
                self.room = room;
                true
            }
            None => {
                self.left_out += 1;
                false
            }
        }
    }

    /// How many were left out since it was asked last.
    pub(super) fn rest(&mut self) -> Option<u64> {
        Some(std::mem::take(&mut self.left_out)).filter(|count| *count > 0)
    }
}

/// What is said of them.
pub(super) fn left_out(count: u64) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("saggar: {count} more line{s} left out; --status-fd and --log-format json have all of them")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_and_counted() {
        let (mut flood, begin) = (Flood::new(), Instant::now());
        let written = (0..1000).filter(|_| flood.admits(begin)).count();
        assert_eq!(written, AT_ONCE as usize);
        assert_eq!(flood.rest(), Some(1000 - u64::from(AT_ONCE)));
        assert_eq!(flood.rest(), None);
        assert!(!flood.admits(begin + EVERY / 2));
        assert!(flood.admits(begin + EVERY));
        assert_eq!(flood.rest(), Some(1));
        assert!(flood.admits(begin + EVERY * 100));
        assert_eq!((0..1000).filter(|_| flood.admits(begin + EVERY * 100)).count(), AT_ONCE as usize - 1);
    }

    #[test]
    fn lines_that_come_now_and_then_are_all_written() {
        let (mut flood, begin) = (Flood::new(), Instant::now());
        assert!((0..1000).all(|n| flood.admits(begin + EVERY * n)));
    }
}
