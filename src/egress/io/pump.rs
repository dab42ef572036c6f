//! One direction of a connection: what is read on one side is written on the other, with at most one chunk on its way.

use std::io::{ErrorKind, Read, Result, Write};
use std::net::Shutdown;

/// Bytes that one direction may move before the others have their turn.
const SHARE: usize = 512 << 10;

/// Bytes on their way from one stream to another.
#[derive(Debug, Default)]
pub(super) struct Pump {
    /// What was read and is not written.
    left: Vec<u8>,
    written: usize,
    /// The reader's end was seen.
    ended: bool,
    /// And told to the writer.
    told: bool,
    /// Bytes that the writer has taken.
    moved: u64,
}

/// How far it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// Until one of the streams has something new.
    Waits,
    /// There may be more at once.
    Goes,
    /// All is moved, and the end is told.
    Over,
    /// The writer takes no more.
    Refused,
}

impl Pump {
    /// Has these bytes written before any others.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.left.extend_from_slice(bytes);
    }

    /// Nothing more can be written.
    pub(super) fn give_up(&mut self) -> Flow {
        *self = Pump { ended: true, told: true, moved: self.moved, ..Pump::default() };
        Flow::Over
    }

    /// Whether all is moved, and the end is told.
    pub(super) fn is_over(&self) -> bool {
        self.told
    }

    /// Bytes that the writer has taken.
    pub(super) fn moved(&self) -> u64 {
        self.moved
    }

    /// The reader has ended.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// Writes what was read or pushed; whether nothing of it is left.
    ///
    /// # Errors
    /// A stream that was reset.
    pub(super) fn write(&mut self, mut to: &mio::net::TcpStream) -> Result<bool> {
        while let Some(rest) = self.left.get(self.written..).filter(|rest| !rest.is_empty()) {
            match again(|| to.write(rest))? {
                Some(count) => {
                    self.written += count;
                    self.moved += count as u64;
                }
                None => return Ok(false),
            }
        }
        // A large buffer is not kept for a connection that is at rest.
        self.left = Vec::new();
        self.written = 0;
        Ok(true)
    }

    /// Moves what can be moved now.
    ///
    /// # Errors
    /// The reader was reset.
    pub(super) fn flow(
        &mut self,
        mut from: &mio::net::TcpStream,
        mut to: &mio::net::TcpStream,
        chunk: &mut [u8],
    ) -> Result<Flow> {
        let mut share = SHARE;
        loop {
            match self.write(to) {
                Ok(true) => {}
                Ok(false) => return Ok(Flow::Waits),
                Err(_) => return Ok(Flow::Refused),
            }
            if self.ended {
                let told = std::mem::replace(&mut self.told, true) || to.shutdown(Shutdown::Write).is_ok();
                return Ok(if told { Flow::Over } else { Flow::Refused });
            }
            if share == 0 {
                return Ok(Flow::Goes);
            }
            match again(|| from.read(chunk))? {
                None => return Ok(Flow::Waits),
                Some(0) => self.ended = true,
                Some(count) => {
                    share = share.saturating_sub(count);
                    let read = chunk.get(..count).unwrap_or_default();
                    let Ok(written) = again(|| to.write(read)) else { return Ok(Flow::Refused) };
                    let written = written.unwrap_or(0);
                    self.moved += written as u64;
                    self.left.extend_from_slice(read.get(written..).unwrap_or_default());
                }
            }
        }
    }
}

/// Calls again after an interruption; `None` when the stream would have to wait.
pub(super) fn again(mut call: impl FnMut() -> Result<usize>) -> Result<Option<usize>> {
    loop {
        match call() {
            Ok(count) => return Ok(Some(count)),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}
