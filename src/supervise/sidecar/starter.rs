//! The starter: a process next to a container that only starts commands in it.
//!
//! ```text
//! keeper ── request, streams ──> starter ── clone, setns, execve ──> command
//!   ^──── report, pidfd ────────────┘ <──────────── exit ──────────────┘
//! ```
//! Process: a fork of the keeper, created before that read any data; one thread. It has no seccomp filter, no
//! no_new_privs and no Landlock domain, since commands would inherit them: commands are confined by the container's
//! configuration alone. It therefore has no parser. It accepts one kind of request, of a fixed form and a checked
//! length ([`starter_wire`]), from the keeper alone.
//!
//! It is the parent of the commands, which die with it, and it dies with the keeper.

use super::ExecStarter;
use super::keeper_wire::{CommandStatus, ProcessExit};
use super::starter_wire::{self, ExecReport, ExecStreams, MAX_FAILURE, REQUEST_BUFFER};
use crate::error::{Error, Result};
use crate::launch::container::PendingExec;
use crate::sys::{Errno, SysResult, caps, pidfd, process, scm};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::WaitStatus;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// Capabilities that a start needs, in addition to those of the command: to join namespaces (SYS_ADMIN, SYS_CHROOT,
/// SYS_PTRACE for a pidfd of another user's process), to become the command's user (SETGID, SETUID, SETPCAP), to give
/// its pipes to that user (CHOWN), to enter a directory and a cgroup of any owner (DAC_OVERRIDE, DAC_READ_SEARCH), to
/// raise its limits and priorities as configured (SYS_RESOURCE, SYS_NICE), and to kill it during the start (KILL).
pub(super) const REQUIRED_CAPABILITIES: u64 = 1 << caps::CHOWN
    | 1 << caps::DAC_OVERRIDE
    | 1 << caps::DAC_READ_SEARCH
    | 1 << caps::KILL
    | 1 << caps::SETGID
    | 1 << caps::SETUID
    | 1 << caps::SETPCAP
    | 1 << caps::SYS_CHROOT
    | 1 << caps::SYS_PTRACE
    | 1 << caps::SYS_ADMIN
    | 1 << caps::SYS_NICE
    | 1 << caps::SYS_RESOURCE;

/// The stage of a command.
enum StartedCommandStage {
    /// It has not executed its program yet: a frozen container, or a file system that does not respond, delays this
    /// command alone.
    Starting(PendingExec),
    /// It runs its program.
    Running(OwnedFd),
}

struct StartedCommand {
    stage: StartedCommandStage,
    report: OwnedFd,
    is_killed: bool,
}

/// Main function of the starter: serves `requests` until the keeper, whose pidfd is `keeper`, has exited.
pub(super) fn serve(starter: &mut dyn ExecStarter, requests: BorrowedFd<'_>, keeper: BorrowedFd<'_>) {
    let _ = process::set_name(c"saggar:starter");
    if let Err(errno) = drop_capabilities(starter.capabilities(), keeper) {
        log::error!("confine the starter of commands: {}", errno.desc());
        return;
    }
    let mut commands: Vec<StartedCommand> = Vec::new();
    loop {
        let reports =
            commands.iter().filter(|command| !command.is_killed).map(|command| command.report.as_fd());
        let events = commands.iter().map(StartedCommand::event_source);
        let watched = [requests, keeper].into_iter().chain(reports).chain(events);
        let mut fds: Vec<PollFd<'_>> = watched.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => break,
        }
        let (is_asked, is_over) = (fds[0].any() == Some(true), fds[1].any() != Some(false));
        if is_over {
            break;
        }
        commands.retain_mut(StartedCommand::advance);
        if is_asked && !receive_request(starter, requests, &mut commands) {
            break;
        }
    }
    // The kernel kills the remaining commands with this process. To wait for one in a frozen container would take
    // forever.
    std::mem::forget(commands);
}

/// Keeps the capabilities of starts and of commands, and sets the parent-death signal for the keeper.
fn drop_capabilities(commands: u64, keeper: BorrowedFd<'_>) -> SysResult<()> {
    let kept = REQUIRED_CAPABILITIES | commands;
    if caps::has(caps::SETPCAP) {
        caps::limit_bounding_set(kept)?;
    }
    let kept = kept & caps::effective();
    caps::set(kept, kept, 0, 0)?;
    process::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0)?;
    process::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64, 0, 0)?;
    if pidfd::has_exited(keeper) { Err(Errno::ESRCH) } else { Ok(()) }
}

/// Handles one request; false when the keeper has exited, or has sent an invalid message.
fn receive_request(
    starter: &mut dyn ExecStarter,
    requests: BorrowedFd<'_>,
    commands: &mut Vec<StartedCommand>,
) -> bool {
    let mut buffer = vec![0; REQUEST_BUFFER];
    let Ok(received) = scm::receive(requests, &mut buffer) else { return false };
    let command = buffer.get(..received.len).and_then(starter_wire::decode_request);
    let (Some(command), Some(streams)) = (command, ExecStreams::from_fds(received.fds)) else { return false };
    commands.extend(start_command(starter, command, streams));
    true
}

/// Starts a command; `None` when that failed, which has been reported.
fn start_command(
    starter: &mut dyn ExecStarter,
    command: &[u8],
    streams: ExecStreams,
) -> Option<StartedCommand> {
    let ExecStreams { stdout: out, stderr: err, reports: report } = streams;
    // Standard input of the starter is /dev/null.
    let null = std::io::stdin();
    let argv = vec!["/bin/sh".into(), "-c".into(), OsStr::from_bytes(command).to_owned()];
    match starter.exec(argv, [null.as_fd(), out.as_fd(), err.as_fd()]) {
        Ok(starting) => {
            Some(StartedCommand { stage: StartedCommandStage::Starting(starting), report, is_killed: false })
        }
        Err(error) => {
            report_failure(report.as_fd(), error);
            None
        }
    }
}

/// At most two reports for each command, so they never fill its socket.
fn send_report(to: BorrowedFd<'_>, report: &ExecReport<'_>, pidfd: Option<BorrowedFd<'_>>) {
    let pidfd = pidfd.map(|pidfd| pidfd.as_raw_fd());
    // It is not an error if the keeper has exited.
    let _ = scm::send(to, &report.encode(), pidfd.as_slice());
}

fn report_failure(to: BorrowedFd<'_>, error: Error) {
    let whole = |error| {
        serde_json::to_vec(&CommandStatus::Failed(error)).ok().filter(|text| text.len() <= MAX_FAILURE)
    };
    let text =
        whole(error).or_else(|| whole(Error::system("start a command", "its error is too long to report")));
    send_report(to, &ExecReport::Failed(&text.unwrap_or_default()), None);
}

impl StartedCommand {
    /// Readable when `advance` has work to do.
    fn event_source(&self) -> BorrowedFd<'_> {
        match &self.stage {
            StartedCommandStage::Starting(starting) => starting.as_fd(),
            StartedCommandStage::Running(pidfd) => pidfd.as_fd(),
        }
    }

    /// Advances without waiting; false when the command has ended and that has been reported.
    fn advance(&mut self) -> bool {
        self.is_killed = self.is_killed || super::is_peer_shut(self.report.as_fd());
        match &mut self.stage {
            StartedCommandStage::Starting(starting) => {
                if self.is_killed {
                    starting.kill();
                }
                match starting.advance() {
                    Ok(None) => {
                        if self.is_killed {
                            // The intermediate process may have created it just before it was killed.
                            starting.kill();
                        }
                        true
                    }
                    Ok(Some(init)) => {
                        send_report(
                            self.report.as_fd(),
                            &ExecReport::Started(init.pid),
                            Some(init.pidfd.as_fd()),
                        );
                        self.stage = StartedCommandStage::Running(init.pidfd);
                        true
                    }
                    Err(error) => {
                        report_failure(self.report.as_fd(), error);
                        false
                    }
                }
            }
            StartedCommandStage::Running(pidfd) if pidfd::has_exited(pidfd.as_fd()) => {
                send_report(self.report.as_fd(), &ExecReport::Ended(reap(pidfd.as_fd())), None);
                false
            }
            StartedCommandStage::Running(_) => true,
        }
    }
}

fn reap(pidfd: BorrowedFd<'_>) -> ProcessExit {
    match pidfd::reap(pidfd) {
        Ok(WaitStatus::Signaled(_, signal, _)) => ProcessExit::Killed(signal as i32),
        Ok(WaitStatus::Exited(_, code)) => ProcessExit::Exited(code),
        _ => ProcessExit::Exited(i32::from(u8::MAX)),
    }
}

/// The keeper's connection to the starter.
#[derive(Debug)]
pub(super) struct StarterClient {
    socket: OwnedFd,
    /// A pidfd: processes that are entering the container may have copies of the starter's sockets.
    starter: OwnedFd,
}

impl StarterClient {
    pub(super) fn new(socket: OwnedFd, starter: OwnedFd) -> Self {
        StarterClient { socket, starter }
    }

    /// Requests the start of a command; returns the keeper's end of its report socket.
    ///
    /// # Errors
    /// [`crate::error::Code::Invalid`] for a command that cannot be a program's argument.
    pub(super) fn request_start(
        &self,
        command: &str,
        out: BorrowedFd<'_>,
        err: BorrowedFd<'_>,
    ) -> Result<OwnedFd> {
        let request = starter_wire::encode_request(command.as_bytes())
            .ok_or_else(|| command_too_long(command.len()))?;
        let (reports, theirs) = scm::socket_pair()?;
        scm::send(self.socket.as_fd(), &request, &[out, err, theirs.as_fd()].map(|fd| fd.as_raw_fd()))
            .map_err(|e| Error::system("have a command started in the container", e.desc()))?;
        Ok(reports)
    }
}

impl AsFd for StarterClient {
    /// Readable when the starter has exited.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.starter.as_fd()
    }
}

fn command_too_long(length: usize) -> Error {
    let most = starter_wire::MAX_COMMAND;
    let message = format!("exec: the command has {length} bytes, and a program takes {most} in one argument");
    Error::new(crate::error::Code::Invalid, message).hint("put it into a file of the container, and run that")
}
