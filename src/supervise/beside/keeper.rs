//! The keeper: the process beside a container that keeps the runtime's rights over it (DECISIONS 33), while the loop,
//! which reads what the container and its servers say, has none.
//!
//! ```text
//! loop ── Call, pipe ──> keeper ── answer, end of the pipe ──> loop
//!   ^── Told, on a socket for each command ──┘
//! ```
//! Who runs here: a fork of the loop's process from before that had read anything, one thread, with its end of a
//! socketpair and a pidfd of the container's init. It is the parent of commands, which die with it. It has no filter of
//! system calls: programs of the container would inherit that.
//!
//! The end of the socketpair is the end of the loop: the sockets' files are removed, and what is left of commands is
//! killed. The guard sees to the container.

use super::Room;
use super::wire::{Call, How, Told};
use crate::error::Result;
use crate::host::peer::Peers;
use crate::launch::container::Starting;
use crate::supervise::tree;
use crate::supervise::worker::call::{answer, asked};
use crate::supervise::worker::callers;
use crate::sys::{Errno, pidfd, process, scm};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::WaitStatus;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// How far a command is.
enum Far {
    /// It is not yet its program: a container that is frozen, or a file system that does not answer, holds it up for as
    /// long as they like, and nobody else.
    Starts(Starting),
    /// It is this process.
    Runs(i32, OwnedFd),
}

struct Command {
    far: Far,
    /// Where it is told.
    told: OwnedFd,
    /// Nobody wants it any more.
    killed: bool,
}

/// The keeper's whole life: serves `calls` until the loop is gone.
pub(super) fn serve(room: &mut dyn Room, calls: BorrowedFd<'_>) {
    let _ = process::block_signals();
    let _ = process::set_name(c"saggar:keeper");
    let _ = process::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0);
    let mut commands: Vec<Command> = Vec::new();
    loop {
        let ends = commands.iter().filter(|command| !command.killed).map(|command| command.told.as_fd());
        let ways = commands.iter().map(Command::way);
        let watched = std::iter::once(calls).chain(ends).chain(ways);
        let mut fds: Vec<PollFd<'_>> = watched.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return,
        }
        let called = fds[0].any() == Some(true);
        commands.retain_mut(Command::goes_on);
        if called && !hear(room, calls, &mut commands) {
            return;
        }
    }
}

/// Takes one call; false when the loop is gone.
fn hear(room: &mut dyn Room, calls: BorrowedFd<'_>, commands: &mut Vec<Command>) -> bool {
    let Ok(received) = scm::receive(calls, &mut [0; 2]) else { return false };
    let mut fds = received.fds.into_iter().flatten();
    let (1, Some(to), Some(request)) = (received.len, fds.next(), fds.next()) else { return false };
    let call = match asked::<Call>(request) {
        Ok(call) => call,
        Err(error) => return say(to, &Err::<(), _>(error)),
    };
    match call {
        Call::Exec(command) => {
            // Before there is a child that has a copy of the pipe, and may be frozen.
            say(to, &Ok(()));
            commands.extend(exec(room, command, [fds.next(), fds.next(), fds.next()]));
            true
        }
        Call::KillTree(pid) => {
            if commands.iter().any(|command| matches!(command.far, Far::Runs(runs, _) if runs == pid)) {
                tree::kill(pid);
            }
            say(to, &Ok(()))
        }
        Call::Kill => {
            room.kill();
            say(to, &Ok(()))
        }
        Call::Freeze(freeze) => say(to, &room.freeze(freeze)),
        Call::IsFrozen => say(to, &Ok(room.is_frozen())),
        Call::Stats => say(to, &room.stats()),
        Call::Update(resources) => say(to, &room.update(&resources)),
        Call::State => say(to, &Ok(room.state())),
        Call::Exit => say(to, &Ok(room.exit())),
        Call::Signal(signal) => say(to, &room.signal(signal)),
        Call::Judge => say(to, &Ok(judge(fds.next()))),
    }
}

fn say<T: serde::Serialize>(to: OwnedFd, result: &Result<T>) -> bool {
    answer(to, result);
    true
}

/// The number of the verdict, as [`callers::verdict`] has it.
fn judge(connection: Option<OwnedFd>) -> u8 {
    let judged = Peers::of_this_process().ok().zip(connection);
    judged.map_or(u8::MAX, |(peers, connection)| callers::number(&peers, connection.as_fd()))
}

/// Begins a command; `None` when it could not begin, which has been told.
fn exec(room: &mut dyn Room, command: String, [out, err, told]: [Option<OwnedFd>; 3]) -> Option<Command> {
    let (out, err, told) = (out?, err?, told?);
    // Ours is /dev/null.
    let null = std::io::stdin();
    let argv = vec!["/bin/sh".into(), "-c".into(), command.into()];
    match room.exec(argv, [null.as_fd(), out.as_fd(), err.as_fd()]) {
        Ok(starting) => Some(Command { far: Far::Starts(starting), told, killed: false }),
        Err(error) => {
            tell(told.as_fd(), &Told::Failed(error));
            None
        }
    }
}

/// Two words at most for each command: they never fill its socket.
fn tell(to: BorrowedFd<'_>, told: &Told) {
    if let Ok(text) = serde_json::to_vec(told) {
        let _ = scm::send(to, &text, &[]);
    }
}

impl Command {
    /// Readable when it has come further on its way.
    fn way(&self) -> BorrowedFd<'_> {
        match &self.far {
            Far::Starts(starting) => starting.as_fd(),
            Far::Runs(_, pidfd) => pidfd.as_fd(),
        }
    }

    /// Goes as far as it can without waiting; false when it is over, and that has been told.
    fn goes_on(&mut self) -> bool {
        if !self.killed && is_shut(self.told.as_fd()) {
            self.killed = true;
            self.kill();
        }
        match &mut self.far {
            Far::Starts(starting) => match starting.step() {
                Ok(None) => {
                    if self.killed {
                        // What was made just before the intermediate process was killed.
                        starting.kill();
                    }
                    true
                }
                Ok(Some(init)) => {
                    tell(self.told.as_fd(), &Told::Started(init.pid));
                    self.far = Far::Runs(init.pid, init.pidfd);
                    if self.killed {
                        self.kill();
                    }
                    true
                }
                Err(error) => {
                    tell(self.told.as_fd(), &Told::Failed(error));
                    false
                }
            },
            Far::Runs(_, pidfd) if pidfd::has_ended(pidfd.as_fd()) => {
                let how = match pidfd::reap(pidfd.as_fd()) {
                    Ok(WaitStatus::Signaled(_, signal, _)) => How::Killed(signal as i32),
                    Ok(WaitStatus::Exited(_, code)) => How::Exited(code),
                    _ => How::Exited(i32::from(u8::MAX)),
                };
                tell(self.told.as_fd(), &Told::Ended(how));
                false
            }
            Far::Runs(..) => true,
        }
    }

    fn kill(&self) {
        match &self.far {
            Far::Starts(starting) => starting.kill(),
            Far::Runs(pid, _) => tree::kill(*pid),
        }
    }
}

/// Whether the loop says no more here; it never says anything else.
fn is_shut(told: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(told, PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|count| count > 0)
}
