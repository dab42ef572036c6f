//! The probe: makes each attempt in a child process, and prints one JSON object for each line.

use super::context::ProbeContext;
use super::{Attempt, AttemptFailure, AttemptResult, ContainmentRule, ProbeAnswer, attempts, quotas};
use crate::sys::disposable_child::{ChildExit, run_disposable_child};
use crate::sys::{Errno, SysResult};
use std::ffi::OsString;
use std::io::Write;

/// Exit status of a child whose attempt had no effect; error numbers are smaller.
const EXIT_NO_EFFECT: u8 = 254;
/// Exit status of a child that could not make its attempt.
const EXIT_NOT_TRIED: u8 = 253;
/// Timeout of an attempt in seconds.
const TIMEOUT_SECONDS: u32 = 20;

/// Runs the probe. `words` are the arguments after [`super::ENTRY`]: the context as JSON, then `control` to make only
/// the attempts that find out what the kernel supports.
pub fn run(words: &[OsString], mut output: impl Write) -> u8 {
    let scene = words.first().and_then(|word| serde_json::from_str(word.to_str()?).ok());
    let Some(scene) = scene else { return 2 };
    let control = words.get(1).is_some_and(|word| word == "control");
    let _ = std::fs::create_dir_all(ProbeContext::probe_path(&scene, "mount"));
    for (_, attempt) in attempts::ALL.iter().flat_map(|(class, all)| all.iter().map(move |one| (class, one)))
    {
        if control && !attempt.control {
            continue;
        }
        let answer = answer(attempt, run_attempt(attempt, &scene));
        let line = serde_json::to_string(&answer).unwrap_or_default();
        if writeln!(output, "{line}").and_then(|()| output.flush()).is_err() {
            return 1;
        }
    }
    if !control {
        quotas::consume_each();
    }
    0
}

fn run_attempt(attempt: &Attempt, scene: &ProbeContext) -> SysResult<ChildExit> {
    run_disposable_child(TIMEOUT_SECONDS, |child| exit_status((attempt.run)(child, scene)))
}

fn exit_status(tried: AttemptResult) -> u8 {
    match tried {
        Ok(()) => 0,
        // Every error number is less than 254.
        Err(AttemptFailure::Error(errno)) => u8::try_from(errno as i32).unwrap_or(EXIT_NO_EFFECT),
        Err(AttemptFailure::NoEffect) => EXIT_NO_EFFECT,
        Err(AttemptFailure::NotTried) => EXIT_NOT_TRIED,
    }
}

fn answer(attempt: &Attempt, ended: SysResult<ChildExit>) -> ProbeAnswer {
    let (answer, is_contained) = match ended {
        Err(errno) => (format!("no child: {errno:?}"), None),
        Ok(ChildExit::Exited(0)) => ("ok".to_owned(), Some(false)),
        Ok(ChildExit::Exited(status)) if status == i32::from(EXIT_NO_EFFECT) => {
            ("nothing".to_owned(), Some(true))
        }
        Ok(ChildExit::Exited(status)) if status == i32::from(EXIT_NOT_TRIED) => ("untried".to_owned(), None),
        Ok(ChildExit::Exited(255)) => ("panic".to_owned(), None),
        Ok(ChildExit::Exited(status)) => {
            let errno = Errno::from_raw(status);
            (format!("{errno:?}"), Some(is_contained(attempt.rule, errno)))
        }
        Ok(ChildExit::Killed(signal)) => (signal_name(signal), Some(STOPPING_SIGNALS.contains(&signal))),
    };
    ProbeAnswer { attempt: attempt.name.to_owned(), answer, held: is_contained }
}

fn is_contained(rule: ContainmentRule, errno: Errno) -> bool {
    match rule {
        ContainmentRule::Any => true,
        ContainmentRule::Denied => matches!(errno, Errno::EPERM | Errno::EACCES | Errno::ENOSYS),
        ContainmentRule::AllExcept(errors) => !errors.contains(&errno),
    }
}

/// Signals that count as a response: of a filter, of a limit, or of a processor without the instruction.
const STOPPING_SIGNALS: [i32; 3] = [libc::SIGSYS, libc::SIGXFSZ, libc::SIGSEGV];

fn signal_name(signal: i32) -> String {
    nix::sys::signal::Signal::try_from(signal)
        .map_or_else(|_| format!("signal {signal}"), |signal| signal.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prove::Boundary;

    #[test]
    fn only_a_denial_holds_where_the_call_must_not_be_reached() {
        let attempt = Attempt::new("x", Boundary::Seccomp, "x", |_, _| Ok(())).rule(ContainmentRule::Denied);
        let held = |errno: Errno| answer(&attempt, Ok(ChildExit::Exited(errno as i32))).held;
        assert_eq!([held(Errno::EPERM), held(Errno::EINVAL)], [Some(true), Some(false)]);
    }

    #[test]
    fn success_and_a_time_out_do_not_hold() {
        let attempt = Attempt::new("x", Boundary::Seccomp, "x", |_, _| Ok(()));
        assert_eq!(answer(&attempt, Ok(ChildExit::Exited(0))).held, Some(false));
        assert_eq!(answer(&attempt, Ok(ChildExit::Killed(libc::SIGALRM))).held, Some(false));
        assert_eq!(answer(&attempt, Ok(ChildExit::Killed(libc::SIGSYS))).held, Some(true));
        assert_eq!(answer(&attempt, Ok(ChildExit::Exited(EXIT_NOT_TRIED.into()))).held, None);
    }
}
