//! One direction of a connection: bytes read from one stream are written to the other, with at most one buffered
//! chunk.
//!
//! If a read fills a chunk, more data probably follows. The kernel then moves it from socket to socket through a pipe
//! (splice(2)), without a copy to this process. A connection holds a pipe only while the pipe contains data.

use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice};
use std::io::{ErrorKind, Read, Result, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Size of one read, in bytes.
const CHUNK_SIZE: usize = 64 << 10;

/// Maximum number of bytes that one direction transfers before others are served.
pub(super) const TRANSFER_BUDGET: u64 = 512 << 10;

/// Maximum size of one splice(2), in bytes.
const MAX_SPLICE: usize = 1 << 20;

/// Size of a wide pipe, in bytes: four times the default, so that both ends wake up less often. The kernel limits the
/// total size of the pipes of an unprivileged user (pipe(7), pipe-user-pages-soft), so only some pipes are wide.
const WIDE_PIPE_SIZE: i32 = 256 << 10;
const MAX_WIDE_PIPES: usize = 8;

/// Number of wide pipes at present.
static WIDE_PIPES: AtomicUsize = AtomicUsize::new(0);

/// Transfers of at most this size are cheaper with a copy.
const SMALL_TRANSFER: usize = 16 << 10;

/// Buffers that all connections of a loop share.
#[derive(Debug)]
pub(super) struct RelayBuffer {
    /// The buffer for copied bytes.
    pub(super) chunk: Box<[u8]>,
    /// An empty pipe, for spliced bytes.
    pipe: Option<SplicePipe>,
}

/// A pipe with spliced bytes.
#[derive(Debug)]
struct SplicePipe {
    read: OwnedFd,
    write: OwnedFd,
    /// Number of bytes in the pipe.
    held: usize,
    /// Whether it counts as a wide pipe.
    is_wide: bool,
}

/// The bytes in transit from one stream to another.
#[derive(Debug, Default)]
pub(super) struct Pump {
    /// Bytes that were read and not written.
    unsent: Vec<u8>,
    written: usize,
    /// Bytes that follow `unsent`.
    pipe: Option<SplicePipe>,
    /// Whether much data follows.
    is_bulk: bool,
    /// The reader has reached the end of file.
    is_read_closed: bool,
    /// The writing side was shut down.
    is_write_closed: bool,
    /// The rest was discarded, because the writer accepts no more.
    is_abandoned: bool,
    /// The reader had not reached the end of file when the rest was discarded.
    is_cut_off: bool,
    /// Number of bytes written.
    moved: u64,
}

/// The result of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// Blocked until a stream has a new event.
    Blocked,
    /// More can be transferred at once.
    More,
    /// All bytes were transferred, and the end of file was passed on.
    Finished,
    /// The writer accepts no more bytes.
    WriterClosed,
    /// The outer stream was reset. What it sent before was transferred.
    OuterReset,
}

/// Transfers both directions between two streams. With `holds_output`, no outbound bytes are transferred.
///
/// # Errors
/// The inner stream was reset.
pub(super) fn relay_both_ways(
    (out, back): (&mut Pump, &mut Pump),
    (inner, outer): (&mio::net::TcpStream, &mio::net::TcpStream),
    holds_output: bool,
    buffer: &mut RelayBuffer,
) -> Result<Flow> {
    let went = if holds_output { Flow::Blocked } else { out.transfer(inner, outer, buffer)? };
    // The last bytes of the peer may explain why it accepts no more, so they are still transferred.
    let went = if went == Flow::WriterClosed { out.abandon() } else { went };
    let Ok(came) = back.transfer(outer, inner, buffer) else { return Ok(Flow::OuterReset) };
    Ok(match (went, came) {
        (_, Flow::WriterClosed) => Flow::WriterClosed,
        (Flow::Finished, Flow::Finished) => Flow::Finished,
        (Flow::More, _) | (_, Flow::More) => Flow::More,
        _ => Flow::Blocked,
    })
}

impl Pump {
    /// Queues bytes to be written before any others.
    pub(super) fn queue(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
    }

    /// Discards the rest: no more can be written.
    pub(super) fn abandon(&mut self) -> Flow {
        *self = Pump {
            is_read_closed: true,
            is_write_closed: true,
            is_abandoned: true,
            is_cut_off: !self.is_read_closed,
            moved: self.moved,
            ..Pump::default()
        };
        Flow::Finished
    }

    /// Whether the rest was discarded.
    pub(super) fn is_abandoned(&self) -> bool {
        self.is_abandoned
    }

    /// Whether the peer of the reader may send more.
    pub(super) fn may_send(&self) -> bool {
        !self.is_read_closed || self.is_cut_off
    }

    /// Whether all bytes were transferred, and the end of file was passed on.
    pub(super) fn is_finished(&self) -> bool {
        self.is_write_closed
    }

    /// Number of bytes written.
    pub(super) fn moved(&self) -> u64 {
        self.moved
    }

    /// Marks the end of file of the reader.
    pub(super) fn close_read(&mut self) {
        self.is_read_closed = true;
    }

    /// Writes bytes that were read or queued; returns whether none are left.
    ///
    /// # Errors
    /// The stream was reset.
    pub(super) fn write(&mut self, mut to: &mio::net::TcpStream) -> Result<bool> {
        while let Some(rest) = self.unsent.get(self.written..).filter(|rest| !rest.is_empty()) {
            match retry_interrupted(|| to.write(rest))? {
                Some(count) => {
                    self.written += count;
                    self.moved += count as u64;
                }
                None => return Ok(false),
            }
        }
        // An idle connection keeps no large buffer.
        self.unsent = Vec::new();
        self.written = 0;
        Ok(true)
    }

    /// Transfers as many bytes as possible without blocking.
    ///
    /// # Errors
    /// The reader was reset.
    pub(super) fn transfer(
        &mut self,
        from: &mio::net::TcpStream,
        to: &mio::net::TcpStream,
        buffer: &mut RelayBuffer,
    ) -> Result<Flow> {
        let mut moved = 0;
        loop {
            match self.write(to).and_then(|all| Ok(all && self.splice_out(to, buffer)?)) {
                Ok(true) => {}
                Ok(false) => return Ok(Flow::Blocked),
                Err(_) => return Ok(Flow::WriterClosed),
            }
            if self.is_read_closed {
                let told = std::mem::replace(&mut self.is_write_closed, true)
                    || to.shutdown(Shutdown::Write).is_ok();
                return Ok(if told { Flow::Finished } else { Flow::WriterClosed });
            }
            if moved as u64 >= TRANSFER_BUDGET {
                return Ok(Flow::More);
            }
            // Without a pipe, the bytes are copied.
            let pipe =
                if self.is_bulk { buffer.pipe.take().or_else(|| SplicePipe::new().ok()) } else { None };
            let took = match pipe {
                Some(pipe) => self.splice_in(from, pipe, buffer)?,
                None => self.copy(from, to, &mut buffer.chunk)?,
            };
            match took {
                None => {
                    self.is_bulk &= moved == 0 || moved >= SMALL_TRANSFER;
                    return Ok(Flow::Blocked);
                }
                Some(0) => self.is_read_closed = true,
                Some(count) => moved += count,
            }
        }
    }

    /// Reads a chunk and writes as much of it as possible; returns the number of bytes read, 0 at end of file.
    fn copy(
        &mut self,
        mut from: &mio::net::TcpStream,
        mut to: &mio::net::TcpStream,
        chunk: &mut [u8],
    ) -> Result<Option<usize>> {
        let Some(count) = retry_interrupted(|| from.read(chunk))? else { return Ok(None) };
        if count == 0 {
            // A write of nothing would take a pending error from the writer, whose other direction has to find it.
            return Ok(Some(0));
        }
        let read = chunk.get(..count).unwrap_or_default();
        // An error of the writer occurs again when the rest is written.
        let written = retry_interrupted(|| to.write(read)).ok().flatten().unwrap_or(0);
        self.moved += written as u64;
        self.unsent.extend_from_slice(read.get(written..).unwrap_or_default());
        self.is_bulk = count == chunk.len();
        Ok(Some(count))
    }

    /// Reads available bytes into a pipe; returns their number, 0 at end of file.
    fn splice_in(
        &mut self,
        from: &mio::net::TcpStream,
        mut pipe: SplicePipe,
        buffer: &mut RelayBuffer,
    ) -> Result<Option<usize>> {
        let took = pipe.fill_from(from);
        let place = if pipe.held > 0 { &mut self.pipe } else { &mut buffer.pipe };
        *place = Some(pipe);
        took
    }

    /// Writes the bytes in the pipe; returns whether none are left.
    fn splice_out(&mut self, to: &mio::net::TcpStream, buffer: &mut RelayBuffer) -> Result<bool> {
        let Some(pipe) = &mut self.pipe else { return Ok(true) };
        let is_empty = pipe.drain_to(to, &mut self.moved)?;
        if is_empty {
            buffer.pipe = self.pipe.take();
        }
        Ok(is_empty)
    }
}

impl Default for RelayBuffer {
    fn default() -> Self {
        RelayBuffer { chunk: vec![0; CHUNK_SIZE].into_boxed_slice(), pipe: None }
    }
}

impl SplicePipe {
    fn new() -> Result<Self> {
        let mut pipe = SplicePipe::narrow()?;
        let more = |wide| (wide < MAX_WIDE_PIPES).then_some(wide + 1);
        pipe.is_wide = WIDE_PIPES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if pipe.is_wide {
            // Without quota for a wide pipe, the default size is used.
            let _ = fcntl(&pipe.write, FcntlArg::F_SETPIPE_SZ(WIDE_PIPE_SIZE));
        }
        Ok(pipe)
    }

    /// Creates a pipe of the default size.
    fn narrow() -> Result<Self> {
        let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        Ok(SplicePipe { read, write, held: 0, is_wide: false })
    }

    /// Reads available bytes; `None` if there are none now, 0 at end of file.
    fn fill_from(&mut self, from: &mio::net::TcpStream) -> Result<Option<usize>> {
        let flags = SpliceFFlags::SPLICE_F_MOVE | SpliceFFlags::SPLICE_F_NONBLOCK;
        let took = retry_interrupted(|| Ok(splice(from, None, &self.write, None, MAX_SPLICE, flags)?))?;
        self.held += took.unwrap_or(0);
        Ok(took)
    }

    /// Writes the held bytes; returns whether none are left.
    fn drain_to(&mut self, to: &mio::net::TcpStream, moved: &mut u64) -> Result<bool> {
        let flags = SpliceFFlags::SPLICE_F_MOVE | SpliceFFlags::SPLICE_F_NONBLOCK;
        while self.held > 0 {
            let Some(gave) = retry_interrupted(|| Ok(splice(&self.read, None, to, None, self.held, flags)?))?
            else {
                return Ok(false);
            };
            self.held = self.held.saturating_sub(gave);
            *moved += gave as u64;
        }
        Ok(true)
    }
}

impl Drop for SplicePipe {
    fn drop(&mut self) {
        if self.is_wide {
            WIDE_PIPES.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Repeats a call after EINTR; `None` if it would block.
pub(super) fn retry_interrupted(mut call: impl FnMut() -> Result<usize>) -> Result<Option<usize>> {
    loop {
        match call() {
            Ok(count) => return Ok(Some(count)),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_pipes_are_wide_and_the_room_of_one_that_is_gone_is_given_again() {
        let width = |pipe: &SplicePipe| fcntl(&pipe.write, FcntlArg::F_GETPIPE_SZ).unwrap();
        let usual = width(&SplicePipe::narrow().unwrap());
        for _ in 0..2 {
            let pipes: Vec<SplicePipe> =
                (0..MAX_WIDE_PIPES + 3).map(|_| SplicePipe::new().unwrap()).collect();
            let (wide, narrow) =
                pipes.iter().map(width).partition::<Vec<_>, _>(|width| *width == WIDE_PIPE_SIZE);
            assert_eq!((wide.len(), narrow), (MAX_WIDE_PIPES, vec![usual; 3]));
        }
    }
}
