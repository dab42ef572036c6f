//! One direction of a connection: what is read on one side is written on the other, with at most one chunk on its way.
//!
//! Where one read fills a chunk, more is likely to come: then the kernel moves it from socket to socket by a pipe
//! (splice(2)), and it is never copied to this process. A connection has a pipe only while something is in it.

use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice};
use std::io::{ErrorKind, Read, Result, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of one read.
const CHUNK: usize = 64 << 10;

/// Bytes that one direction may move before the others have their turn.
const SHARE: usize = 512 << 10;

/// The most that one splice(2) is asked for.
const PIECE: usize = 1 << 20;

/// Bytes that a pipe has room for, where it may: four times the usual, so that both ends are woken less often. The
/// kernel gives all pipes of an ordinary user a certain room (pipe(7), pipe-user-pages-soft), so that some are wide.
const WIDTH: i32 = 256 << 10;
const MANY: usize = 8;

/// How many are wide now.
static WIDE: AtomicUsize = AtomicUsize::new(0);

/// Where what moves so little at a time costs less when it is copied.
const LITTLE: usize = 16 << 10;

/// What all connections of a loop use one after another.
#[derive(Debug)]
pub(super) struct Room {
    /// For bytes that this process sees.
    pub(super) chunk: Box<[u8]>,
    /// An empty pipe, for those that it does not.
    pipe: Option<Pipe>,
}

/// Bytes on their way that this process does not see.
#[derive(Debug)]
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    /// Bytes in it.
    held: usize,
    /// It counts as one of the wide ones.
    is_wide: bool,
}

/// Bytes on their way from one stream to another.
#[derive(Debug, Default)]
pub(super) struct Pump {
    /// What was read and is not written.
    left: Vec<u8>,
    written: usize,
    /// What comes after that.
    pipe: Option<Pipe>,
    /// There is much to move.
    is_bulk: bool,
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
    room: &mut Room,
) -> Result<Flow> {
    let went = if holds { Flow::Waits } else { out.flow(inner, outer, room)? };
    // What the other side has said before it takes nothing more may be why.
    let went = if went == Flow::Refused { out.give_up() } else { went };
    Ok(match (went, back.flow(outer, inner, room)?) {
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
        from: &mio::net::TcpStream,
        to: &mio::net::TcpStream,
        room: &mut Room,
    ) -> Result<Flow> {
        let mut moved = 0;
        loop {
            match self.write(to).and_then(|all| Ok(all && self.drain(to, room)?)) {
                Ok(true) => {}
                Ok(false) => return Ok(Flow::Waits),
                Err(_) => return Ok(Flow::Refused),
            }
            if self.ended {
                let told = std::mem::replace(&mut self.told, true) || to.shutdown(Shutdown::Write).is_ok();
                return Ok(if told { Flow::Over } else { Flow::Refused });
            }
            if moved >= SHARE {
                return Ok(Flow::Goes);
            }
            // Without a pipe, copies do.
            let pipe = if self.is_bulk { room.pipe.take().or_else(|| Pipe::new().ok()) } else { None };
            let took = match pipe {
                Some(pipe) => self.take_in(from, pipe, room)?,
                None => self.copy(from, to, &mut room.chunk)?,
            };
            match took {
                None => {
                    self.is_bulk &= moved == 0 || moved >= LITTLE;
                    return Ok(Flow::Waits);
                }
                Some(0) => self.ended = true,
                Some(count) => moved += count,
            }
        }
    }

    /// Reads some and writes what the writer takes of it; how many bytes were read, 0 at the end.
    fn copy(
        &mut self,
        mut from: &mio::net::TcpStream,
        mut to: &mio::net::TcpStream,
        chunk: &mut [u8],
    ) -> Result<Option<usize>> {
        let Some(count) = again(|| from.read(chunk))? else { return Ok(None) };
        let read = chunk.get(..count).unwrap_or_default();
        // One that takes nothing more says so again for what is left.
        let written = again(|| to.write(read)).ok().flatten().unwrap_or(0);
        self.moved += written as u64;
        self.left.extend_from_slice(read.get(written..).unwrap_or_default());
        self.is_bulk = count == chunk.len();
        Ok(Some(count))
    }

    /// Takes in what there is by a pipe; how many bytes that was, 0 at the end.
    fn take_in(
        &mut self,
        from: &mio::net::TcpStream,
        mut pipe: Pipe,
        room: &mut Room,
    ) -> Result<Option<usize>> {
        let took = pipe.fill(from);
        let place = if pipe.held > 0 { &mut self.pipe } else { &mut room.pipe };
        *place = Some(pipe);
        took
    }

    /// Gives away what was taken in; whether nothing of it is left.
    fn drain(&mut self, to: &mio::net::TcpStream, room: &mut Room) -> Result<bool> {
        let Some(pipe) = &mut self.pipe else { return Ok(true) };
        let is_empty = pipe.empty(to, &mut self.moved)?;
        if is_empty {
            room.pipe = self.pipe.take();
        }
        Ok(is_empty)
    }
}

impl Default for Room {
    fn default() -> Self {
        Room { chunk: vec![0; CHUNK].into_boxed_slice(), pipe: None }
    }
}

impl Pipe {
    fn new() -> Result<Self> {
        let mut pipe = Pipe::narrow()?;
        let more = |wide| (wide < MANY).then_some(wide + 1);
        pipe.is_wide = WIDE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if pipe.is_wide {
            // It does as it is, where the user has no more room.
            let _ = fcntl(&pipe.write, FcntlArg::F_SETPIPE_SZ(WIDTH));
        }
        Ok(pipe)
    }

    /// As wide as the kernel makes it.
    fn narrow() -> Result<Self> {
        let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        Ok(Pipe { read, write, held: 0, is_wide: false })
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

impl Drop for Pipe {
    fn drop(&mut self) {
        if self.is_wide {
            WIDE.fetch_sub(1, Ordering::Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_pipes_are_wide_and_the_room_of_one_that_is_gone_is_given_again() {
        let width = |pipe: &Pipe| fcntl(&pipe.write, FcntlArg::F_GETPIPE_SZ).unwrap();
        let usual = width(&Pipe::narrow().unwrap());
        for _ in 0..2 {
            let pipes: Vec<Pipe> = (0..MANY + 3).map(|_| Pipe::new().unwrap()).collect();
            let (wide, narrow) = pipes.iter().map(width).partition::<Vec<_>, _>(|width| *width == WIDTH);
            assert_eq!((wide.len(), narrow), (MANY, vec![usual; 3]));
        }
    }
}
