//! Sending and receiving as a member of a run: the rules of roles, on any store.
//!
//! The caller authenticates the agent, for example by the socket of its sandbox; an agent cannot send under another
//! name, because a draft has no sender (AM-19).

use crate::error::{Error, ErrorKind, Result};
use crate::member::{Member, check_permitted};
use crate::message::{Draft, Message, check_agent_name};
use crate::store::{Appended, Page, Position, Statistics, Store};
use jiff::Timestamp;

/// The mailbox of a run and its members.
#[derive(Debug)]
pub struct Mailbox<S> {
    run_id: u64,
    members: Vec<Member>,
    store: S,
}

impl<S: Store> Mailbox<S> {
    /// A mailbox of run `run_id` on a store.
    pub fn new(run_id: u64, members: Vec<Member>, store: S) -> Self {
        Mailbox { run_id, members, store }
    }

    /// Number of the run.
    pub fn run_id(&self) -> u64 {
        self.run_id
    }

    /// The members of the run.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Sends a draft as `from`, and returns the message and whether it is new.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a draft that is not valid, [`ErrorKind::Refused`] for one that the roles of `from` do
    /// not permit, and those of [`Store::append`].
    pub fn send(&mut self, from: &str, draft: Draft, now: Timestamp) -> Result<(Message, Appended)> {
        check_permitted(&self.members, self.run_id, from, &draft)?;
        let message = Message::new(self.run_id, from, draft, now)?;
        let appended = self.store.append(&message)?;
        Ok((message, appended))
    }

    /// The next messages for a member ([`Store::receive`]).
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] if `agent` is no member, and those of [`Store::receive`].
    pub fn receive(&mut self, agent: &str, since: Option<&str>) -> Result<Page> {
        self.check_member(agent)?;
        self.store.receive(agent, since)
    }

    /// Calls `each` with the messages of all senders after `position`, and moves it. No cursor moves.
    ///
    /// # Errors
    /// Those of [`Store::read`] and of `each`; the position is then before the page that failed.
    pub fn read_on<E: From<Error>>(
        &mut self,
        position: &mut Option<Position>,
        mut each: impl FnMut(&Message) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            let page = self.store.read(*position)?;
            page.messages.iter().try_for_each(&mut each)?;
            *position = page.last.or(*position);
            if !page.more {
                return Ok(());
            }
        }
    }

    /// Checks that `agent` is a member of the run.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] if it is none; [`ErrorKind::Invalid`] if it has no valid name.
    pub fn check_member(&self, agent: &str) -> Result<()> {
        check_agent_name(agent)?;
        if self.members.iter().any(|member| member.name == agent) {
            return Ok(());
        }
        let names: Vec<&str> = self.members.iter().map(|member| member.name.as_str()).collect();
        let message = format!("{agent} is no member of run {}", self.run_id);
        Err(Error::new(ErrorKind::Refused, message)
            .with_hint(format!("its members are {}", names.join(", "))))
    }

    /// Counts all messages (AM-17).
    ///
    /// # Errors
    /// Those of [`Store::statistics`].
    pub fn statistics(&mut self) -> Result<Statistics> {
        self.store.statistics()
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_store::{FileStore, Limits};
    use crate::member::Roles;
    use crate::message::{MessageType, Signal};
    use std::fs;

    fn mailbox(directory: &tempfile::TempDir) -> Mailbox<FileStore> {
        let members = vec![
            Member::new("codex", Roles::WORKER),
            Member::new("claude", Roles::REVIEWER),
            Member::new("person", Roles::PERSON),
        ];
        Mailbox::new(1, members, FileStore::open(directory.path(), 1, Limits::default()).unwrap())
    }

    #[test]
    fn am_08_a_line_has_the_number_of_its_run_and_its_time_in_utc() {
        let directory = tempfile::tempdir().unwrap();
        let members = vec![Member::new("codex", Roles::WORKER)];
        let store = FileStore::open(directory.path(), 7, Limits::default()).unwrap();
        let mut mailbox = Mailbox::new(7, members, store);
        let sent_at = "2024-03-28T12:30:00.9+02:30".parse().unwrap();
        mailbox.send("codex", Draft::signal(Signal::Done, ""), sent_at).unwrap();
        let text = fs::read_to_string(directory.path().join("bridge.jsonl")).unwrap();
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["run_id"], &line["timestamp"]), (&7.into(), &"2024-03-28T10:00:00Z".into()));
    }

    #[test]
    fn am_21_seed_conversation_has_6_lines_one_pass_and_done() {
        let directory = tempfile::tempdir().unwrap();
        let mut mailbox = mailbox(&directory);
        let to = |recipient, message_type, text: &str| Draft::to(recipient, message_type, text);
        let conversation = [
            ("claude", to("codex", MessageType::Task, "Add email validation to LoginForm")),
            ("codex", to("claude", MessageType::Result, "Added validateEmail function...")),
            ("claude", to("codex", MessageType::Review, "Please add error message display")),
            ("codex", to("claude", MessageType::Result, "Added error message UI...")),
            ("codex", Draft::signal(Signal::Done, "Validation complete")),
            ("claude", Draft::signal(Signal::Pass, "Looks good")),
        ];
        for (from, draft) in conversation {
            let (message, appended) =
                mailbox.send(from, draft, "2024-03-28T10:00:00.5Z".parse().unwrap()).unwrap();
            assert_eq!(appended, Appended::Stored { id: message.id.clone() });
            assert_eq!(mailbox.store.read(None).unwrap().messages.last(), Some(&message));
        }
        let statistics = mailbox.statistics().unwrap();
        assert_eq!((statistics.total, statistics.done, statistics.pass, statistics.fail), (6, true, 1, 0));
        let text = fs::read_to_string(directory.path().join("bridge.jsonl")).unwrap();
        assert_eq!(text.lines().count(), 6);
        assert!(text.lines().all(|line| line.ends_with("\"timestamp\":\"2024-03-28T10:00:00Z\"}")), "{text}");
    }

    #[test]
    fn message_that_a_role_does_not_permit_is_not_stored() {
        let directory = tempfile::tempdir().unwrap();
        let mut mailbox = mailbox(&directory);
        for (from, draft) in [
            ("codex", Draft::signal(Signal::Pass, "x")),
            ("claude", Draft::signal(Signal::Done, "x")),
            ("person", Draft::to("codex", MessageType::Review, "x")),
            ("stranger", Draft::to("codex", MessageType::Chat, "x")),
            ("codex", Draft::to("claud", MessageType::Chat, "x")),
            ("codex", Draft::to("codex", MessageType::Chat, "x")),
        ] {
            let error = mailbox.send(from, draft, Timestamp::UNIX_EPOCH).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Refused);
        }
        assert_eq!(mailbox.receive("stranger", None).unwrap_err().kind(), ErrorKind::Refused);
        assert_eq!(mailbox.statistics().unwrap().total, 0);
    }
}
