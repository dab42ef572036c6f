//! Time limits for tests in CPU time, so that a busy machine does not fail a test.

use nix::time::ClockId;
use std::time::Duration;

/// Measures the CPU time of this thread.
pub(crate) struct Worked(Duration);

impl Worked {
    pub(crate) fn begin() -> Self {
        Worked(now())
    }

    /// Fails if more CPU time was used.
    #[track_caller]
    pub(crate) fn at_most(&self, most: Duration, what: &str) {
        let worked = now() - self.0;
        assert!(worked < most, "{what}: {worked:?}");
    }
}

fn now() -> Duration {
    ClockId::CLOCK_THREAD_CPUTIME_ID.now().unwrap().into()
}
