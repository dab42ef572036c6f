//! The mailbox behind the tools.

use crate::error::Result;
use jiff::Timestamp;
use saggar_mailbox::runs::Runs;
use saggar_mailbox::{Appended, Draft, FileStore, Limits, Mailbox, Page, Statistics};
use std::path::Path;

/// A mailbox as one member of its run uses it.
pub(crate) trait MailboxAccess: Send {
    /// The name of the member.
    fn name(&self) -> &str;

    /// Sends a message of this member.
    ///
    /// # Errors
    /// As [`Mailbox::send`].
    fn send(&mut self, draft: Draft) -> Result<Appended>;

    /// The next messages for this member.
    ///
    /// # Errors
    /// As [`Mailbox::receive`].
    fn receive(&mut self, since: Option<&str>) -> Result<Page>;

    /// The counts of all messages.
    ///
    /// # Errors
    /// As [`Mailbox::statistics`].
    fn statistics(&mut self) -> Result<Statistics>;
}

/// A mailbox in the file system of this process.
#[derive(Debug)]
pub(crate) struct LocalMailbox {
    name: String,
    mailbox: Mailbox<FileStore>,
}

impl LocalMailbox {
    /// Opens the mailbox of a run for one of its members, who joins it if it has no roles ([`Runs::join`]).
    ///
    /// # Errors
    /// The files of the run cannot be used, or `name` is no member.
    pub(crate) fn open(root: &Path, repo: &Path, run: u64, name: &str) -> Result<Self> {
        let mailbox = Runs::open(root, repo)?.join(run, name, Timestamp::now())?.mailbox(Limits::default())?;
        mailbox.check_member(name)?;
        Ok(LocalMailbox { name: name.to_owned(), mailbox })
    }

    /// The directory of the run.
    pub(super) fn path(&self) -> &Path {
        self.mailbox.store().path()
    }
}

impl MailboxAccess for LocalMailbox {
    fn name(&self) -> &str {
        &self.name
    }

    fn send(&mut self, draft: Draft) -> Result<Appended> {
        Ok(self.mailbox.send(&self.name, draft, Timestamp::now())?.1)
    }

    fn receive(&mut self, since: Option<&str>) -> Result<Page> {
        Ok(self.mailbox.receive(&self.name, since)?)
    }

    fn statistics(&mut self) -> Result<Statistics> {
        Ok(self.mailbox.statistics()?)
    }
}
