//! Ends the sandbox of a session, which can be resumed later.

use super::end::stop_supervisor;
use crate::error::Result;
use crate::session::record::SessionRecord;
use crate::state::process;
use crate::sys::pidfd;
use std::os::fd::AsFd;
use std::time::Duration;

/// How long a supervisor is given to end politely, and one that was killed to be gone.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Ends the supervisor of a session, if it has one. The session is paused then, as after any SIGTERM.
///
/// # Errors
/// [`crate::error::Code::Invalid`] for a session that does not exist; as [`stop_supervisor`].
pub(crate) fn suspend(session: &str) -> Result<()> {
    let (_, _, record) = SessionRecord::find(session)?;
    let Some(supervisor) = record.supervisor.as_ref().filter(|_| record.is_served()) else { return Ok(()) };
    // It may be gone by now, or hidden: a signal could then reach another process.
    let Ok(pidfd) = supervisor.open_pidfd() else { return stop_supervisor(&record) };
    if pidfd::signal(pidfd.as_fd(), libc::SIGTERM).is_err() || !process::wait_for_exit(&pidfd, TIMEOUT) {
        supervisor.kill_and_wait(TIMEOUT);
    }
    Ok(())
}
