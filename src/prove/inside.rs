//! The probe: makes the attempts, one child for each, and prints one JSON object a line.

use super::scene::Scene;
use super::{Answer, Attempt, No, Rule, Tried, attempts, quotas};
use crate::sys::throwaway::{Ended, throwaway};
use crate::sys::{Errno, SysResult};
use std::ffi::OsString;
use std::io::Write;

/// Exit status of a child whose attempt came to nothing; error numbers are smaller.
const NOTHING: u8 = 254;
/// Exit status of a child that could not try.
const UNTRIED: u8 = 253;
/// Seconds after which an attempt is over.
const SECONDS: u32 = 20;

/// The words after [`super::ENTRY`]: the scene, then `control` for the attempts that say what the kernel lacks.
pub fn run(words: &[OsString], mut output: impl Write) -> u8 {
    let scene = words.first().and_then(|word| serde_json::from_str(word.to_str()?).ok());
    let Some(scene) = scene else { return 2 };
    let control = words.get(1).is_some_and(|word| word == "control");
    let _ = std::fs::create_dir_all(Scene::own(&scene, "mount"));
    for (_, attempt) in attempts::ALL.iter().flat_map(|(class, all)| all.iter().map(move |one| (class, one)))
    {
        if control && !attempt.control {
            continue;
        }
        let answer = answer(attempt, make(attempt, &scene));
        let line = serde_json::to_string(&answer).unwrap_or_default();
        if writeln!(output, "{line}").and_then(|()| output.flush()).is_err() {
            return 1;
        }
    }
    if !control {
        quotas::hold_each();
    }
    0
}

fn make(attempt: &Attempt, scene: &Scene) -> SysResult<Ended> {
    throwaway(SECONDS, |child| status((attempt.run)(child, scene)))
}

fn status(tried: Tried) -> u8 {
    match tried {
        Ok(()) => 0,
        // Every error number is less than 254.
        Err(No::Error(errno)) => u8::try_from(errno as i32).unwrap_or(NOTHING),
        Err(No::Nothing) => NOTHING,
        Err(No::Untried) => UNTRIED,
    }
}

fn answer(attempt: &Attempt, ended: SysResult<Ended>) -> Answer {
    let (answer, held) = match ended {
        Err(errno) => (format!("no child: {errno:?}"), None),
        Ok(Ended::Exited(0)) => ("ok".to_owned(), Some(false)),
        Ok(Ended::Exited(status)) if status == i32::from(NOTHING) => ("nothing".to_owned(), Some(true)),
        Ok(Ended::Exited(status)) if status == i32::from(UNTRIED) => ("untried".to_owned(), None),
        Ok(Ended::Exited(255)) => ("panic".to_owned(), None),
        Ok(Ended::Exited(status)) => {
            let errno = Errno::from_raw(status);
            (format!("{errno:?}"), Some(holds(attempt.rule, errno)))
        }
        Ok(Ended::Killed(signal)) => (name(signal), Some(STOPS.contains(&signal))),
    };
    Answer { attempt: attempt.name.to_owned(), answer, held }
}

fn holds(rule: Rule, errno: Errno) -> bool {
    match rule {
        Rule::Any => true,
        Rule::Denied => matches!(errno, Errno::EPERM | Errno::EACCES | Errno::ENOSYS),
        Rule::But(errors) => !errors.contains(&errno),
    }
}

/// Signals that are an answer: of a filter, of a limit, of a processor that does not know the call.
const STOPS: [i32; 3] = [libc::SIGSYS, libc::SIGXFSZ, libc::SIGSEGV];

fn name(signal: i32) -> String {
    nix::sys::signal::Signal::try_from(signal)
        .map_or_else(|_| format!("signal {signal}"), |signal| signal.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prove::Boundary;

    #[test]
    fn only_a_denial_holds_where_the_call_must_not_be_reached() {
        let attempt = Attempt::new("x", Boundary::Seccomp, "x", |_, _| Ok(())).rule(Rule::Denied);
        let held = |errno: Errno| answer(&attempt, Ok(Ended::Exited(errno as i32))).held;
        assert_eq!([held(Errno::EPERM), held(Errno::EINVAL)], [Some(true), Some(false)]);
    }

    #[test]
    fn success_and_a_time_out_do_not_hold() {
        let attempt = Attempt::new("x", Boundary::Seccomp, "x", |_, _| Ok(()));
        assert_eq!(answer(&attempt, Ok(Ended::Exited(0))).held, Some(false));
        assert_eq!(answer(&attempt, Ok(Ended::Killed(libc::SIGALRM))).held, Some(false));
        assert_eq!(answer(&attempt, Ok(Ended::Killed(libc::SIGSYS))).held, Some(true));
        assert_eq!(answer(&attempt, Ok(Ended::Exited(UNTRIED.into()))).held, None);
    }
}
