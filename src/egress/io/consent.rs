//! Hosts that somebody is asked about: connections to them wait for one answer together.

use super::owner::Program;
use crate::spec::policy::hosts::Destination;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Hosts that somebody is asked about at once, and answers that are kept.
const OPEN: usize = 64;
const KEPT: usize = 1024;
/// How long a no holds: programs call again and again.
const NO: Duration = Duration::from_secs(60);

/// What has come of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Consent {
    /// The host may be reached.
    Given,
    /// It may not, and why.
    Withheld(String),
}

/// Something to be asked, or no longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// May programs reach this?
    Asked {
        /// The number of the question.
        number: u64,
        /// One port of one host.
        to: Destination,
        /// Which program calls it first, where the kernel tells.
        program: Option<Program>,
    },
    /// Nobody waits for the answer any more.
    Withdrawn {
        /// The number of the question.
        number: u64,
    },
}

/// The questions of a sandbox.
#[derive(Debug, Default)]
pub(super) struct Consents {
    /// Whether there is anybody to ask.
    asks: bool,
    open: BTreeMap<Destination, Open>,
    /// What holds until when; for the life of the sandbox where it says no time.
    kept: BTreeMap<Destination, (Consent, Option<Instant>)>,
    next: u64,
    /// To be told.
    queue: Vec<Question>,
}

#[derive(Debug)]
struct Open {
    number: u64,
    waiting: BTreeSet<usize>,
}

impl Consents {
    /// There is somebody to ask from now on.
    pub(super) fn may_ask(&mut self) {
        self.asks = true;
    }

    /// Somebody has said yes to this before, for good.
    pub(super) fn give(&mut self, to: Destination) {
        self.keep(to, Consent::Given, None);
    }

    /// As many as may be.
    fn keep(&mut self, to: Destination, consent: Consent, until: Option<Instant>) {
        if self.kept.len() < KEPT {
            self.kept.insert(to, (consent, until));
        }
    }

    /// The answer for a connection, where there is one; else the connection waits for it.
    pub(super) fn ask(
        &mut self,
        to: Destination,
        id: usize,
        now: Instant,
        program: impl FnOnce() -> Option<Program>,
    ) -> Option<Consent> {
        self.kept.retain(|_, (_, until)| until.is_none_or(|until| until > now));
        if let Some((consent, _)) = self.kept.get(&to) {
            return Some(consent.clone());
        }
        if !self.asks {
            return Some(Consent::Withheld("it is to be asked about, and there is nobody to ask".into()));
        }
        if let Some(open) = self.open.get_mut(&to) {
            open.waiting.insert(id);
            return None;
        }
        if self.open.len() >= OPEN {
            return Some(Consent::Withheld("too many questions about hosts are open".into()));
        }
        let number = self.next;
        self.next += 1;
        self.queue.push(Question::Asked { number, to: to.clone(), program: program() });
        self.open.insert(to, Open { number, waiting: BTreeSet::from([id]) });
        None
    }

    /// A connection does not wait any more.
    pub(super) fn forget(&mut self, id: usize) {
        let left = |open: &mut Open| open.waiting.remove(&id) && open.waiting.is_empty();
        if let Some(to) = self.open.iter_mut().find_map(|(to, open)| left(open).then(|| to.clone()))
            && let Some(open) = self.open.remove(&to)
        {
            self.queue.push(Question::Withdrawn { number: open.number });
        }
    }

    /// Takes an answer; who has waited for it. Nobody waits for one that is late.
    pub(super) fn answer(
        &mut self,
        number: u64,
        consent: &Consent,
        keep: bool,
        now: Instant,
    ) -> BTreeSet<usize> {
        let Some(to) = self.open.iter().find_map(|(to, open)| (open.number == number).then(|| to.clone()))
        else {
            return BTreeSet::new();
        };
        let until = match consent {
            _ if keep => Some(None),
            Consent::Withheld(_) => Some(Some(now + NO)),
            Consent::Given => None,
        };
        if let Some(until) = until {
            self.keep(to.clone(), consent.clone(), until);
        }
        self.open.remove(&to).map(|open| open.waiting).unwrap_or_default()
    }

    /// What is to be asked, and no longer, since the last call.
    pub(super) fn take(&mut self) -> Vec<Question> {
        std::mem::take(&mut self.queue)
    }

    /// The hosts that somebody has said yes to for good.
    pub(super) fn given(&self) -> impl Iterator<Item = &Destination> {
        let given =
            |(consent, until): &(Consent, Option<Instant>)| *consent == Consent::Given && until.is_none();
        self.kept.iter().filter(move |(_, kept)| given(kept)).map(|(to, _)| to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(text: &str) -> Destination {
        text.parse().unwrap()
    }

    fn asking() -> Consents {
        let mut consents = Consents::default();
        consents.may_ask();
        consents
    }

    #[test]
    fn a_host_is_asked_about_once_for_all_who_wait() {
        let (mut consents, now) = (asking(), Instant::now());
        for id in 0..3 {
            assert_eq!(consents.ask(to("a.example:443"), id, now, || None), None);
        }
        assert_eq!(consents.ask(to("a.example:80"), 3, now, || None), None);
        assert_eq!(consents.take().len(), 2);
        consents.forget(1);
        let waited = consents.answer(0, &Consent::Given, false, now);
        assert_eq!(waited, BTreeSet::from([0, 2]));
        assert!(consents.answer(0, &Consent::Given, false, now).is_empty());
        // It was for those alone.
        assert_eq!(consents.ask(to("a.example:443"), 4, now, || None), None);
        consents.forget(3);
        let [Question::Asked { number: 2, .. }, Question::Withdrawn { number: 1 }] = &consents.take()[..]
        else {
            panic!("a new question, and one less");
        };
    }

    #[test]
    fn a_yes_can_be_kept_and_a_no_is_for_a_while() {
        let (mut consents, now) = (asking(), Instant::now());
        let ask = |consents: &mut Consents, host, now| consents.ask(to(host), 0, now, || None);
        assert_eq!(ask(&mut consents, "a.example:443", now), None);
        consents.answer(0, &Consent::Given, true, now);
        assert_eq!(ask(&mut consents, "a.example:443", now + 100 * NO), Some(Consent::Given));
        assert_eq!(consents.given().collect::<Vec<_>>(), [&to("a.example:443")]);
        assert_eq!(ask(&mut consents, "b.example:443", now), None);
        let no = Consent::Withheld("no".into());
        consents.answer(1, &no, false, now);
        assert_eq!(ask(&mut consents, "b.example:443", now), Some(no));
        assert_eq!(ask(&mut consents, "b.example:443", now + NO), None);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut consents = asking();
        (0..2 * KEPT).for_each(|number| consents.give(to(&format!("{number}.example:443"))));
        assert_eq!(consents.given().count(), KEPT);
        let (extra, now) = (to("extra.example:443"), Instant::now());
        assert_eq!(consents.ask(extra.clone(), 0, now, || None), None);
        consents.answer(0, &Consent::Given, true, now);
        assert_eq!(consents.given().count(), KEPT);
        assert_eq!(consents.ask(extra, 1, now, || None), None, "it is asked again");
    }

    #[test]
    fn where_nobody_can_be_asked_the_answer_is_no() {
        let mut consents = Consents::default();
        let answer = consents.ask(to("a.example:443"), 0, Instant::now(), || None);
        assert!(matches!(answer, Some(Consent::Withheld(_))));
        let mut consents = asking();
        let ask = |consents: &mut Consents, number| {
            consents.ask(to(&format!("{number}.example:443")), number, Instant::now(), || None)
        };
        assert!((0..OPEN).all(|number| ask(&mut consents, number).is_none()));
        assert!(matches!(ask(&mut consents, OPEN), Some(Consent::Withheld(_))));
    }
}
