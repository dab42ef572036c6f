//! `saggar session exec`: runs a command in the sandbox of a session.

use crate::app::session::{self, SessionExecResult};
use crate::cli::session::SessionExecArgs;
use crate::cmd::print_raw;
use crate::error::{Code, Error, Result};
use std::io::Write;
use std::time::Duration;

/// The longest time limit of the control socket.
const ONE_DAY: Duration = Duration::from_secs(86_400);

pub(super) fn run(args: &SessionExecArgs) -> Result<u8> {
    let words: Option<Vec<&str>> = args.command.iter().map(|word| word.to_str()).collect();
    // A shell runs it.
    let command = words.and_then(|words| shlex::try_join(words).ok()).ok_or_else(|| {
        Error::new(Code::Usage, "the command is not valid UTF-8 or contains a NUL character")
    })?;
    let timeout = args.timeout.map_or(ONE_DAY, |timeout| timeout.duration());
    if timeout > ONE_DAY {
        return Err(Error::new(Code::Usage, "--timeout is at most 1d"));
    }
    let SessionExecResult { exit_code, stdout, stderr, truncated } =
        session::exec(&args.id, &command, timeout)?;
    print_raw(&stdout)?;
    // It may be closed; the exit status remains.
    let _ = std::io::stderr().write_all(stderr.as_bytes());
    if truncated {
        crate::log::print_line("output was removed: of each stream, at most 10 MiB remain");
    }
    Ok(exit_code)
}
