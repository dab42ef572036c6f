//! The moment after which a test stops waiting and fails.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Generous, since it is only ever reached by a failure: a loaded machine must not look like a bug.
const PATIENCE: Duration = Duration::from_secs(60);
/// Long enough for a start of a process, and too short to be noticed.
const LOOK: Duration = Duration::from_millis(2);

/// A point in time that every wait of one operation shares.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    /// The usual patience, from now.
    pub(crate) fn usual() -> Self {
        Deadline::after(PATIENCE)
    }

    /// `patience` from now.
    pub(crate) fn after(patience: Duration) -> Self {
        Deadline(Instant::now() + patience)
    }

    /// What is left, zero when it has passed.
    pub(crate) fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// A moment between two looks at what sends no event. Without it the looks would take the processor from what they wait
    /// for.
    pub(crate) fn pause(self) {
        std::thread::sleep(LOOK.min(self.remaining()));
    }

    /// Blocks until `source` is readable (or at its end), or fails with [`io::ErrorKind::TimedOut`].
    pub(crate) fn readable(self, source: impl AsFd) -> io::Result<()> {
        loop {
            // Round up, so that the last poll does not spin through a fraction of a millisecond.
            let millis = self.remaining().as_micros().div_ceil(1000);
            let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
            let mut polled = [PollFd::new(source.as_fd(), PollFlags::POLLIN)];
            match poll(&mut polled, timeout) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Reads `source` to its end, or fails with [`io::ErrorKind::TimedOut`].
    pub(crate) fn read_to_end(self, source: &mut (impl Read + AsFd)) -> io::Result<Vec<u8>> {
        let (mut bytes, mut chunk) = (Vec::new(), vec![0; 64 * 1024]);
        loop {
            self.readable(&*source)?;
            match source.read(&mut chunk)? {
                0 => return Ok(bytes),
                count => bytes.extend_from_slice(&chunk[..count]),
            }
        }
    }
}
