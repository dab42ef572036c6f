//! Ends a session: by its supervisor where it is served, and in its record in any case.

use super::{connect_control, remove};
use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::session::record::{RecordWriter, SessionRecord};
use crate::session::session_state::{SessionState, SessionTransition};
use crate::session::{self, OpenMode, Session};
use crate::state::process;
use serde_json::json;
use std::time::Duration;

/// How long a supervisor is given to end politely, and one that was killed to be gone.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// How often somebody else may resume it meanwhile.
const MAX_ATTEMPTS: usize = 5;

/// Ends a session and, on request, removes it with all that it holds.
///
/// # Errors
/// [`Code::State`] for one that has ended or that another saggar starts again and again, [`Code::System`] for a
/// supervisor that outlives SIGKILL.
pub fn end(session: &str, removes: bool) -> Result<()> {
    for _ in 0..MAX_ATTEMPTS {
        let (id, directory, record) = SessionRecord::find(session)?;
        if record.state == SessionState::Ended && removes {
            return remove(id.as_str(), false);
        }
        record.state.apply(SessionTransition::End).map_err(|illegal| illegal.to_error(id.as_str()))?;
        stop_supervisor(&record)?;
        let held = match Session::open(&id, OpenMode::Resume) {
            Err(error) if error.code() == Code::Exists => continue,
            other => other?,
        };
        // As it is now that it is ours.
        let record = SessionRecord::read(&directory).map_or(record, SessionRecord::with_actual_state);
        record.await_exit(KILL_TIMEOUT);
        RecordWriter::for_dead_session(&directory, record).close(SessionTransition::End, None, None)?;
        drop(held);
        return if removes { remove(id.as_str(), false) } else { Ok(()) };
    }
    Err(busy_error(&SandboxId::parse(session)?))
}

/// Somebody else has it.
pub(super) fn busy_error(id: &SandboxId) -> Error {
    match session::is_served(id) {
        true => Error::new(Code::State, format!("session {id} is being served by another process"))
            .hint("another saggar starts it again and again: end that first"),
        false => session::at_work_error(id),
    }
}

/// Ends the supervisor, if there is one; one that does not hear is killed.
///
/// # Errors
/// [`Code::System`] for one that outlives that.
pub(super) fn stop_supervisor(record: &SessionRecord) -> Result<()> {
    let Some(supervisor) = &record.supervisor else { return Ok(()) };
    // It may be gone by now.
    let Ok(pidfd) = supervisor.open_pidfd_to_wait() else { return Ok(()) };
    let shutdown = connect_control(record).and_then(|mut control| control.call("shutdown", &json!({})));
    if shutdown.is_ok() && process::wait_for_exit(&pidfd, SHUTDOWN_TIMEOUT) {
        return Ok(());
    }
    if supervisor.kill_and_wait(KILL_TIMEOUT) {
        return Ok(());
    }
    let message =
        format!("the supervisor of session {}, process {}, outlives SIGKILL", record.id, supervisor.pid);
    Err(Error::new(Code::System, message).hint("it hangs in the kernel; see /proc/PID/stack"))
}
