//! A verb that is killed at exactly one of its system calls (ptrace(2)): what a random moment hits once in a
//! thousand runs, this hits each time.

use super::bundle::Bench;
use crate::support::place::Place;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

/// Waits to be traced, then becomes the verb.
const SHELL: &str = r#"read -r _ && exec "$@" </dev/null"#;

/// PTRACE_SYSCALL_INFO_ENTRY
const ENTRY: u8 = 1;

/// Runs a verb and asks `now` at each of its own system calls, before it is done: its index from the start of
/// saggar, and its number. The verb is killed where the answer is true. How it ended.
pub(crate) fn killed_at(bench: &Bench, args: &[&str], now: impl FnMut(usize, i64) -> bool) -> ExitStatus {
    command_killed_at(&bench.place, &bench.command(args), now)
}

/// The same with any command.
pub(crate) fn command_killed_at(
    place: &Place,
    verb: &Command,
    mut now: impl FnMut(usize, i64) -> bool,
) -> ExitStatus {
    let mut command = place.command(Path::new("/bin/sh"));
    command.args(["-c", SHELL, "sh"]).arg(verb.get_program()).args(verb.get_args());
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // Reaped by waitpid, which tells of its stops too.
    #[allow(clippy::zombie_processes)]
    let mut child = command.spawn().unwrap();
    let pid = Pid::from_raw(child.id().cast_signed());
    let options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACEEXEC | Options::PTRACE_O_EXITKILL;
    ptrace::seize(pid, options).unwrap();
    ptrace::interrupt(pid).unwrap();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let (mut is_saggar, mut index) = (false, 0);
    loop {
        let mut passed_on = None;
        match waitpid(pid, None).unwrap() {
            WaitStatus::PtraceEvent(_, _, event) => is_saggar |= event == libc::PTRACE_EVENT_EXEC,
            WaitStatus::PtraceSyscall(_) if is_saggar && ptrace::syscall_info(pid).unwrap().op == ENTRY => {
                if now(index, number(pid)) {
                    kill(pid, Signal::SIGKILL).unwrap();
                }
                index += 1;
            }
            WaitStatus::PtraceSyscall(_) => {}
            WaitStatus::Stopped(_, signal) => passed_on = Some(signal),
            ended => return status(ended),
        }
        // One that was killed meanwhile is told of by the next wait.
        let _ = ptrace::syscall(pid, passed_on);
    }
}

/// The number of the call that it is in: proc_pid_syscall(5).
fn number(pid: Pid) -> i64 {
    let text = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap();
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
