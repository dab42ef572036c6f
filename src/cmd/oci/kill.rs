//! `saggar kill`: sends the given signal to the container's first process, or to all of its processes.

use super::OciContext;
use super::container::{ContainerStatus, LoadedContainer};
use crate::cli::oci::KillArgs;
use crate::error::{Code, Error, Result};
use crate::sys::pidfd;
use nix::sys::signal::Signal;
use std::os::fd::AsFd;

pub(super) fn run(context: &OciContext, args: &KillArgs) -> Result<u8> {
    let directory = context.find(&args.id)?;
    let signal = parse_signal(&args.signal)?;
    let found = LoadedContainer::load(directory)?;
    let stopped = matches!(found.status(), ContainerStatus::Stopped | ContainerStatus::Creating);
    let not_running =
        || Error::new(Code::Refused, format!("kill container {:?}: container not running", found.record.id));
    if args.all {
        let group = found.group()?;
        // Processes that share the host's pid namespace may outlive the first process.
        if stopped && group.pids()?.is_empty() {
            return Err(not_running());
        }
        group.kill_all(signal)?;
        return Ok(0);
    }
    if stopped {
        return Err(not_running());
    }
    let (init, pid) = found.init()?;
    pidfd::signal(init.as_fd(), signal).map_err(|errno| match errno {
        nix::errno::Errno::ESRCH => not_running(),
        errno => Error::system(format_args!("send signal {signal} to process {pid}"), errno),
    })?;
    if signal == libc::SIGKILL
        && let Ok(group) = found.group()
    {
        group.thaw_killed();
    }
    Ok(0)
}

/// Parses a signal: a name with or without `SIG`, in any case, a number, or `RTMIN+1`, `RTMAX-1`.
///
/// # Errors
/// [`Code::Usage`].
pub(super) fn parse_signal(text: &str) -> Result<i32> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let (min, max) = (libc::SIGRTMIN(), libc::SIGRTMAX());
    let offset = |rest: &str, sign: char| match rest {
        "" => Some(0),
        rest => rest.strip_prefix(sign).and_then(|digits| digits.parse::<i32>().ok()),
    };
    let number = if let Some(rest) = name.strip_prefix("RTMIN") {
        offset(rest, '+').and_then(|more| min.checked_add(more)).filter(|number| *number <= max)
    } else if let Some(rest) = name.strip_prefix("RTMAX") {
        offset(rest, '-').and_then(|less| max.checked_sub(less)).filter(|number| *number >= min)
    } else if let Ok(number) = upper.parse::<i32>() {
        Some(number).filter(|number| (0..=64).contains(number))
    } else {
        let name = match name {
            "CLD" => "CHLD",
            "POLL" => "IO",
            "IOT" => "ABRT",
            name => name,
        };
        format!("SIG{name}").parse::<Signal>().ok().map(|signal| signal as i32)
    };
    number.ok_or_else(|| {
        Error::new(Code::Usage, format!("unknown signal {text:?}"))
            .hint("give a name such as TERM or SIGTERM, or a number from 0 to 64")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_known_by_name_and_by_number() {
        let max = libc::SIGRTMAX();
        for (text, number) in [
            ("9", 9),
            ("0", 0),
            ("64", 64),
            ("KILL", libc::SIGKILL),
            ("SIGTERM", libc::SIGTERM),
            ("sigusr1", libc::SIGUSR1),
            ("RTMIN", libc::SIGRTMIN()),
            ("SIGRTMIN+3", libc::SIGRTMIN() + 3),
            ("RTMAX-2", max - 2),
            ("IOT", libc::SIGABRT),
        ] {
            assert_eq!(parse_signal(text).unwrap(), number, "{text}");
        }
        for text in ["", "SIG", "-9", "65", "RTMIN+99", "RTMAX+1", "RTMIN-1", "NOPE", "9 ", "+9x"] {
            assert!(parse_signal(text).is_err(), "{text}");
        }
    }
}
