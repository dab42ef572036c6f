//! The commands that servers run in the container, from the first step of their start to their end: the keeper starts
//! them, and tells what becomes of each on a socket.

use super::remote::Remote;
use super::wire::{How, Told};
use crate::bridge::core::{ExecId, Outcome};
use crate::error::{Error, Result};
use crate::launch::socket_pair;
use crate::supervise::sandbox::{Ended, register};
use crate::supervise::talk::execs::{Execs, Killer, Over};
use crate::sys::Errno;
use mio::{Registry, Token};
use nix::sys::socket::{MsgFlags, Shutdown, recv, shutdown};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;

/// Tokens of the sockets of commands; those of their streams are below.
const COMMANDS: usize = 1 << 40;
/// The longest word of the keeper, in bytes.
const LONGEST: usize = 64 << 10;

/// A command that the keeper has.
#[derive(Debug)]
struct Begun {
    exec: ExecId,
    told: OwnedFd,
    killed: bool,
    runs: bool,
}

/// What a command came to: an error when it could not start.
pub(super) type End = (ExecId, Result<Outcome>);

/// The commands that go on.
#[derive(Debug)]
pub(super) struct Commands {
    execs: Execs,
    next: u32,
    begun: BTreeMap<u32, Begun>,
}

impl Commands {
    pub(super) fn new(
        environment: Vec<(OsString, OsString)>,
        directory: PathBuf,
        room: &Rc<Remote>,
    ) -> Result<Self> {
        let mut execs = Execs::new(environment, directory, None)?;
        let room = Rc::clone(room);
        execs.part(Killer::new(move |pid| room.kill_tree(pid)));
        Ok(Commands { execs, next: 0, begun: BTreeMap::new() })
    }

    /// Begins the start of a command; what becomes of it is heard by [`Commands::ready`].
    pub(super) fn run(
        &mut self,
        room: &Remote,
        registry: &Registry,
        exec: ExecId,
        command: String,
    ) -> Result<()> {
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        let begun = &mut self.begun;
        let line = command.clone();
        let run = self.execs.run(registry, exec, command, |_, [_, out, err]| {
            let (told, theirs) = socket_pair()?;
            register(registry, told.as_fd(), Token(COMMANDS + id as usize))?;
            room.exec(line, [out, err, theirs.as_fd()])?;
            begun.insert(id, Begun { exec, told, killed: false, runs: false });
            Ok(id)
        });
        if run.is_err() {
            self.begun.remove(&id);
        }
        run
    }

    /// Kills a command, however far it is.
    pub(super) fn kill(&mut self, exec: ExecId) {
        if let Some(begun) = self.begun.values_mut().find(|begun| begun.exec == exec) {
            begun.killed = true;
            let _ = shutdown(begun.told.as_raw_fd(), Shutdown::Write);
        }
        self.execs.kill(exec);
    }

    /// Handles an event that is nobody else's.
    pub(super) fn ready(&mut self, registry: &Registry, token: Token, chunk: &mut [u8]) -> Option<End> {
        let Some(number) = token.0.checked_sub(COMMANDS) else {
            self.execs.ready(registry, token, chunk);
            return None;
        };
        let id = u32::try_from(number).ok()?;
        loop {
            let word = next(self.begun.get(&id)?.told.as_fd())?;
            if let Some(end) = self.hear(id, word, registry, chunk) {
                return Some(end);
            }
        }
    }

    /// A command has come further on its way.
    fn hear(&mut self, id: u32, word: Result<Told>, registry: &Registry, chunk: &mut [u8]) -> Option<End> {
        let begun = self.begun.get_mut(&id)?;
        let how = match word {
            Ok(Told::Started(pid)) => {
                begun.runs = true;
                self.execs.waiting(id, pid, || true);
                return None;
            }
            Ok(Told::Ended(How::Exited(code))) => Ended::Exit(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
            Ok(Told::Ended(How::Killed(signal))) => Ended::Signal(signal),
            Ok(Told::Failed(_)) | Err(_) if begun.killed || begun.runs => Ended::Signal(libc::SIGKILL),
            Ok(Told::Failed(error)) | Err(error) => {
                let exec = self.forget(id, registry)?;
                self.execs.not_run(id, registry);
                return Some((exec, Err(error)));
            }
        };
        self.forget(id, registry);
        let Over { exec, outcome, .. } = self.execs.exited(id, how, registry, chunk)?;
        Some((exec, Ok(outcome)))
    }

    fn forget(&mut self, id: u32, registry: &Registry) -> Option<ExecId> {
        let begun = self.begun.remove(&id)?;
        let _ = registry.deregister(&mut mio::unix::SourceFd(&begun.told.as_raw_fd()));
        Some(begun.exec)
    }
}

/// The next word of the keeper, if there is one; an error when there are no more.
fn next(told: BorrowedFd<'_>) -> Option<Result<Told>> {
    let mut word = vec![0; LONGEST];
    match recv(told.as_raw_fd(), &mut word, MsgFlags::MSG_DONTWAIT) {
        Err(Errno::EAGAIN | Errno::EINTR) => None,
        Ok(length) if length > 0 => {
            Some(serde_json::from_slice(&word[..length]).map_err(|e| Error::system("hear of a command", e)))
        }
        _ => Some(Err(Remote::gone())),
    }
}
