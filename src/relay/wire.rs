//! The messages of the relay: one JSON value each on a seqpacket socket, of a bounded size, with at most one descriptor
//! beside it.

use crate::egress::io::publish::{Published, Unanswered};
use crate::egress::io::{Counted, File, Program, Refusal, Whose};
use crate::error::Error;
use crate::spec::policy::hosts::{HostRule, Rules};
use crate::sys::catch;
use crate::sys::net::Family;
use crate::sys::unheard::Answer;
use serde::{Deserialize, Serialize};

/// The longest message, in bytes.
pub const LONGEST: usize = 64 << 10;
/// Rules, or rows of an account, in one message: as many as surely fit.
pub const AT_ONCE: usize = 48;

/// The first message of a supervisor, with a pidfd of pid 1 beside it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Start {
    /// The process of the supervisor, with which the relay ends.
    pub supervisor: i32,
    /// Pid 1 of the sandbox.
    pub init: i32,
    /// The user and the group that the relay becomes, where it is root.
    pub id: u32,
    /// The user and the group of its programs, where they are others than the caller's.
    pub owner: Option<(u32, u32)>,
    /// The network of the sandbox goes by policy.
    pub by_policy: bool,
    /// Ports of it are published.
    pub publishes: bool,
}

/// From the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub enum Down {
    /// The socket beside this, of the host, leads to a port inside.
    Publish(Published),
    /// Rules from now on: some of them.
    Rules(SomeRules),
    /// The socket beside this hears a port of the sandbox.
    Hear(catch::Kind, u16),
    /// The socket beside this sees how the kernel answers calls that no socket hears.
    Witness(Family, Answer),
    /// The listener of pid 1's filter is beside this.
    Listener,
    /// The socket beside this, of the sandbox, was asked for; or there is none, by this error number.
    Socket(Family, Option<i32>),
    /// Questions about hosts can be answered.
    MayAsk,
    /// This host, HOST:PORT, was consented to for good.
    Consent(String),
    /// The answer to a question: yes, or why not; `keep` makes it last.
    Answer {
        /// The number of the question.
        number: u64,
        /// Why not.
        withheld: Option<String>,
        /// For as long as the sandbox lives.
        keep: bool,
    },
    /// [`Up::Account`] is wanted.
    Account,
    /// No program is left: [`Up::Settled`] is wanted when what they sent is where it was sent to.
    Settle,
}

/// Some rules of a set that may be too large for one message.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SomeRules {
    allow: Vec<String>,
    deny: Vec<String>,
    ask: Vec<String>,
    /// These are the last.
    last: bool,
}

/// From the relay.
#[derive(Debug, Serialize, Deserialize)]
pub enum Up {
    /// It could not give up its rights, and ends.
    Failed(Error),
    /// May programs reach this host, HOST:PORT?
    Asked {
        /// The number of the question.
        number: u64,
        /// One port of one host.
        to: String,
        /// The program that calls it first.
        program: Option<Program>,
    },
    /// No program waits for the answer to this question any more.
    Withdrawn(u64),
    /// A program did not get what it wanted.
    Refused(Refused),
    /// A published port was called, and no server inside answered.
    Unanswered(Unanswered),
    /// A socket of the sandbox is wanted.
    Wanted(Family),
    /// Connections that stand, and some rows of the account; true with the last of them.
    Account(usize, Vec<Counted>, bool),
    /// What programs sent is where it was sent to.
    Settled,
}

/// A refusal, with what events do not have of it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Refused {
    refusal: Refusal,
    is_usual: bool,
}

/// From the relay to the attribution; an answer has the number of its question.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Ask {
    /// Whose socket is this?
    Program(u64, Whose),
    /// This file is wanted, open for reading.
    File(u64, File),
    /// The relay hears this port.
    Hears(u16),
    /// The listener of pid 1's filter is beside this.
    Listener,
}

/// From the attribution, an answer; a file is beside it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answered {
    pub(super) number: u64,
    pub(super) program: Option<Program>,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Refused { is_usual: refusal.is_usual, refusal }
    }
}

impl From<Refused> for Refusal {
    fn from(Refused { refusal, is_usual }: Refused) -> Self {
        Refusal { is_usual, ..refusal }
    }
}

impl SomeRules {
    /// All of these rules, a message at a time.
    pub fn of(rules: &Rules) -> Vec<Self> {
        let mut all = vec![SomeRules::default()];
        for (list, rules) in [(0, &rules.allow), (1, &rules.deny), (2, &rules.ask)] {
            for some in rules.chunks(AT_ONCE) {
                let texts = some.iter().map(ToString::to_string).collect();
                let empty = SomeRules::default();
                all.push(match list {
                    0 => SomeRules { allow: texts, ..empty },
                    1 => SomeRules { deny: texts, ..empty },
                    _ => SomeRules { ask: texts, ..empty },
                });
            }
        }
        if let Some(last) = all.last_mut() {
            last.last = true;
        }
        all
    }

    /// Adds them to `rules`; whether those are whole now. `None` when one of them is no rule.
    pub fn add_to(&self, rules: &mut Rules) -> Option<bool> {
        let Rules { allow, deny, ask } = rules;
        for (texts, rules) in [(&self.allow, allow), (&self.deny, deny), (&self.ask, ask)] {
            let parsed: Result<Vec<HostRule>, _> = texts.iter().map(|text| text.parse()).collect();
            rules.extend(parsed.ok()?);
        }
        Some(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_any_number_survive_the_wire() {
        let rule = |number: usize| format!("{}{number}.example:{}", "a.".repeat(100), 1 + number % 60_000);
        for count in [0, 1, AT_ONCE, 500] {
            let list =
                |from: usize| (from..from + count).map(|number| rule(number).parse().unwrap()).collect();
            let rules = Rules { allow: list(0), deny: list(1000), ask: list(2000) };
            let mut got = Rules::default();
            let mut messages = SomeRules::of(&rules).into_iter().peekable();
            while let Some(some) = messages.next() {
                let bytes = serde_json::to_vec(&Down::Rules(some)).unwrap();
                assert!(bytes.len() <= LONGEST, "{}", bytes.len());
                let Ok(Down::Rules(some)) = serde_json::from_slice(&bytes) else { panic!("rules") };
                assert_eq!(some.add_to(&mut got), Some(messages.peek().is_none()));
            }
            assert_eq!(got, rules);
        }
    }

    #[test]
    fn a_refusal_is_whole_behind_the_wire() {
        let refusal = Refusal {
            name: Some("a.example".into()),
            socket: Some("a raw socket".into()),
            port: Some(443),
            is_usual: true,
            times: 3,
            program: Some(Program { pid: 7, name: "\u{202e}\n".into() }),
            ..Refusal::default()
        };
        let bytes = serde_json::to_vec(&Up::Refused(refusal.clone().into())).unwrap();
        let Ok(Up::Refused(refused)) = serde_json::from_slice(&bytes) else { panic!("a refusal") };
        assert_eq!(Refusal::from(refused), refusal);
    }
}
