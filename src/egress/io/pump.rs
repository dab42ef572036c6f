//! One direction of a connection: what is read on one side is written on the other, with at most one chunk on its way.
//!
//! Where one read fills a chunk, more is likely to come: then the kernel moves it from socket to socket by a pipe
//! (splice(2)), and it is never copied to this process.

use nix::fcntl::{OFlag, SpliceFFlags, splice};
use std::io::{ErrorKind, Read, Result, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;

/// Bytes that one direction may move before the others have their turn.
const SHARE: usize = 512 << 10;

/// The most that one splice(2) is asked for.
const PIECE: usize = 1 << 20;

/// Bytes on their way that this process does not see.
#[derive(Debug)]
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    /// Bytes in it.
    held: usize,
}

/// Bytes on their way from one stream to another.
#[derive(Debug, Default)]
pub(super) struct Pump {
    /// What was read and is not written.
    left: Vec<u8>,
    written: usize,
    /// What comes after that, while there is much of it.
    pipe: Option<Pipe>,
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

/// Moves both directions between two streams; with `holds`, nothing more goes out yet.
///
/// # Errors
/// A stream was reset.
pub(super) fn exchange(
    (out, back): (&mut Pump, &mut Pump),
    (inner, outer): (&mio::net::TcpStream, &mio::net::TcpStream),
    holds: bool,
    chunk: &mut [u8],
) -> Result<Flow> {
    let went = if holds { Flow::Waits } else { out.flow(inner, outer, chunk)? };
    // What the other side has said before it takes nothing more may be why.
    let went = if went == Flow::Refused { out.give_up() } else { went };
    Ok(match (went, back.flow(outer, inner, chunk)?) {
        (_, Flow::Refused) => Flow::Refused,
        (Flow::Over, Flow::Over) => Flow::Over,
        (Flow::Goes, _) | (_, Flow::Goes) => Flow::Goes,
        _ => Flow::Waits,
    })
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
            match self.pipe.as_mut().map_or(Ok(true), |pipe| pipe.empty(to, &mut self.moved)) {
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
            if let Some(pipe) = &mut self.pipe {
                match pipe.fill(from)? {
                    None => {
                        // One that is at rest keeps no descriptors.
                        self.pipe = None;
                        return Ok(Flow::Waits);
                    }
                    Some(0) => self.ended = true,
                    Some(count) => share = share.saturating_sub(count),
                }
                continue;
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
                    if count == chunk.len() {
                        // Without one, copies do.
                        self.pipe = Pipe::new().ok();
                    }
                }
            }
        }
    }
}

impl Pipe {
    fn new() -> Result<Self> {
        let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        Ok(Pipe { read, write, held: 0 })
    }

    /// Takes in what there is; `None` when that is nothing now, and 0 at the end.
    fn fill(&mut self, from: &mio::net::TcpStream) -> Result<Option<usize>> {
        let flags = SpliceFFlags::SPLICE_F_MOVE | SpliceFFlags::SPLICE_F_NONBLOCK;
        let took = again(|| Ok(splice(from, None, &self.write, None, PIECE, flags)?))?;
        self.held += took.unwrap_or(0);
        Ok(took)
    }

    /// Gives away what it holds; whether nothing is left.
    fn empty(&mut self, to: &mio::net::TcpStream, moved: &mut u64) -> Result<bool> {
        let flags = SpliceFFlags::SPLICE_F_MOVE | SpliceFFlags::SPLICE_F_NONBLOCK;
        while self.held > 0 {
            let Some(gave) = again(|| Ok(splice(&self.read, None, to, None, self.held, flags)?))? else {
                return Ok(false);
            };
            self.held = self.held.saturating_sub(gave);
            *moved += gave as u64;
        }
        Ok(true)
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
