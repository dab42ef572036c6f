//! pid 1 of a sandbox: reaps, starts programs on request, passes signals on, and ends when its supervisor
//! does. It has no capability, its own filter, no environment, and two close-on-exec descriptors: the
//! socketpair to the supervisor, and the trampoline that executes programs.
//!
//! ```text
//! Ready ──> waiting ── Exec ──> fork: the child stops at its gate (program.rs)
//!              │ ^               a copy of pid 1, or, when the gate is open already, its memory lent
//!   SIGCHLD ───┘ └── Exited{id, status}; the last program's end, or the end of the stream, ends it all
//! ```

use super::program::{self, ProgramChildArgs, ProgramStart, ProgramStreams, TRAMPOLINE_FD};
use super::program_args;
use super::wire::{ExecFlags, InitReport, InitRequest};
use crate::stage::call;
use crate::stage::wire::LEN;
use saggar_sys::clone::{self, ChildStack};
use saggar_sys::net::{self, IpFamily};
use saggar_sys::{Errno, SysResult, file, process, scm};
use std::ffi::{CStr, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// Its name, as `ps` shows it.
pub const NAME: &CStr = c"saggar:init";

/// How many programs run at once at most; processes that they start do not count.
const MAX_PROGRAMS: usize = 256;

/// Where the socketpair stands.
const CONTROL_FD: RawFd = 3;

/// The stack of a child on its way to execve.
const STACK: usize = 32 << 10;

#[derive(Clone, Copy)]
struct RunningProgram {
    pid: i32,
    id: u32,
    is_main: bool,
}

/// Serves the supervisor's requests until there is nothing left to do. Never returns.
pub(super) fn serve(control: OwnedFd, trampoline: OwnedFd, start: ProgramStart) -> ! {
    let mut programs: [Option<RunningProgram>; MAX_PROGRAMS] = [None; MAX_PROGRAMS];
    let prepared = prepare(control, trampoline).and_then(|control| Ok((control, ChildStack::new(STACK)?)));
    let Ok((control, stack)) = prepared else { process::exit_now(125) };
    let _ = scm::send(control.as_fd(), &InitReport::Ready.encode(), &[]);
    loop {
        reap(control.as_fd(), &mut programs);
        match wait(control.as_fd()) {
            Ok(true) => handle_request(control.as_fd(), start, &mut programs, &stack),
            Ok(false) => {}
            Err(_) => process::exit_now(125),
        }
    }
}

/// Two descriptors stay: the socketpair, as number 3, and the trampoline. Standard streams of the launcher are let go
/// too.
fn prepare(control: OwnedFd, trampoline: OwnedFd) -> SysResult<OwnedFd> {
    process::block_signals()?;
    // The kernel drops what programs send to a pid 1 that has no handler for it, and the clone has left us
    // none of the launcher's: their frames together overflow the stack that it gave them.
    handle_sigchld()?;
    // Each may stand where the other is to.
    let away =
        |fd: OwnedFd| call!(libc::SYS_fcntl, fd.into_raw_fd(), libc::F_DUPFD_CLOEXEC, TRAMPOLINE_FD + 1);
    let (control, trampoline) = (away(control)?, away(trampoline)?);
    call!(libc::SYS_dup3, control, CONTROL_FD, libc::O_CLOEXEC)?;
    call!(libc::SYS_dup3, trampoline, TRAMPOLINE_FD, libc::O_CLOEXEC)?;
    // SAFETY: everything from 5 up, and 0 to 2, belonged to the launcher's copy of itself.
    unsafe { file::close_from(TRAMPOLINE_FD + 1)? };
    for fd in 0..3 {
        let _ = nix::unistd::close(fd);
    }
    // SAFETY: made above, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(CONTROL_FD) })
}

/// An ignored signal does not interrupt ppoll(2): SIGCHLD gets a handler that does nothing.
fn handle_sigchld() -> SysResult<()> {
    extern "C" fn nothing(_: c_int) {}
    let handler = nix::sys::signal::SigHandler::Handler(nothing);
    let action = nix::sys::signal::SigAction::new(
        handler,
        nix::sys::signal::SaFlags::empty(),
        nix::sys::signal::SigSet::empty(),
    );
    // SAFETY: the handler touches nothing.
    unsafe { nix::sys::signal::sigaction(nix::sys::signal::Signal::SIGCHLD, &action)? };
    Ok(())
}

/// Waits for a request (true) or for a child (false). SIGCHLD is let in only here, so that none is lost, and
/// nothing else ever is.
fn wait(control: BorrowedFd<'_>) -> SysResult<bool> {
    let mut poll = libc::pollfd { fd: control.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let all_but_sigchld = !(1u64 << (libc::SIGCHLD - 1));
    let forever = std::ptr::null::<libc::timespec>();
    match call!(libc::SYS_ppoll, &raw mut poll, 1, forever, &raw const all_but_sigchld, 8usize) {
        Ok(_) => Ok(true),
        Err(Errno::EINTR) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn reap(control: BorrowedFd<'_>, programs: &mut [Option<RunningProgram>; MAX_PROGRAMS]) {
    let mut last = None;
    let alone = loop {
        let mut status = 0;
        let no_usage = std::ptr::null_mut::<libc::rusage>();
        let how = libc::WNOHANG | libc::__WALL;
        match call!(libc::SYS_wait4, -1, &raw mut status, how, no_usage) {
            Ok(0) => break false,
            // Whoever lives here descends from a child of ours: without children we are alone.
            Err(_) => break true,
            // A program that had us trace it (PTRACE_TRACEME) has stopped, and not ended: SIGKILL ends it.
            Ok(_) if libc::WIFSTOPPED(status) => {}
            Ok(pid) => {
                let ended = programs.iter_mut().find(|slot| slot.is_some_and(|p| i64::from(p.pid) == pid));
                match ended.and_then(Option::take) {
                    Some(program) if program.is_main => last = Some((program.id, status)),
                    Some(program) => report_exit(control, program.id, status, false),
                    None => {}
                }
            }
        }
    };
    if let Some((id, status)) = last {
        report_exit(control, id, status, alone);
        process::exit_now(0);
    }
}

fn report_exit(control: BorrowedFd<'_>, id: u32, status: i32, alone: bool) {
    let _ = scm::send(control, &InitReport::Exited { id, status, is_last_process: alone }.encode(), &[]);
}

fn handle_request(
    control: BorrowedFd<'_>,
    start: ProgramStart,
    programs: &mut [Option<RunningProgram>; MAX_PROGRAMS],
    stack: &ChildStack,
) {
    let mut buffer = [0; LEN];
    let Ok(received) = scm::receive(control, &mut buffer) else { process::exit_now(125) };
    match InitRequest::decode(&buffer[..received.len]) {
        Some(InitRequest::Exec { id, flags }) => {
            if let Err(errno) = start_program(programs, start, id, flags, received.fds, stack) {
                let report = InitReport::ForkFailed { id, errno: errno as i32 };
                let _ = scm::send(control, &report.encode(), &[]);
            }
        }
        Some(InitRequest::Signal { id, signal, group }) => {
            if let Some(program) = programs.iter().flatten().find(|program| program.id == id) {
                let sent =
                    if group { call!(libc::SYS_kill, -program.pid, signal) } else { Err(Errno::ESRCH) };
                // One that waits at its exec barrier does not lead a group yet.
                if sent == Err(Errno::ESRCH) {
                    let _ = call!(libc::SYS_kill, program.pid, signal);
                }
            }
        }
        Some(InitRequest::Socket(family)) => send_socket(control, family),
        Some(InitRequest::Go | InitRequest::Trees) => {}
        // The supervisor is gone, or is not who we think.
        None => process::exit_now(125),
    }
}

/// The supervisor reaches servers in here through sockets of this network, and can make none itself.
fn send_socket(control: BorrowedFd<'_>, family: IpFamily) {
    let _ = match net::stream_socket(family) {
        Ok(socket) => scm::send(control, &InitReport::Socket(family).encode(), &[socket.as_raw_fd()]),
        Err(errno) => {
            scm::send(control, &InitReport::SocketFailed { family, errno: errno as i32 }.encode(), &[])
        }
    };
}

fn start_program(
    programs: &mut [Option<RunningProgram>; MAX_PROGRAMS],
    start: ProgramStart,
    id: u32,
    flags: u32,
    fds: [Option<OwnedFd>; scm::MAX_FDS],
    stack: &ChildStack,
) -> SysResult<()> {
    let [Some(program_args), Some(stdin), Some(stdout), Some(stderr), Some(barrier), ..] = fds else {
        return Err(Errno::EBADF);
    };
    let slot = programs.iter_mut().find(|slot| slot.is_none()).ok_or(Errno::EAGAIN)?;
    let streams = ProgramStreams { stdin, stdout, stderr };
    let mut args = ProgramChildArgs {
        program_args,
        streams,
        barrier,
        flags,
        start,
        pages: program_args::MappedPages::default(),
    };
    let pid = if flags & ExecFlags::IMMEDIATE != 0 {
        // SAFETY: `become_lent` changes nothing of ours but `birth`, which outlives the call.
        let pid =
            unsafe { clone::lend_memory(stack, become_program_in_lent_memory, (&raw mut args).cast())? };
        // SAFETY: whoever mapped them is a program by now, in a memory of its own, or is gone.
        unsafe { args.pages.unmap() };
        pid
    } else {
        // SAFETY: this process has one thread, and the child runs only code of `program`, without a heap.
        match unsafe { clone::fork()? } {
            0 => program::become_program(&mut args),
            pid => pid,
        }
    };
    *slot = Some(RunningProgram { pid, id, is_main: flags & ExecFlags::MAIN != 0 });
    Ok(())
}

/// The child that has our memory. Its descriptors, its signals and all else of it are its own.
extern "C" fn become_program_in_lent_memory(args: *mut c_void) -> c_int {
    // SAFETY: `start` gave us its only pointer to it, and stands still.
    program::become_program(unsafe { &mut *args.cast::<ProgramChildArgs>() })
}
