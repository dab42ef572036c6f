//! Signals as kill(1) takes them: by name or by number.

use nix::sys::signal::Signal;

/// The number of a signal: a name with or without `SIG`, in any case, `RTMIN+1`, `RTMAX-1`, or a number. 0 is no signal,
/// but kill(2) takes it. `None` for what Linux does not know.
pub fn parse(text: &str) -> Option<i32> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let (min, max) = (libc::SIGRTMIN(), libc::SIGRTMAX());
    let offset = |rest: &str, sign: char| match rest {
        "" => Some(0),
        rest => rest.strip_prefix(sign).and_then(|digits| digits.parse::<i32>().ok()),
    };
    if let Some(rest) = name.strip_prefix("RTMIN") {
        return offset(rest, '+').and_then(|more| min.checked_add(more)).filter(|number| *number <= max);
    }
    if let Some(rest) = name.strip_prefix("RTMAX") {
        return offset(rest, '-').and_then(|less| max.checked_sub(less)).filter(|number| *number >= min);
    }
    if let Ok(number) = upper.parse::<i32>() {
        return Some(number).filter(|number| (0..=max).contains(number));
    }
    let name = match name {
        "CLD" => "CHLD",
        "POLL" => "IO",
        "IOT" => "ABRT",
        name => name,
    };
    format!("SIG{name}").parse::<Signal>().ok().map(|signal| signal as i32)
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
            assert_eq!(parse(text), Some(number), "{text}");
        }
        for text in ["", "SIG", "-9", "65", "RTMIN+99", "RTMAX+1", "RTMIN-1", "NOPE", "9 ", "+9x"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
