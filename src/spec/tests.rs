//! How long a test has worked: a machine that is busy with something else is no defect.

use nix::time::ClockId;
use std::time::Duration;

/// Counts the processor time of this thread.
pub(crate) struct Worked(Duration);

impl Worked {
    pub(crate) fn begin() -> Self {
        Worked(now())
    }

    /// Fails when it was more than this.
    #[track_caller]
    pub(crate) fn at_most(&self, most: Duration, what: &str) {
        let worked = now() - self.0;
        assert!(worked < most, "{what}: {worked:?}");
    }
}

fn now() -> Duration {
    ClockId::CLOCK_THREAD_CPUTIME_ID.now().unwrap().into()
}
