//! The commands that servers run in the container, from their start to their end. The keeper starts them, and reports
//! the status of each on a socket.

use super::keeper_client::KeeperClient;
use super::keeper_wire::{CommandStatus, ProcessExit};
use crate::bridge::core::{ExecId, ExecOutcome};
use crate::error::{Error, Result};
use crate::supervise::channel::execs::{ExecTable, FinishedExec, TreeKiller};
use crate::supervise::registration::register;
use crate::supervise::sandbox::ProgramExit;
use crate::sys::Errno;
use crate::sys::scm::socket_pair;
use mio::{Registry, Token};
use nix::sys::socket::{MsgFlags, Shutdown, recv, shutdown};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;

/// First token of the sockets of commands; the tokens of their streams are below.
const FIRST_TOKEN: usize = 1 << 40;
/// Longest status message of the keeper, in bytes.
const MAX_STATUS_SIZE: usize = 64 << 10;

/// A command that the keeper has accepted.
#[derive(Debug)]
struct SidecarCommand {
    exec: ExecId,
    status: OwnedFd,
    is_killed: bool,
    is_running: bool,
}

/// The result of a command: an error when it could not be started.
pub(super) type CommandEnd = (ExecId, Result<ExecOutcome>);

/// The commands in progress.
#[derive(Debug)]
pub(super) struct SidecarCommands {
    execs: ExecTable,
    next_id: u32,
    commands: BTreeMap<u32, SidecarCommand>,
}

impl SidecarCommands {
    pub(super) fn new(
        environment: Vec<(OsString, OsString)>,
        directory: PathBuf,
        keeper: &Rc<KeeperClient>,
    ) -> Result<Self> {
        let mut execs = ExecTable::new(environment, directory, None)?;
        let room = Rc::clone(keeper);
        execs.set_killer(TreeKiller::new(move |pid| room.kill_tree(pid)));
        Ok(SidecarCommands { execs, next_id: 0, commands: BTreeMap::new() })
    }

    /// Starts a command; [`SidecarCommands::on_event`] returns its result.
    pub(super) fn run(
        &mut self,
        keeper: &KeeperClient,
        registry: &Registry,
        exec: ExecId,
        command: String,
    ) -> Result<()> {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        let begun = &mut self.commands;
        let line = command.clone();
        let run = self.execs.run(registry, exec, command, |_, [_, out, err]| {
            let (told, theirs) = socket_pair()?;
            register(registry, told.as_fd(), Token(FIRST_TOKEN + id as usize))?;
            keeper.start_command(line, [out, err, theirs.as_fd()])?;
            begun.insert(id, SidecarCommand { exec, status: told, is_killed: false, is_running: false });
            Ok(id)
        });
        if run.is_err() {
            self.commands.remove(&id);
        }
        run
    }

    /// Kills a command, whether it runs already or is still being started.
    pub(super) fn kill(&mut self, exec: ExecId) {
        if let Some(begun) = self.commands.values_mut().find(|begun| begun.exec == exec) {
            begun.is_killed = true;
            let _ = shutdown(begun.status.as_raw_fd(), Shutdown::Write);
        }
        self.execs.kill(exec);
    }

    /// Handles an event whose token belongs to no other module.
    pub(super) fn on_event(
        &mut self,
        registry: &Registry,
        token: Token,
        chunk: &mut [u8],
    ) -> Option<CommandEnd> {
        let Some(number) = token.0.checked_sub(FIRST_TOKEN) else {
            self.execs.on_event(registry, token, chunk);
            return None;
        };
        let id = u32::try_from(number).ok()?;
        loop {
            let word = receive_status(self.commands.get(&id)?.status.as_fd())?;
            if let Some(end) = self.on_status(id, word, registry, chunk) {
                return Some(end);
            }
        }
    }

    /// Handles a status message of a command.
    fn on_status(
        &mut self,
        id: u32,
        status: Result<CommandStatus>,
        registry: &Registry,
        chunk: &mut [u8],
    ) -> Option<CommandEnd> {
        let begun = self.commands.get_mut(&id)?;
        let how = match status {
            Ok(CommandStatus::Started(pid)) => {
                begun.is_running = true;
                self.execs.on_barrier(id, pid, || true);
                return None;
            }
            Ok(CommandStatus::Ended(ProcessExit::Exited(code))) => {
                ProgramExit::Exit(u8::try_from(code & 0xff).unwrap_or(u8::MAX))
            }
            Ok(CommandStatus::Ended(ProcessExit::Killed(signal))) => ProgramExit::Signal(signal),
            Ok(CommandStatus::Failed(_)) | Err(_) if begun.is_killed || begun.is_running => {
                ProgramExit::Signal(libc::SIGKILL)
            }
            Ok(CommandStatus::Failed(error)) | Err(error) => {
                let exec = self.remove(id, registry)?;
                self.execs.on_start_failed(id, registry);
                return Some((exec, Err(error)));
            }
        };
        self.remove(id, registry);
        let FinishedExec { exec, outcome, .. } = self.execs.on_exited(id, how, registry, chunk)?;
        Some((exec, Ok(outcome)))
    }

    fn remove(&mut self, id: u32, registry: &Registry) -> Option<ExecId> {
        let begun = self.commands.remove(&id)?;
        let _ = registry.deregister(&mut mio::unix::SourceFd(&begun.status.as_raw_fd()));
        Some(begun.exec)
    }
}

/// The next status message of the keeper, if there is one; an error when the socket is closed.
fn receive_status(socket: BorrowedFd<'_>) -> Option<Result<CommandStatus>> {
    let mut word = vec![0; MAX_STATUS_SIZE];
    match recv(socket.as_raw_fd(), &mut word, MsgFlags::MSG_DONTWAIT) {
        Err(Errno::EAGAIN | Errno::EINTR) => None,
        Ok(length) if length > 0 => Some(serde_json::from_slice(&word[..length]).map_err(|e| {
            Error::system(
                "receive the status of a \
                                                                                    command",
                e,
            )
        })),
        _ => Some(Err(KeeperClient::keeper_exited_error())),
    }
}
