//! `saggar session exec`: runs a command in the sandbox of a session.

use crate::app::session::{self, SessionExecResult};
use crate::cli::session::SessionExecArgs;
use crate::cmd::shell_command;
use crate::error::{Code, Error, Result};
use std::time::Duration;

/// The longest time limit of the control socket.
const ONE_DAY: Duration = Duration::from_secs(86_400);

pub(super) fn run(args: &SessionExecArgs) -> Result<u8> {
    let command = shell_command::join(&args.command)?;
    let timeout = args.timeout.map_or(ONE_DAY, |timeout| timeout.duration());
    if timeout > ONE_DAY {
        return Err(Error::new(Code::Usage, "--timeout is at most 1d"));
    }
    let SessionExecResult { exit_code, stdout, stderr, truncated } =
        session::exec(&args.id, &command, timeout)?;
    shell_command::print_output(&stdout, &stderr, truncated)?;
    Ok(exit_code)
}
