//! The commands that servers run in the container, from the first step of their start to their end.

use super::Room;
use crate::bridge::core::{ExecId, Outcome};
use crate::error::Result;
use crate::launch::container::{Init, Starting};
use crate::supervise::sandbox::{Ended, register};
use crate::supervise::talk::execs::{Execs, Over};
use crate::sys::pidfd;
use mio::{Registry, Token};
use nix::sys::wait::WaitStatus;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// Tokens of the ends of commands, and of commands that are on their way; those of their streams are below.
const ENDS: usize = 1 << 40;
const STARTS: usize = 1 << 41;

/// A command that is not yet its program: a container that is frozen, or a file system that does not answer, holds
/// it up for as long as they like, and nobody else.
#[derive(Debug)]
struct Begun {
    exec: ExecId,
    process: Starting,
    killed: bool,
}

/// What a command came to: an error when it could not start.
pub(super) type End = (ExecId, Result<Outcome>);

/// The commands that go on.
#[derive(Debug)]
pub(super) struct Commands {
    execs: Execs,
    next: u32,
    starting: BTreeMap<u32, Begun>,
    running: BTreeMap<u32, OwnedFd>,
}

impl Commands {
    pub(super) fn new(environment: Vec<(OsString, OsString)>, directory: PathBuf) -> Self {
        Commands {
            execs: Execs::new(environment, directory, None),
            next: 0,
            starting: BTreeMap::new(),
            running: BTreeMap::new(),
        }
    }

    /// Begins the start of a command; what becomes of it is heard by [`Commands::ready`].
    pub(super) fn run(
        &mut self,
        room: &mut dyn Room,
        registry: &Registry,
        exec: ExecId,
        command: String,
    ) -> Result<()> {
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        let starting = &mut self.starting;
        let run = self.execs.run(registry, exec, command, |program, streams| {
            let process = room.exec(program, streams)?;
            register(registry, process.as_fd(), Token(STARTS + id as usize))?;
            starting.insert(id, Begun { exec, process, killed: false });
            Ok(id)
        });
        if run.is_err() {
            self.starting.remove(&id);
        }
        run
    }

    /// Kills a command, however far it is.
    pub(super) fn kill(&mut self, exec: ExecId) {
        if let Some(begun) = self.starting.values_mut().find(|begun| begun.exec == exec) {
            begun.killed = true;
            begun.process.kill();
        }
        self.execs.kill(exec);
    }

    /// Handles an event that is nobody else's.
    pub(super) fn ready(&mut self, registry: &Registry, token: Token, chunk: &mut [u8]) -> Option<End> {
        if let Some(number) = token.0.checked_sub(STARTS) {
            return self.starts(u32::try_from(number).ok()?, registry, chunk);
        }
        if let Some(number) = token.0.checked_sub(ENDS) {
            return self.ended(u32::try_from(number).ok()?, registry, chunk);
        }
        self.execs.ready(registry, token, chunk);
        None
    }

    /// A command has come further on its way.
    fn starts(&mut self, id: u32, registry: &Registry, chunk: &mut [u8]) -> Option<End> {
        let mut begun = self.starting.remove(&id)?;
        let started = match begun.process.step() {
            Ok(None) => {
                if begun.killed {
                    // What was made just before the intermediate process was killed.
                    begun.process.kill();
                }
                self.starting.insert(id, begun);
                return None;
            }
            Ok(Some(init)) => self.runs(id, init, registry),
            Err(error) => Err(error),
        };
        deregister(registry, begun.process.as_fd());
        match started {
            Ok(()) => None,
            Err(_) if begun.killed => self.over(id, Ended::Signal(libc::SIGKILL), registry, chunk),
            Err(error) => {
                self.execs.not_run(id, registry);
                Some((begun.exec, Err(error)))
            }
        }
    }

    fn runs(&mut self, id: u32, init: Init, registry: &Registry) -> Result<()> {
        let Init { pid, pidfd, .. } = init;
        if let Err(error) = register(registry, pidfd.as_fd(), Token(ENDS + id as usize)) {
            let _ = pidfd::signal(pidfd.as_fd(), libc::SIGKILL);
            let _ = pidfd::reap(pidfd.as_fd());
            return Err(error);
        }
        self.running.insert(id, pidfd);
        self.execs.waiting(id, pid, || true);
        Ok(())
    }

    fn ended(&mut self, id: u32, registry: &Registry, chunk: &mut [u8]) -> Option<End> {
        let ended = self.running.remove(&id)?;
        deregister(registry, ended.as_fd());
        let how = match pidfd::reap(ended.as_fd()) {
            Ok(WaitStatus::Signaled(_, signal, _)) => Ended::Signal(signal as i32),
            Ok(WaitStatus::Exited(_, code)) => Ended::Exit(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
            _ => Ended::Exit(u8::MAX),
        };
        self.over(id, how, registry, chunk)
    }

    fn over(&mut self, id: u32, how: Ended, registry: &Registry, chunk: &mut [u8]) -> Option<End> {
        let Over { exec, outcome, .. } = self.execs.exited(id, how, registry, chunk)?;
        Some((exec, Ok(outcome)))
    }
}

fn deregister(registry: &Registry, fd: BorrowedFd<'_>) {
    let _ = registry.deregister(&mut mio::unix::SourceFd(&fd.as_raw_fd()));
}
