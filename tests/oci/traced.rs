//! A verb that is killed at exactly one of its system calls (ptrace(2)): what a random moment hits once in a
//! thousand runs, this hits each time.

use super::bundle::Bench;
use crate::support::place::Place;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

/// Waits to be traced, then becomes the verb.
const SHELL: &str = r#"read -r _ && exec "$@" </dev/null"#;

/// PTRACE_SYSCALL_INFO_ENTRY
const ENTRY: u8 = 1;

/// Which processes are stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stopped {
    /// The verb.
    Verb,
    /// The verb and the processes that it forks.
    Family,
}

/// Runs a verb and asks `now` at each of its own system calls, before it is done: its index from the start of
/// saggar, and its number. The verb is killed where the answer is true. How it ended.
pub(crate) fn killed_at(bench: &Bench, args: &[&str], now: impl FnMut(usize, i64) -> bool) -> ExitStatus {
    traced(&bench.place, &bench.command(args), Stopped::Verb, now)
}

/// The same with any command and its workers: system calls of all of them count, and all are killed together.
pub(crate) fn command_killed_at(
    place: &Place,
    verb: &Command,
    now: impl FnMut(usize, i64) -> bool,
) -> ExitStatus {
    traced(place, verb, Stopped::Family, now)
}

fn traced(
    place: &Place,
    verb: &Command,
    stopped: Stopped,
    mut now: impl FnMut(usize, i64) -> bool,
) -> ExitStatus {
    let mut command = place.command(Path::new("/bin/sh"));
    command.args(["-c", SHELL, "sh"]).arg(verb.get_program()).args(verb.get_args());
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // Reaped by waitpid, which reports its stops too.
    #[allow(clippy::zombie_processes)]
    let mut child = command.spawn().unwrap();
    let first = Pid::from_raw(child.id().cast_signed());
    let mut options =
        Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACEEXEC | Options::PTRACE_O_EXITKILL;
    if stopped == Stopped::Family {
        options |= Options::PTRACE_O_TRACEFORK | Options::PTRACE_O_TRACEVFORK | Options::PTRACE_O_TRACECLONE;
    }
    ptrace::seize(first, options).unwrap();
    ptrace::interrupt(first).unwrap();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let (mut is_saggar, mut index, mut end) = (false, 0, None);
    // Those of this thread alone: other tests have children, too.
    let (all, flags) = (Pid::from_raw(-1), WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD);
    let waited = if stopped == Stopped::Family { all } else { first };
    while let Ok(event) = waitpid(waited, Some(flags)) {
        let Some(pid) = event.pid() else { continue };
        let mut passed_on = None;
        match event {
            WaitStatus::PtraceEvent(_, _, what) => is_saggar |= what == libc::PTRACE_EVENT_EXEC,
            WaitStatus::PtraceSyscall(_)
                if is_saggar && ptrace::syscall_info(pid).is_ok_and(|info| info.op == ENTRY) =>
            {
                if now(index, number(pid)) {
                    let _ = kill(first, Signal::SIGKILL);
                    let _ = kill(pid, Signal::SIGKILL);
                }
                index += 1;
            }
            WaitStatus::PtraceSyscall(_) => {}
            WaitStatus::Stopped(_, signal) if signal != Signal::SIGTRAP => passed_on = Some(signal),
            WaitStatus::Stopped(..) => {}
            ended if pid == first => end = Some(status(ended)),
            _ => continue,
        }
        // One that was killed meanwhile is reported by the next wait.
        let _ = ptrace::syscall(pid, passed_on);
    }
    end.expect("the verb has ended")
}

/// The number of the call that it is in: proc_pid_syscall(5).
fn number(pid: Pid) -> i64 {
    // A worker lets its user not look into it.
    let text = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(-1)
}

fn status(ended: WaitStatus) -> ExitStatus {
    use std::os::unix::process::ExitStatusExt;
    match ended {
        WaitStatus::Exited(_, code) => ExitStatus::from_raw(code << 8),
        WaitStatus::Signaled(_, signal, _) => ExitStatus::from_raw(signal as i32),
        other => panic!("a traced verb is {other:?}"),
    }
}
