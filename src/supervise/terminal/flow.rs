//! One direction of the relay: a bounded buffer between two descriptors, without the descriptors.
//!
//! It is filled only when it is empty, so bytes keep their order. A sink that is full stops the source: unread data
//! fills the kernel's own buffer, and then the writer blocks.

use crate::sys::{Errno, SysResult};

/// More than a terminal returns in one read (4 KiB of the kernel's page), enough for a paste.
const BUFFER_SIZE: usize = 64 * 1024;

/// The result of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FlowStep {
    /// Bytes have moved: another step may move more.
    Moved,
    /// The source has no data now.
    SourceEmpty,
    /// The sink is full now, and bytes are buffered for it.
    SinkFull,
    /// The source has hung up.
    SourceClosed,
    /// The sink has failed permanently; the buffered bytes are dropped.
    SinkFailed(Errno),
}

/// The buffer: `bytes[start..end]` is to be written to the sink.
#[derive(Debug)]
pub(super) struct TerminalFlow {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl TerminalFlow {
    /// An empty buffer.
    pub(super) fn new() -> Self {
        TerminalFlow { bytes: vec![0; BUFFER_SIZE].into_boxed_slice(), start: 0, end: 0 }
    }

    /// Whether no bytes are buffered.
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Drops the buffered bytes.
    pub(super) fn clear(&mut self) {
        self.start = self.end;
    }

    /// Reads once if the buffer is empty, then writes once. Both descriptors must be non-blocking.
    pub(super) fn step(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> SysResult<usize>,
        write: impl FnOnce(&[u8]) -> SysResult<usize>,
    ) -> FlowStep {
        if self.is_empty() {
            match read(&mut self.bytes) {
                // A terminal whose other side has closed returns EIO, one that was hung up returns 0 (pty(7)).
                Ok(0) | Err(Errno::EIO) => return FlowStep::SourceClosed,
                Ok(count) => (self.start, self.end) = (0, count.min(BUFFER_SIZE)),
                Err(_) => return FlowStep::SourceEmpty,
            }
        }
        match write(&self.bytes[self.start..self.end]) {
            Ok(0) | Err(Errno::EAGAIN | Errno::EINTR) => FlowStep::SinkFull,
            Ok(count) => {
                self.start = self.end.min(self.start + count);
                FlowStep::Moved
            }
            Err(errno) => {
                self.clear();
                FlowStep::SinkFailed(errno)
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
        let mut flow = TerminalFlow::new();
        assert_eq!(flow.step(hello, |_| Err(Errno::EAGAIN)), FlowStep::SinkFull);
        let mut seen = Vec::new();
        while !flow.is_empty() {
            let step = flow.step(no_read, |bytes| {
                seen.push(bytes[0]);
                Ok(1)
            });
            assert_eq!(step, FlowStep::Moved);
        }
        assert_eq!(seen, b"hello");
    }

    #[test]
    fn the_end_of_the_source_and_of_the_sink_are_told() {
        let nothing = |_: &[u8]| panic!("there is nothing to write");
        let mut flow = TerminalFlow::new();
        assert_eq!(flow.step(|_| Err(Errno::EAGAIN), nothing), FlowStep::SourceEmpty);
        assert_eq!(flow.step(|_| Err(Errno::EIO), nothing), FlowStep::SourceClosed);
        assert_eq!(flow.step(|_| Ok(0), nothing), FlowStep::SourceClosed);
        assert_eq!(flow.step(hello, |_| Err(Errno::EBADF)), FlowStep::SinkFailed(Errno::EBADF));
        assert!(flow.is_empty());
    }
}
