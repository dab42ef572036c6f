//! The wall clock. Durations are measured by [`std::time::Instant`], which no administrator sets.

use std::time::{Duration, SystemTime};

/// The time since 1970. A clock that is set before that counts as zero.
pub fn since_epoch() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

/// [`since_epoch`] in milliseconds.
pub fn epoch_ms() -> u64 {
    u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX)
}
