//! The session on disk: its record, what the agent calls its conversation, which scripts have run. All of it lies in a
//! directory that is not the supervisor's.

use super::call::{answer, asked, call};
use super::{FORGET, MARK, RECORD, REMEMBER};
use crate::error::{Error, Result};
use crate::session::Session;
use crate::session::record::{Keeper, Record, Scribe};
use crate::stage::launcher::Launcher;
use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::rc::Rc;

/// What workers need of a session.
#[derive(Debug)]
pub(in crate::supervise) struct OfSession<'a> {
    /// The session, which is locked.
    pub(in crate::supervise) session: &'a Session,
    /// The user and the group that programs are on the host, where those are others than ours.
    pub(in crate::supervise) owner: Option<(u32, u32)>,
    /// What the policy protects in the workspace.
    pub(in crate::supervise) protected: Vec<PathBuf>,
}

/// Writes the record by workers.
pub(in crate::supervise) fn scribe(launcher: &Rc<Launcher>) -> Scribe {
    let launcher = Rc::clone(launcher);
    Box::new(move |record| call(&launcher, RECORD, record))
}

/// Keeps the agent's own name of the conversation.
///
/// # Errors
/// As [`Session::remember`].
pub(in crate::supervise) fn remember(launcher: &Launcher, session: &str, own: &str) -> Result<()> {
    call(launcher, REMEMBER, &(session, own))
}

/// Remembers that install.sh has done its work.
///
/// # Errors
/// [`crate::error::Code::System`].
pub(in crate::supervise) fn mark(launcher: &Launcher) -> Result<()> {
    call(launcher, MARK, &())
}

/// Removes the session, in which nothing runs.
///
/// # Errors
/// As [`Session::remove`].
pub(in crate::supervise) fn forget(launcher: &Launcher) -> Result<()> {
    call(launcher, FORGET, &())
}

impl OfSession<'_> {
    pub(super) fn record(&self, to: OwnedFd, request: OwnedFd) {
        let amended = asked::<Record>(request).and_then(|said| {
            let said_so = |put: Result<()>| answer(to, &put);
            Keeper::amend(self.session.directory(), said, said_so)
        });
        if let Err(error) = amended {
            log::debug!("{error}");
        }
    }

    pub(super) fn remember(&self, to: OwnedFd, request: OwnedFd) {
        let names = asked::<(String, String)>(request);
        answer(to, &names.and_then(|(session, own)| self.session.remember(&session, &own)));
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the session's own directory, where no program of a sandbox can write"
    )]
    pub(super) fn mark(&self, to: OwnedFd) {
        let path = self.session.installed();
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let made = options.open(&path).map(drop);
        answer(to, &made.map_err(|e| Error::system(format_args!("make {}", path.display()), e)));
    }

    pub(super) fn forget(&self, to: OwnedFd) {
        answer(to, &self.session.remove());
    }
}
