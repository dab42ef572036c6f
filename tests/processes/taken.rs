//! A process that a hostile sandbox has taken over: system calls are made in it, by ptrace(2), and what comes back is the
//! kernel's answer to it.

use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::{account, running};
use crate::isolation::wrapped::Wrap;
use crate::session::stage::{Sessions, supervisor};
use crate::support::caller::Caller;
use crate::support::deadline::Deadline;

/// A process that makes the system calls that it is told to, and goes on as before when this is dropped.
pub(crate) struct Taken {
    pid: Pid,
    before: libc::user_regs_struct,
    /// Its tracer is another, and it is to make the call before which it was stopped.
    is_before_call: bool,
}

impl Taken {
    pub(crate) fn over(pid: u32) -> Self {
        let pid = Pid::from_raw(pid.cast_signed());
        ptrace::seize(pid, ptrace::Options::empty()).expect("root may trace it");
        let deadline = Deadline::usual();
        loop {
            ptrace::interrupt(pid).expect("it is seized");
            while let Some(signal) = await_stop(pid) {
                ptrace::cont(pid, signal).expect("it has stopped");
            }
            let before = ptrace::getregs(pid).expect("it has stopped");
            // Calls are made by the instruction that it waits in: `syscall`, 0f 05.
            let instruction = (before.rip - 2) as ptrace::AddressType;
            let word = ptrace::read(pid, instruction).expect("its code is there");
            if word & 0xffff == 0x050f {
                return Taken { pid, before, is_before_call: false };
            }
            assert!(!deadline.remaining().is_zero(), "it waits in no system call");
            ptrace::cont(pid, None).expect("it has stopped");
            deadline.pause();
        }
    }

    /// One that is traced already, and stopped right before a system call, which it makes after this is dropped.
    pub(crate) fn before_call(pid: Pid) -> Self {
        let before = ptrace::getregs(pid).expect("it has stopped");
        // A call that there is none of, in its place.
        ptrace::setregs(pid, libc::user_regs_struct { orig_rax: u64::MAX, ..before })
            .expect("it has stopped");
        step(pid);
        Taken { pid, before, is_before_call: true }
    }

    /// Makes a call with `text` in its memory, whose address is the argument of this number; the error number, or 0.
    pub(crate) fn call(
        &self,
        number: libc::c_long,
        mut arguments: [u64; 6],
        text: Option<(usize, &str)>,
    ) -> i32 {
        let mut registers = self.before;
        // Below the red zone of its stack.
        let place = (registers.rsp - 4096) & !15;
        if let Some((argument, text)) = text {
            let mut bytes = text.as_bytes().to_vec();
            bytes.resize((text.len() + 8) & !7, 0);
            for (word, chunk) in (place..).step_by(8).zip(bytes.chunks(8)) {
                let chunk = i64::from_ne_bytes(chunk.try_into().unwrap());
                ptrace::write(self.pid, word as ptrace::AddressType, chunk).expect("its stack is there");
            }
            arguments[argument] = place;
        }
        // It waits in a system call: the instruction before the next one is `syscall`.
        registers.rip -= 2;
        registers.rax = number.cast_unsigned();
        registers.orig_rax = u64::MAX;
        [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9] = arguments;
        ptrace::setregs(self.pid, registers).expect("it has stopped");
        step(self.pid);
        let result = ptrace::getregs(self.pid).expect("it has stopped").rax.cast_signed();
        if (-4095..0).contains(&result) { i32::try_from(-result).unwrap() } else { 0 }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut registers = self.before;
        if self.is_before_call {
            registers.rip -= 2;
            registers.rax = registers.orig_rax;
            registers.orig_rax = u64::MAX;
            let _ = ptrace::setregs(self.pid, registers);
            return;
        }
        let _ = ptrace::setregs(self.pid, registers);
        let _ = ptrace::detach(self.pid, None);
    }
}

/// Lets it run one instruction.
fn step(pid: Pid) {
    let mut signal = None;
    loop {
        ptrace::step(pid, signal).expect("it has stopped");
        signal = await_stop(pid);
        if signal.is_none() {
            return;
        }
    }
}

/// Waits until it stops. A signal before which it stops, such as that of a child, is returned.
fn await_stop(pid: Pid) -> Option<Signal> {
    match waitpid(pid, Some(WaitPidFlag::__WALL)).expect("it is traced") {
        WaitStatus::PtraceEvent(..) | WaitStatus::Stopped(_, Signal::SIGTRAP) => None,
        WaitStatus::Stopped(_, signal) => Some(signal),
        status => panic!("{status:?}"),
    }
}

/// What a process with root's rights would do first; every one is refused.
pub(crate) fn assert_harmless(process: u32) {
    account::until(process, |account| account.seccomp == 2);
    assert_refused(&Taken::over(process));
}

/// The same of one that [`Taken`] has stopped.
pub(crate) fn assert_refused(taken: &Taken) {
    let int = |value: i32| i64::from(value).cast_unsigned();
    let here = int(libc::AT_FDCWD);
    let read = [here, 0, int(libc::O_RDONLY), 0, 0, 0];
    let write = [here, 0, int(libc::O_WRONLY | libc::O_CREAT), 0o600, 0, 0];
    let flags = int(libc::CLONE_NEWUSER | libc::CLONE_NEWNS);
    let inet = [int(libc::AF_INET), int(libc::SOCK_STREAM), 0, 0, 0, 0];
    let parent = u64::from(std::process::id());
    let mut refused = vec![
        ("read /etc/shadow", taken.call(libc::SYS_openat, read, Some((1, "/etc/shadow")))),
        ("read /etc/passwd", taken.call(libc::SYS_openat, read, Some((1, "/etc/passwd")))),
        ("read its own memory", taken.call(libc::SYS_openat, read, Some((1, "/proc/self/mem")))),
        ("write to /root", taken.call(libc::SYS_openat, write, Some((1, "/root/saggar-taken")))),
        ("write to /tmp", taken.call(libc::SYS_openat, write, Some((1, "/tmp/saggar-taken")))),
        ("become root", taken.call(libc::SYS_setuid, [0; 6], None)),
        ("become root again", taken.call(libc::SYS_setresuid, [0; 6], None)),
        ("execute", taken.call(libc::SYS_execve, [0; 6], Some((0, "/bin/sh")))),
        ("fork", taken.call(libc::SYS_clone, [int(libc::SIGCHLD), 0, 0, 0, 0, 0], None)),
        ("unshare", taken.call(libc::SYS_unshare, [flags, 0, 0, 0, 0, 0], None)),
        ("mount", taken.call(libc::SYS_mount, [0; 6], Some((2, "tmpfs")))),
        ("chroot", taken.call(libc::SYS_chroot, [0; 6], Some((0, "/")))),
        ("signal", taken.call(libc::SYS_kill, [parent, 0, 0, 0, 0, 0], None)),
        ("open a process", taken.call(libc::SYS_pidfd_open, [parent, 0, 0, 0, 0, 0], None)),
        ("trace", taken.call(libc::SYS_ptrace, [16, parent, 0, 0, 0, 0], None)),
        ("connect", taken.call(libc::SYS_socket, inet, None)),
        ("load a module", taken.call(libc::SYS_init_module, [0; 6], None)),
        ("load bpf", taken.call(libc::SYS_bpf, [0; 6], None)),
    ];
    refused.retain(|(_, errno)| ![libc::EPERM, libc::EACCES].contains(errno));
    assert!(refused.is_empty(), "not refused, but: {refused:?}");
}

#[test]
fn a_supervisor_of_wrap_that_was_taken_over_can_do_no_harm() {
    let Ok(caller) = Caller::root() else {
        skip!("this test needs to be started as root: only root may trace a supervisor")
    };
    let wrap = Wrap::new(caller);
    let process = running(&wrap);
    assert_harmless(process.pid());
    // It goes on, and ends as it would have.
    process.signal(Signal::SIGTERM);
    let mut process = process;
    assert_eq!(process.wait().code(), Some(128 + libc::SIGTERM), "{}", process.stderr());
}

#[test]
fn a_supervisor_of_a_session_that_was_taken_over_can_do_no_harm() {
    let Ok(caller) = Caller::root() else {
        skip!("this test needs to be started as root: only root may trace a supervisor")
    };
    let sessions = Sessions::new(caller);
    let session = sessions.create("taken", &[]);
    let supervisor = supervisor(&session);
    assert_harmless(supervisor.pid());
    // It goes on, and ends as it would have.
    assert!(sessions.send("taken", "hi").contains("Hello"));
    sessions.ok(&["end", "taken"]);
    supervisor.wait_gone("the supervisor");
}
