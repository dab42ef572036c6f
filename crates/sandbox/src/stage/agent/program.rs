//! A forked child of pid 1 on its way to being a program: gate, session, streams, directory, filter,
//! execve. It has no capability and pid 1's filter; no heap.
//!
//! It executes the trampoline (`trampoline/main.rs`), which executes the program: while the kernel looks the program
//! up, `/proc/self/exe` is the file of the process that asks, and that must not be saggar's, which lies on a mount of the
//! host.

use super::program_args;
use super::wire::{BarrierReport, ExecFailurePoint, ExecFlags};
use crate::stage::call;
use crate::stage::wire::LEN;
use saggar_sys::{Errno, SysResult, file, process, pty, scm, seccomp};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// What every program of a sandbox starts with.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProgramStart {
    /// The filter.
    pub(super) filter: seccomp::FilterProfile,
    /// The umask: that of the caller, while pid 1 has one of its own.
    pub(super) umask: nix::sys::stat::Mode,
}

/// All that a program is made of.
pub(super) struct ProgramChildArgs {
    pub(super) program_args: OwnedFd,
    pub(super) streams: ProgramStreams,
    pub(super) barrier: OwnedFd,
    /// Bits of [`ExecFlags`].
    pub(super) flags: u32,
    pub(super) start: ProgramStart,
    /// What was mapped on the way.
    pub(super) pages: program_args::MappedPages,
}

/// The standard streams of a program.
pub(super) struct ProgramStreams {
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

/// Where the gate stands for the trampoline.
const BARRIER_FD: RawFd = 3;
/// Where pid 1 has the trampoline, close-on-exec.
pub(super) const TRAMPOLINE_FD: RawFd = 4;

/// Never returns: the gate hears of a failure, or sees the end of the stream at execve.
pub(super) fn become_program(args: &mut ProgramChildArgs) -> ! {
    let (point, errno) = match prepare_and_execute(args) {
        Err(failure) => failure,
        Ok(never) => match never {},
    };
    let report = BarrierReport::Failed { point, errno: errno as i32 };
    // After `arrange_descriptors` the gate is number 3; before, it is where it came.
    for socket in [BARRIER_FD, args.barrier.as_raw_fd()] {
        // SAFETY: a descriptor number to try; sendmsg answers EBADF or ENOTSOCK for a wrong one.
        let socket = unsafe { BorrowedFd::borrow_raw(socket) };
        if scm::send(socket, &report.encode(), &[]).is_ok() {
            break;
        }
    }
    process::exit_now(match point {
        ExecFailurePoint::NotFound => 127,
        ExecFailurePoint::NotExecutable => 126,
        _ => 125,
    })
}

enum Never {}

fn prepare_and_execute(args: &mut ProgramChildArgs) -> Result<Never, (ExecFailurePoint, Errno)> {
    let ProgramChildArgs { program_args, streams, barrier, flags, start, pages } = args;
    let at = |point: ExecFailurePoint| move |errno: Errno| (point, errno);
    // Before anything that can fail: a go that is never read turns the report of a failure into a mere reset.
    await_release(barrier.as_fd()).map_err(at(ExecFailurePoint::Arguments))?;
    let program = program_args::map(program_args.as_fd(), pages).map_err(at(ExecFailurePoint::Arguments))?;
    nix::unistd::setsid().map_err(at(ExecFailurePoint::Session))?;
    if *flags & ExecFlags::SUBREAPER != 0 {
        process::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0).map_err(at(ExecFailurePoint::Session))?;
    }
    if let Some(number) = ExecFlags::terminal_stream(*flags) {
        let stream = [&streams.stdin, &streams.stdout, &streams.stderr][number.min(2)];
        pty::take_controlling(stream.as_fd()).map_err(at(ExecFailurePoint::Session))?;
    }
    arrange_descriptors(streams, barrier).map_err(at(ExecFailurePoint::Streams))?;
    nix::unistd::chdir(program.cwd).map_err(at(ExecFailurePoint::WorkingDirectory))?;
    nix::sys::stat::umask(start.umask);
    // Their actions are the default ones since pid 1's birth, but for SIGCHLD, which execve(2) brings back.
    process::unblock_signals();
    // Programs of the profile nesting inherit the filter of pid 1.
    if start.filter != seccomp::FilterProfile::Nesting {
        let loaded = seccomp::load(seccomp::program(start.filter)).map_err(Errno::from_raw);
        loaded.map_err(at(ExecFailurePoint::Filter))?;
    }
    // SAFETY: block::map made both lists null-terminated lists of strings of the mapped block.
    let errno = unsafe { process::execveat(TRAMPOLINE_FD, program.argv, program.envp) };
    // It is there and sound, so this is about the program: too many arguments, too little memory.
    Err((ExecFailurePoint::NotExecutable, errno))
}

/// Streams to 0, 1, 2; the gate to 3, which the trampoline makes close-on-exec; nothing else stays but that itself.
/// What pid 1 received may stand anywhere: all of it is first moved out of the way.
fn arrange_descriptors(streams: &ProgramStreams, gate: &OwnedFd) -> SysResult<()> {
    const AWAY: RawFd = 16;
    let mut away = [0; 4];
    for (slot, from) in away.iter_mut().zip([&streams.stdin, &streams.stdout, &streams.stderr, gate]) {
        *slot = call!(libc::SYS_fcntl, from.as_raw_fd(), libc::F_DUPFD_CLOEXEC, AWAY)?;
    }
    for (to, from) in (0..).zip(away) {
        call!(libc::SYS_dup3, from, to, 0)?;
    }
    // SAFETY: the owned descriptors above are never used again: this process executes or exits.
    unsafe { file::close_from(TRAMPOLINE_FD + 1) }
}

/// Says "waiting" (the kernel adds our pid) and waits until the supervisor has put us where we belong.
fn await_release(gate: BorrowedFd<'_>) -> SysResult<()> {
    scm::send(gate, &BarrierReport::Waiting.encode(), &[])?;
    let mut buffer = [0; LEN];
    match scm::receive(gate, &mut buffer)?.len {
        0 => Err(Errno::ECANCELED),
        _ => Ok(()),
    }
}
