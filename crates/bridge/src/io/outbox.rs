//! Buffered output of a connection.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};

/// Small chunks are joined up to this size, in bytes, so that they are sent in one write.
const MAX_JOINED_SIZE: usize = 64 << 10;

/// A queue of bytes for a non-blocking writer.
#[derive(Debug, Default)]
pub struct Outbox {
    chunks: VecDeque<Vec<u8>>,
    /// Number of bytes of the first chunk that were written.
    written: usize,
    len: usize,
}

impl Outbox {
    /// Adds bytes. They are not split across chunks, so that they are sent in one write if possible.
    pub fn push(&mut self, bytes: Vec<u8>) {
        self.len += bytes.len();
        match self.chunks.back_mut() {
            Some(last) if last.len() + bytes.len() <= MAX_JOINED_SIZE => last.extend_from_slice(&bytes),
            _ => self.chunks.push_back(bytes),
        }
    }

    /// Writes as many bytes as `to` accepts now, and returns their number.
    ///
    /// # Errors
    /// The error of the writer, except `WouldBlock` and `Interrupted`.
    pub fn write_to(&mut self, to: &mut impl Write) -> io::Result<usize> {
        let mut total = 0;
        while let Some(first) = self.chunks.front() {
            match to.write(&first[self.written..]) {
                Ok(0) if !first.is_empty() => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    total += count;
                    self.written += count;
                    self.len -= count;
                    if self.written == first.len() {
                        self.chunks.pop_front();
                        self.written = 0;
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(total)
    }

    /// Number of buffered bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Discards all buffered bytes.
    pub fn clear(&mut self) {
        *self = Outbox::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts a few bytes per write, then blocks.
    struct Narrow {
        taken: Vec<u8>,
        room: usize,
    }

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.room).min(3);
            if count == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            self.room -= count;
            self.taken.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn bytes_leave_in_order_however_little_is_taken_at_a_time() {
        let mut outbox = Outbox::default();
        let mut to = Narrow { taken: Vec::new(), room: 0 };
        let mut all = Vec::new();
        for size in [1usize, 70_000, 5, 64 << 10, 2] {
            let piece = vec![u8::try_from(size % 251).unwrap(); size];
            all.extend_from_slice(&piece);
            outbox.push(piece);
            to.room = 40_000;
            outbox.write_to(&mut to).unwrap();
        }
        while !outbox.is_empty() {
            to.room = 10_000;
            outbox.write_to(&mut to).unwrap();
        }
        assert!(to.taken == all);
    }
}
