//! A rate limiter for lines on standard error. A program can cause hundreds of lines a second, by connecting to hosts
//! that are denied, and would push important lines off the screen. Suppressed lines are counted; events and JSON
//! contain them.

use std::time::{Duration, Instant};

/// Maximum number of lines in a burst.
const BURST: u32 = 32;
/// Interval after which one more line is allowed.
const REFILL_INTERVAL: Duration = Duration::from_millis(500);

/// A token bucket with one token for each line.
#[derive(Debug)]
pub(super) struct RateLimiter {
    /// Number of tokens at the time `since`.
    tokens: u32,
    since: Option<Instant>,
    suppressed: u64,
}

impl RateLimiter {
    pub(super) const fn new() -> Self {
        RateLimiter { tokens: BURST, since: None, suppressed: 0 }
    }

    /// Whether a line may be written now. If not, it is counted as suppressed.
    pub(super) fn allows(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let lines = now.saturating_duration_since(since).as_millis() / REFILL_INTERVAL.as_millis();
        let lines = u32::try_from(lines).unwrap_or(BURST).min(BURST);
        if lines > 0 {
            self.tokens = (self.tokens + lines).min(BURST);
            self.since = Some(now);
        }
        match self.tokens.checked_sub(1) {
            Some(room) => {
                self.tokens = room;
                true
            }
            None => {
                self.suppressed += 1;
                false
            }
        }
    }

    /// The number of lines suppressed since the last call; `None` without any.
    pub(super) fn take_suppressed(&mut self) -> Option<u64> {
        Some(std::mem::take(&mut self.suppressed)).filter(|count| *count > 0)
    }
}

/// The notice about suppressed lines.
pub(super) fn suppressed_notice(count: u64) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("saggar: {count} more line{s} left out; --status-fd and --log-format json have all of them")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_and_counted() {
        let (mut flood, begin) = (RateLimiter::new(), Instant::now());
        let written = (0..1000).filter(|_| flood.allows(begin)).count();
        assert_eq!(written, BURST as usize);
        assert_eq!(flood.take_suppressed(), Some(1000 - u64::from(BURST)));
        assert_eq!(flood.take_suppressed(), None);
        assert!(!flood.allows(begin + REFILL_INTERVAL / 2));
        assert!(flood.allows(begin + REFILL_INTERVAL));
        assert_eq!(flood.take_suppressed(), Some(1));
        assert!(flood.allows(begin + REFILL_INTERVAL * 100));
        assert_eq!(
            (0..1000).filter(|_| flood.allows(begin + REFILL_INTERVAL * 100)).count(),
            BURST as usize - 1
        );
    }

    #[test]
    fn lines_that_come_now_and_then_are_all_written() {
        let (mut flood, begin) = (RateLimiter::new(), Instant::now());
        assert!((0..1000).all(|n| flood.allows(begin + REFILL_INTERVAL * n)));
    }
}
