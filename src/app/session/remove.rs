//! Removes a session.

use super::end::busy_error;
use super::worktree;
use crate::error::{Code, Error, Result};
use crate::session::record::SessionRecord;
use crate::session::{OpenMode, Session};
use std::time::Duration;

/// How long what a killed supervisor has left is given to end.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Removes a session that is not served, and all that it holds.
///
/// # Errors
/// [`Code::State`] for one that is served, and without `force` for one whose worktree has changes that are not committed.
pub fn remove(id: &str, force: bool) -> Result<()> {
    let (id, directory, record) = SessionRecord::find(id)?;
    if record.is_served() {
        return Err(Error::new(Code::State, format!("session {id} is {}, and served", record.state))
            .hint(format!("saggar session end --remove {id}")));
    }
    // Held until it is gone: nobody resumes it meanwhile.
    let session = Session::open(&id, OpenMode::Resume).map_err(|error| match error.code() {
        Code::Exists => busy_error(&id),
        _ => error,
    })?;
    record.await_exit(EXIT_TIMEOUT);
    worktree::remove(&id, force)?;
    session.remove()?;
    drop((session, directory));
    Ok(())
}
