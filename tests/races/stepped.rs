//! A command that is stopped before each of its system calls, and those of the processes that it forks (ptrace(2)).

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};

use crate::support::place::Place;

/// Waits to be traced, then becomes the command.
const SHELL: &str = r#"read -r _ && exec "$@" </dev/null"#;
/// PTRACE_SYSCALL_INFO_ENTRY
const ENTRY: u8 = 1;
/// A command that is not done by then waits for something that never comes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `verb`, its output in the file `output`, and calls `each` before every system call with the process that is about
/// to make it. Processes in other namespaces, the sandboxes, are let go. The exit status; `None` for a signal, which is
/// how a command ends that waits for ever.
pub(crate) fn stepped(
    place: &Place,
    verb: &Command,
    output: &Path,
    mut each: impl FnMut(Pid),
) -> Option<i32> {
    let mut command = place.command(Path::new("/bin/sh"));
    command.args(["-c", SHELL, "sh"]).arg(verb.get_program()).args(verb.get_args());
    let output = fs::File::create(output).unwrap();
    command.stdin(Stdio::piped()).stderr(output.try_clone().unwrap()).stdout(output);
    // Reaped by waitpid, which reports its stops too.
    #[allow(clippy::zombie_processes)]
    let mut child = command.spawn().unwrap();
    let first = Pid::from_raw(child.id().cast_signed());
    let options = Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_EXITKILL;
    ptrace::seize(first, options).unwrap();
    ptrace::interrupt(first).unwrap();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let patience = Patience::begin();
    patience.watch(first);
    let (mut is_saggar, mut status) = (false, None);
    let mut traced = BTreeSet::from([first]);
    // Those of this thread alone: other tests have children, too.
    let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
    while let Ok(event) = waitpid(None, Some(flags)) {
        let Some(pid) = event.pid() else { continue };
        let mut passed_on = None;
        match event {
            WaitStatus::Exited(_, code) => {
                if pid == first {
                    status = Some(code);
                }
                continue;
            }
            WaitStatus::Signaled(..) => continue,
            WaitStatus::PtraceEvent(_, _, what) => is_saggar |= what == libc::PTRACE_EVENT_EXEC,
            WaitStatus::PtraceSyscall(_)
                if is_saggar && ptrace::syscall_info(pid).is_ok_and(|info| info.op == ENTRY) =>
            {
                stay_visible(pid);
                each(pid);
            }
            WaitStatus::Stopped(_, signal) if signal != Signal::SIGTRAP => passed_on = Some(signal),
            _ => {}
        }
        if traced.insert(pid) {
            if !is_ours(pid) {
                let _ = ptrace::detach(pid, None);
                continue;
            }
            patience.watch(pid);
        }
        // One that was killed meanwhile is reported by the next wait.
        let _ = ptrace::syscall(pid, passed_on);
    }
    status
}

/// A worker that is about to hide its memory from its user stays as it is, for names to be seen in its calls.
#[cfg(target_arch = "x86_64")]
fn stay_visible(pid: Pid) {
    let Ok(mut registers) = ptrace::getregs(pid) else { return };
    let hides = (libc::SYS_prctl.cast_unsigned(), u64::from(libc::PR_SET_DUMPABLE.cast_unsigned()), 0);
    if (registers.orig_rax, registers.rdi, registers.rsi) == hides {
        registers.rsi = 1;
        let _ = ptrace::setregs(pid, registers);
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn stay_visible(_: Pid) {}

/// Whether a process is in the namespaces of this thread.
fn is_ours(pid: Pid) -> bool {
    ["user", "pid_for_children", "mnt"].iter().all(|name| {
        let of = |process: &str| fs::read_link(format!("/proc/{process}/ns/{name}")).ok();
        of(&pid.to_string()) == of("thread-self")
    })
}

/// Kills what it watches when the time is over, unless it is dropped before.
struct Patience {
    watched: Arc<Mutex<Vec<OwnedFd>>>,
    _begun: Sender<()>,
}

impl Patience {
    fn begin() -> Self {
        let watched: Arc<Mutex<Vec<OwnedFd>>> = Arc::default();
        let (begun, dropped) = mpsc::channel();
        let all = Arc::clone(&watched);
        thread::spawn(move || {
            if dropped.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                for pidfd in all.lock().unwrap().iter() {
                    let _ = pidfd_send_signal(pidfd, rustix::process::Signal::KILL);
                }
            }
        });
        Patience { watched, _begun: begun }
    }

    /// A stopped process, so that the pid is its own.
    fn watch(&self, pid: Pid) {
        let pid = rustix::process::Pid::from_raw(pid.as_raw()).expect("a pid is not 0");
        self.watched.lock().unwrap().extend(pidfd_open(pid, PidfdFlags::empty()));
    }
}
