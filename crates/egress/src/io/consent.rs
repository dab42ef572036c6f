//! Consent to hosts: all connections to a host wait for one answer.

use super::socket_owner::CallingProgram;
use saggar_policy::hosts::Destination;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Maximum number of open questions, and of remembered answers.
const MAX_OPEN_QUESTIONS: usize = 64;
const MAX_ANSWERS: usize = 1024;
/// How long a denial is remembered, because programs retry often.
const DENIAL_LIFETIME: Duration = Duration::from_secs(60);

/// The answer to a consent question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostConsent {
    /// Connections to the host are allowed.
    Granted,
    /// Connections to the host are denied; the reason.
    Denied(String),
}

/// A new or withdrawn consent question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConsentQuestion {
    /// A new question: whether programs may connect to this destination.
    Asked {
        /// The number of the question.
        number: u64,
        /// One port of one host.
        to: Destination,
        /// The first program that called it, if known.
        program: Option<CallingProgram>,
    },
    /// No connection waits for the answer any more.
    Withdrawn {
        /// The number of the question.
        number: u64,
    },
}

/// The consent questions of a sandbox.
#[derive(Debug, Default)]
pub(super) struct ConsentTable {
    /// Whether a client can answer questions.
    can_ask: bool,
    open: BTreeMap<Destination, OpenQuestion>,
    /// Remembered answers and their expiry; without one, until the sandbox ends.
    answers: BTreeMap<Destination, (HostConsent, Option<Instant>)>,
    next_number: u64,
    /// Questions to be sent.
    queue: Vec<ConsentQuestion>,
}

#[derive(Debug)]
struct OpenQuestion {
    number: u64,
    waiting: BTreeSet<usize>,
}

impl ConsentTable {
    /// Enables questions: a client can answer them from now on.
    pub(super) fn enable_questions(&mut self) {
        self.can_ask = true;
    }

    /// Adds a permanent allowance from an earlier run.
    pub(super) fn grant(&mut self, to: Destination) {
        self.remember(to, HostConsent::Granted, None);
    }

    /// Remembers an answer, up to the maximum number.
    fn remember(&mut self, to: Destination, consent: HostConsent, until: Option<Instant>) {
        if self.answers.len() < MAX_ANSWERS {
            self.answers.insert(to, (consent, until));
        }
    }

    /// The answer for a connection, if there is one. If not, the connection waits for it.
    pub(super) fn ask(
        &mut self,
        to: Destination,
        id: usize,
        now: Instant,
        program: impl FnOnce() -> Option<CallingProgram>,
    ) -> Option<HostConsent> {
        self.answers.retain(|_, (_, until)| until.is_none_or(|until| until > now));
        if let Some((consent, _)) = self.answers.get(&to) {
            return Some(consent.clone());
        }
        if !self.can_ask {
            return Some(HostConsent::Denied(
                "it needs permission, and no client is connected to give it".into(),
            ));
        }
        if let Some(open) = self.open.get_mut(&to) {
            open.waiting.insert(id);
            return None;
        }
        if self.open.len() >= MAX_OPEN_QUESTIONS {
            return Some(HostConsent::Denied("too many questions about hosts are open".into()));
        }
        let number = self.next_number;
        self.next_number += 1;
        self.queue.push(ConsentQuestion::Asked { number, to: to.clone(), program: program() });
        self.open.insert(to, OpenQuestion { number, waiting: BTreeSet::from([id]) });
        None
    }

    /// Removes a waiting connection.
    pub(super) fn forget(&mut self, id: usize) {
        let left = |open: &mut OpenQuestion| open.waiting.remove(&id) && open.waiting.is_empty();
        if let Some(to) = self.open.iter_mut().find_map(|(to, open)| left(open).then(|| to.clone()))
            && let Some(open) = self.open.remove(&to)
        {
            self.queue.push(ConsentQuestion::Withdrawn { number: open.number });
        }
    }

    /// Takes an answer and returns the connections that waited for it; none for a withdrawn question.
    pub(super) fn answer(
        &mut self,
        number: u64,
        consent: &HostConsent,
        keep: bool,
        now: Instant,
    ) -> BTreeSet<usize> {
        let Some(to) = self.open.iter().find_map(|(to, open)| (open.number == number).then(|| to.clone()))
        else {
            return BTreeSet::new();
        };
        let until = match consent {
            _ if keep => Some(None),
            HostConsent::Denied(_) => Some(Some(now + DENIAL_LIFETIME)),
            HostConsent::Granted => None,
        };
        if let Some(until) = until {
            self.remember(to.clone(), consent.clone(), until);
        }
        self.open.remove(&to).map(|open| open.waiting).unwrap_or_default()
    }

    /// New and withdrawn questions since the last call.
    pub(super) fn take_questions(&mut self) -> Vec<ConsentQuestion> {
        std::mem::take(&mut self.queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(text: &str) -> Destination {
        text.parse().unwrap()
    }

    fn asking() -> ConsentTable {
        let mut consents = ConsentTable::default();
        consents.enable_questions();
        consents
    }

    #[test]
    fn a_host_is_asked_about_once_for_all_who_wait() {
        let (mut consents, now) = (asking(), Instant::now());
        for id in 0..3 {
            assert_eq!(consents.ask(to("a.example:443"), id, now, || None), None);
        }
        assert_eq!(consents.ask(to("a.example:80"), 3, now, || None), None);
        assert_eq!(consents.take_questions().len(), 2);
        consents.forget(1);
        let waited = consents.answer(0, &HostConsent::Granted, false, now);
        assert_eq!(waited, BTreeSet::from([0, 2]));
        assert!(consents.answer(0, &HostConsent::Granted, false, now).is_empty());
        // The answer applied to those connections only.
        assert_eq!(consents.ask(to("a.example:443"), 4, now, || None), None);
        consents.forget(3);
        let [ConsentQuestion::Asked { number: 2, .. }, ConsentQuestion::Withdrawn { number: 1 }] =
            &consents.take_questions()[..]
        else {
            panic!("a new question, and one less");
        };
    }

    #[test]
    fn a_yes_can_be_kept_and_a_no_is_for_a_while() {
        let (mut consents, now) = (asking(), Instant::now());
        let ask = |consents: &mut ConsentTable, host, now| consents.ask(to(host), 0, now, || None);
        assert_eq!(ask(&mut consents, "a.example:443", now), None);
        consents.answer(0, &HostConsent::Granted, true, now);
        assert_eq!(
            ask(&mut consents, "a.example:443", now + 100 * DENIAL_LIFETIME),
            Some(HostConsent::Granted)
        );
        assert_eq!(ask(&mut consents, "b.example:443", now), None);
        let no = HostConsent::Denied("no".into());
        consents.answer(1, &no, false, now);
        assert_eq!(ask(&mut consents, "b.example:443", now), Some(no));
        assert_eq!(ask(&mut consents, "b.example:443", now + DENIAL_LIFETIME), None);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut consents = asking();
        (0..2 * MAX_ANSWERS).for_each(|number| consents.grant(to(&format!("{number}.example:443"))));
        assert_eq!(consents.answers.len(), MAX_ANSWERS);
        let (extra, now) = (to("extra.example:443"), Instant::now());
        assert_eq!(consents.ask(extra.clone(), 0, now, || None), None);
        consents.answer(0, &HostConsent::Granted, true, now);
        assert_eq!(consents.answers.len(), MAX_ANSWERS);
        assert_eq!(consents.ask(extra, 1, now, || None), None, "it is asked again");
    }

    #[test]
    fn where_nobody_can_be_asked_the_answer_is_no() {
        let mut consents = ConsentTable::default();
        let answer = consents.ask(to("a.example:443"), 0, Instant::now(), || None);
        assert!(matches!(answer, Some(HostConsent::Denied(_))));
        let mut consents = asking();
        let ask = |consents: &mut ConsentTable, number| {
            consents.ask(to(&format!("{number}.example:443")), number, Instant::now(), || None)
        };
        assert!((0..MAX_OPEN_QUESTIONS).all(|number| ask(&mut consents, number).is_none()));
        assert!(matches!(ask(&mut consents, MAX_OPEN_QUESTIONS), Some(HostConsent::Denied(_))));
    }
}
