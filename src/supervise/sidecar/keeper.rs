//! The keeper: a process next to a container that keeps the runtime's rights over it (DECISIONS 33). The loop, which
//! reads data of the container and its servers, has none.
//!
//! ```text
//! loop ── KeeperCall, pipe ──> keeper ── result, end of the pipe ──> loop
//!   ^── CommandStatus, on a socket for each command ──┤
//!                                                     └── request ──> starter ── report ──> keeper
//! ```
//! Process: a fork of the loop's process, created before that read any data; one thread, with its end of a socketpair
//! and a pidfd of the container's init. Before it handles the first call it forks the [`starter`] of
//! commands, which would inherit its seccomp filter, and drops rights that it does not need. Of root's capabilities it
//! keeps [`KEEPER_CAPABILITIES`]; for any user it has no_new_privs and `seccomp/keeper.json`. It has no Landlock
//! domain: a process in a domain cannot inspect processes outside it (Documentation/userspace-api/landlock.rst), and
//! the verification of peers needs that.
//!
//! When the socketpair is closed the loop has exited: the keeper removes the socket files and kills the remaining
//! commands. The guard ends the container. The keeper exits when the starter exits.

use super::keeper_wire::{CommandStatus, KeeperCall};
use super::starter::{self, StarterClient};
use super::starter_wire::{ExecReport, REPORT_BUFFER};
use super::{ContainerHandle, is_peer_shut};
use crate::error::{Error, Result};
use crate::host::peer::PeerPolicy;
use crate::supervise::process_tree;
use crate::supervise::worker::peers;
use crate::supervise::worker::request::{read_request, write_response};
use crate::sys::confine::{self, RetainedRights};
use crate::sys::scm::socket_pair;
use crate::sys::seccomp::{self, HostProcessFilter};
use crate::sys::spawn;
use crate::sys::{Errno, caps, file, pidfd, process, scm};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{Shutdown, shutdown};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Capabilities of a keeper that had them: to write to cgroups and remove sockets of any owner (DAC_OVERRIDE), to
/// signal processes of any user (KILL), and to read the namespaces of a peer and the exit status of the init
/// (SYS_PTRACE; the seccomp filter allows no call that traces).
pub(super) const KEEPER_CAPABILITIES: u64 = 1 << caps::DAC_OVERRIDE | 1 << caps::KILL | 1 << caps::SYS_PTRACE;
/// Kept in addition if systemd created the cgroups: it sets limits for callers with SYS_ADMIN
/// (sd_bus_query_sender_privilege(3)).
const KEEPER_SYSTEMD_CAPABILITIES: u64 = 1 << caps::SYS_ADMIN;

/// The stage of a command.
enum KeptCommandStage {
    /// It has not executed its program yet.
    Starting,
    /// It runs as the process of this pid and pidfd.
    Running(i32, OwnedFd),
}

/// A command of the loop, which the starter has accepted.
struct KeptCommand {
    stage: KeptCommandStage,
    /// The socket for reports of the starter.
    reports: OwnedFd,
    /// The socket for status messages to the loop.
    status: OwnedFd,
    /// The loop has requested its end.
    is_killed: bool,
}

/// Main function of the keeper: serves `calls` until the loop or the starter has exited.
pub(super) fn serve(container: &mut dyn ContainerHandle, calls: BorrowedFd<'_>) {
    let _ = process::block_signals();
    let _ = process::set_name(c"saggar:keeper");
    let _ = process::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0);
    match fork_starter(container).and_then(|requests| confine(container).map(|()| requests)) {
        Ok(requests) => run_loop(container, calls, &requests),
        Err(error) => log::error!("{error}"),
    }
}

/// Forks the starter. It has no end of the loop's socket.
fn fork_starter(container: &mut dyn ContainerHandle) -> Result<StarterClient> {
    let fails = |e: Errno| Error::system("start the starter of commands", e.desc());
    let (told, theirs) = socket_pair()?;
    let keeper = pidfd::open(std::process::id().cast_signed()).map_err(fails)?;
    // The handle's own descriptor; the number is the same in the fork.
    let init = file::borrow_number(container.init().as_raw_fd());
    let kept: Vec<BorrowedFd<'_>> =
        [theirs.as_fd(), keeper.as_fd(), init].into_iter().chain(crate::log::descriptor()).collect();
    let (_, child) = spawn::fork_keeping(&kept, || {
        starter::serve(container, theirs.as_fd(), keeper.as_fd());
        0
    })
    .map_err(fails)?;
    Ok(StarterClient::new(told, child))
}

/// Drops irrevocably every right that no call needs.
fn confine(container: &dyn ContainerHandle) -> Result<()> {
    let capabilities = if container.has_systemd_unit() {
        KEEPER_CAPABILITIES | KEEPER_SYSTEMD_CAPABILITIES
    } else {
        KEEPER_CAPABILITIES
    };
    let load = |()| {
        seccomp::load(HostProcessFilter::Keeper.program())
            .map_err(|errno| ("load the filter", Errno::from_raw(errno)))
    };
    confine::drop_rights(RetainedRights { capabilities, ..RetainedRights::default() }).and_then(load).map_err(
        |(what, errno)| {
            Error::system(format_args!("confine the keeper of the container: {what}"), errno.desc())
        },
    )
}

fn run_loop(container: &mut dyn ContainerHandle, calls: BorrowedFd<'_>, requests: &StarterClient) {
    let mut commands: Vec<KeptCommand> = Vec::new();
    loop {
        let ends = commands.iter().filter(|command| !command.is_killed).map(|command| command.status.as_fd());
        let reports = commands.iter().map(|command| command.reports.as_fd());
        let watched = [calls, requests.as_fd()].into_iter().chain(ends).chain(reports);
        let mut fds: Vec<PollFd<'_>> = watched.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return,
        }
        let (called, is_over) = (fds[0].any() == Some(true), fds[1].any() != Some(false));
        if is_over {
            log::error!("the starter of commands was killed");
            return;
        }
        commands.retain_mut(KeptCommand::advance);
        if called && !receive_call(container, calls, requests, &mut commands) {
            return;
        }
    }
}

/// Handles one call; false when the loop has exited.
fn receive_call(
    container: &mut dyn ContainerHandle,
    calls: BorrowedFd<'_>,
    requests: &StarterClient,
    commands: &mut Vec<KeptCommand>,
) -> bool {
    let Ok(received) = scm::receive(calls, &mut [0; 2]) else { return false };
    let mut fds = received.fds.into_iter().flatten();
    let (1, Some(to), Some(request)) = (received.len, fds.next(), fds.next()) else { return false };
    let call = match read_request::<KeeperCall>(request) {
        Ok(call) => call,
        Err(error) => return send_result(to, &Err::<(), _>(error)),
    };
    match call {
        KeeperCall::StartCommand(command) => {
            // Sent before the request to the starter, which may be slow.
            send_result(to, &Ok(()));
            commands.extend(start_command(requests, &command, [fds.next(), fds.next(), fds.next()]));
            true
        }
        KeeperCall::KillTree(pid) => {
            commands.iter().filter(|command| command.has_pid(pid)).for_each(KeptCommand::kill);
            send_result(to, &Ok(()))
        }
        KeeperCall::Kill => {
            container.kill();
            send_result(to, &Ok(()))
        }
        KeeperCall::Freeze(freeze) => send_result(to, &container.freeze(freeze)),
        KeeperCall::IsFrozen => send_result(to, &Ok(container.is_frozen())),
        KeeperCall::Stats => send_result(to, &container.stats()),
        KeeperCall::Update(resources) => send_result(to, &container.update(&resources)),
        KeeperCall::State => send_result(to, &Ok(container.state())),
        KeeperCall::Exit => send_result(to, &Ok(container.exit())),
        KeeperCall::Signal(signal) => send_result(to, &container.signal(signal)),
        KeeperCall::VerifyPeer => send_result(to, &Ok(verify_peer(fds.next()))),
    }
}

fn send_result<T: serde::Serialize>(to: OwnedFd, result: &Result<T>) -> bool {
    write_response(to, result);
    true
}

/// Verifies a peer; returns the verdict as a number, as [`peers::decode_verdict`] reads it.
fn verify_peer(connection: Option<OwnedFd>) -> u8 {
    let judged = PeerPolicy::of_this_process().ok().zip(connection);
    judged.map_or(u8::MAX, |(peers, connection)| peers::encode_verdict(&peers, connection.as_fd()))
}

/// Requests the start of a command; `None` when that failed, which has been reported to the loop.
fn start_command(
    requests: &StarterClient,
    command: &str,
    [out, err, told]: [Option<OwnedFd>; 3],
) -> Option<KeptCommand> {
    let (out, err, told) = (out?, err?, told?);
    match requests.request_start(command, out.as_fd(), err.as_fd()) {
        Ok(reports) => {
            Some(KeptCommand { stage: KeptCommandStage::Starting, reports, status: told, is_killed: false })
        }
        Err(error) => {
            send_status(told.as_fd(), &CommandStatus::Failed(error));
            None
        }
    }
}

/// At most two messages for each command, so they never fill its socket.
fn send_status(to: BorrowedFd<'_>, status: &CommandStatus) {
    if let Ok(text) = serde_json::to_vec(status) {
        let _ = scm::send(to, &text, &[]);
    }
}

impl KeptCommand {
    fn has_pid(&self, pid: i32) -> bool {
        matches!(self.stage, KeptCommandStage::Running(runs, _) if runs == pid)
    }

    /// Handles the messages of the loop and the starter without waiting; false when the command has ended.
    fn advance(&mut self) -> bool {
        if !self.is_killed && is_peer_shut(self.status.as_fd()) {
            self.is_killed = true;
            self.kill();
        }
        while process::is_ready(self.reports.as_raw_fd(), libc::POLLIN) == Ok(true) {
            if !self.receive_report() {
                return false;
            }
        }
        true
    }

    /// Handles an available report; false when it is the last.
    fn receive_report(&mut self) -> bool {
        let mut buffer = vec![0; REPORT_BUFFER];
        let Ok(received) = scm::receive(self.reports.as_fd(), &mut buffer) else { return false };
        let report = buffer.get(..received.len).and_then(ExecReport::decode);
        let [pidfd, ..] = received.fds;
        match (report, pidfd) {
            (Some(ExecReport::Started(pid)), Some(pidfd)) => {
                send_status(self.status.as_fd(), &CommandStatus::Started(pid));
                self.stage = KeptCommandStage::Running(pid, pidfd);
                if self.is_killed {
                    self.kill();
                }
                true
            }
            (Some(ExecReport::Failed(text)), _) => {
                let _ = scm::send(self.status.as_fd(), text, &[]);
                false
            }
            (Some(ExecReport::Ended(how)), _) => {
                send_status(self.status.as_fd(), &CommandStatus::Ended(how));
                false
            }
            // The starter is about to exit, which its pidfd reports.
            _ => false,
        }
    }

    fn kill(&self) {
        match &self.stage {
            // The starter kills a command when its report socket is shut down.
            KeptCommandStage::Starting => {
                let _ = shutdown(self.reports.as_raw_fd(), Shutdown::Write);
            }
            KeptCommandStage::Running(pid, pidfd) => process_tree::kill_tree_by_pidfd(*pid, pidfd.as_fd()),
        }
    }
}
