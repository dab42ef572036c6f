//! One direction of the relay: a bounded buffer between two descriptors, without the descriptors.
//!
//! It is filled only when it is empty, so bytes never change places, and a sink that takes nothing holds the
//! source back: what stays unread fills the kernel's own buffer, and then the writer waits.

use crate::sys::{Errno, SysResult};

/// More than a terminal hands over at once (4 KiB of the kernel's page), enough for a paste.
const SIZE: usize = 64 * 1024;

/// What became of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Bytes have moved: another step may move more.
    Moved,
    /// The source has nothing now.
    Starved,
    /// The sink takes nothing now, and bytes wait for it.
    Stalled,
    /// The source has hung up.
    Ended,
    /// The sink refuses for good; the bytes are gone.
    Refused(Errno),
}

/// The buffer: `bytes[start..end]` waits for the sink.
#[derive(Debug)]
pub(super) struct Flow {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Flow {
    /// An empty one.
    pub(super) fn new() -> Self {
        Flow { bytes: vec![0; SIZE].into_boxed_slice(), start: 0, end: 0 }
    }

    /// Whether nothing waits for the sink.
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Forgets what waits.
    pub(super) fn clear(&mut self) {
        self.start = self.end;
    }

    /// Reads once when nothing waits, then writes once. Both must be non-blocking.
    pub(super) fn step(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> SysResult<usize>,
        write: impl FnOnce(&[u8]) -> SysResult<usize>,
    ) -> Step {
        if self.is_empty() {
            match read(&mut self.bytes) {
                // A terminal whose other side has closed answers EIO, one that was hung up 0 (pty(7)).
                Ok(0) | Err(Errno::EIO) => return Step::Ended,
                Ok(count) => (self.start, self.end) = (0, count.min(SIZE)),
                Err(_) => return Step::Starved,
            }
        }
        match write(&self.bytes[self.start..self.end]) {
            Ok(0) | Err(Errno::EAGAIN | Errno::EINTR) => Step::Stalled,
            Ok(count) => {
                self.start = self.end.min(self.start + count);
                Step::Moved
            }
            Err(errno) => {
                self.clear();
                Step::Refused(errno)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_read(_: &mut [u8]) -> SysResult<usize> {
        panic!("a buffer with bytes in it is not filled")
    }

    fn hello(buffer: &mut [u8]) -> SysResult<usize> {
        buffer[..5].copy_from_slice(b"hello");
        Ok(5)
    }

    #[test]
    fn a_sink_that_stalls_holds_the_source_back_and_nothing_is_lost() {
        let mut flow = Flow::new();
        assert_eq!(flow.step(hello, |_| Err(Errno::EAGAIN)), Step::Stalled);
        let mut seen = Vec::new();
        while !flow.is_empty() {
            let step = flow.step(no_read, |bytes| {
                seen.push(bytes[0]);
                Ok(1)
            });
            assert_eq!(step, Step::Moved);
        }
        assert_eq!(seen, b"hello");
    }

    #[test]
    fn the_end_of_the_source_and_of_the_sink_are_told() {
        let nothing = |_: &[u8]| panic!("there is nothing to write");
        let mut flow = Flow::new();
        assert_eq!(flow.step(|_| Err(Errno::EAGAIN), nothing), Step::Starved);
        assert_eq!(flow.step(|_| Err(Errno::EIO), nothing), Step::Ended);
        assert_eq!(flow.step(|_| Ok(0), nothing), Step::Ended);
        assert_eq!(flow.step(hello, |_| Err(Errno::EBADF)), Step::Refused(Errno::EBADF));
        assert!(flow.is_empty());
    }
}
