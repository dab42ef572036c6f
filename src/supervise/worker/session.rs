//! Session data on disk: its record, the agent's id of its conversation, and which scripts have run. All of it is in a
//! directory that the supervisor does not own.

use super::request::{call_worker, read_request, write_response};
use super::{MARK_INSTALLED, REMOVE_SESSION, REMOVE_WITHOUT_RESULTS, SAVE_AGENT_SESSION, WRITE_RECORD};
use crate::error::{Error, Result};
use crate::session::Session;
use crate::session::record::{RecordSink, RecordWriter, SessionRecord};
use crate::session::results::has_results;
use crate::spec::policy::WorkspacePattern;
use crate::stage::agent::launcher::Launcher;
use crate::state::process::ProcessId;
use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::rc::Rc;

/// The session data that workers need.
#[derive(Debug)]
pub(in crate::supervise) struct SessionContext<'a> {
    /// The session, which is locked.
    pub(in crate::supervise) session: &'a Session,
    /// The supervisor, as the record has it.
    pub(in crate::supervise) supervisor: Option<ProcessId>,
    /// The protected paths of the policy in the workspace.
    pub(in crate::supervise) protected: Vec<WorkspacePattern>,
}

/// A sink that writes the record in workers.
pub(in crate::supervise) fn record_sink(launcher: &Rc<Launcher>) -> RecordSink {
    let launcher = Rc::clone(launcher);
    Box::new(move |record| call_worker(&launcher, WRITE_RECORD, record))
}

/// Saves the agent's own id of its conversation.
///
/// # Errors
/// As [`Session::save_agent_session`].
pub(in crate::supervise) fn save_agent_session(
    launcher: &Launcher,
    session: &str,
    agent_session: &str,
) -> Result<()> {
    call_worker(launcher, SAVE_AGENT_SESSION, &(session, agent_session))
}

/// Records that install.sh has succeeded.
///
/// # Errors
/// [`crate::error::Code::System`].
pub(in crate::supervise) fn mark_installed(launcher: &Launcher) -> Result<()> {
    call_worker(launcher, MARK_INSTALLED, &())
}

/// Removes the session, in which no program runs.
///
/// # Errors
/// As [`Session::remove`].
pub(in crate::supervise) fn remove_session(launcher: &Launcher) -> Result<()> {
    call_worker(launcher, REMOVE_SESSION, &())
}

/// Removes the session, in which no program runs, unless it has results. Returns whether it was removed.
///
/// # Errors
/// As [`has_results`] and [`Session::remove`].
pub(in crate::supervise) fn remove_session_without_results(launcher: &Launcher) -> Result<bool> {
    call_worker(launcher, REMOVE_WITHOUT_RESULTS, &())
}

impl SessionContext<'_> {
    pub(super) fn serve_record(&self, to: OwnedFd, request: OwnedFd) {
        let mut to = Some(to);
        let amended = read_request::<SessionRecord>(request).and_then(|said| {
            let written =
                |result: Result<()>| to.take().into_iter().for_each(|to| write_response(to, &result));
            RecordWriter::write_delegated(self.session.directory(), self.supervisor.as_ref(), said, written)
        });
        match (amended, to) {
            (Ok(()), _) => {}
            (Err(error), Some(to)) => write_response(to, &Err::<(), _>(error)),
            // It was written, and not synced.
            (Err(error), None) => log::debug!("{error}"),
        }
    }

    pub(super) fn serve_save_agent_session(&self, to: OwnedFd, request: OwnedFd) {
        let names = read_request::<(String, String)>(request);
        write_response(to, &names.and_then(|(session, own)| self.session.save_agent_session(&session, &own)));
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the session's own directory, where no program of a sandbox can write"
    )]
    pub(super) fn serve_mark_installed(&self, to: OwnedFd) {
        let path = self.session.installed_marker();
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let made = options.open(&path).map(drop);
        write_response(to, &made.map_err(|e| Error::system(format_args!("make {}", path.display()), e)));
    }

    pub(super) fn serve_remove_session(&self, to: OwnedFd) {
        write_response(to, &self.session.remove());
    }

    pub(super) fn serve_remove_without_results(&self, to: OwnedFd) {
        let removed = has_results(self.session).and_then(|has| match has {
            true => Ok(false),
            false => self.session.remove().map(|()| true),
        });
        write_response(to, &removed);
    }
}
