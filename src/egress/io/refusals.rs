//! What was refused, told once in a second however often it happens.

use super::owner::Program;
use crate::text::summary;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The same refusal is told again after this time.
const EVERY: Duration = Duration::from_secs(1);
/// Different refusals that are told apart in that time.
const KINDS: usize = 256;

/// What stands against a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The policy.
    #[default]
    Policy,
    /// What the program says is not what its protocol has.
    Malformed,
    /// As many are there as may be.
    Limit,
    /// Nothing here: its host is not to be had.
    Unreachable,
}

/// Something that a program wanted of the network, and why it does not get it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Refusal {
    /// What stands against it.
    pub kind: Kind,
    /// The name that it asked for, where there was one.
    #[serde(rename = "host", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The socket that it asked for or called, in words, where that is what it does not get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// The address that it called, where it is no stand-in for a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The port; a question for a name has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Why.
    pub why: String,
    /// The rule that says so, where one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The program that wanted it, where the kernel tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
    /// How often it was refused since it was told last.
    pub times: u64,
    /// Programs do such a thing in passing: it is an event, and nothing for a log.
    #[serde(skip)]
    pub is_usual: bool,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.name, self.address) {
            (Some(name), _) => write!(f, "network: {}", summary(name))?,
            (None, Some(IpAddr::V6(address))) if self.port.is_some() => write!(f, "network: [{address}]")?,
            (None, Some(address)) => write!(f, "network: {address}")?,
            (None, None) => {
                let what = self.socket.as_deref().unwrap_or("a connection");
                write!(f, "network: {}", summary(what))?;
            }
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        let what = if self.kind == Kind::Unreachable { "not reached" } else { "refused" };
        write!(f, " {what}: {}", summary(&self.why))?;
        if let Some(rule) = &self.rule {
            write!(f, " (rule {})", summary(rule))?;
        }
        if let Some(Program { pid, name }) = &self.program {
            write!(f, ", by {} (pid {pid})", summary(name))?;
        }
        if self.times > 1 { write!(f, ", {} times", self.times) } else { Ok(()) }
    }
}

/// When a refusal was told last, and how often it happened since.
#[derive(Debug)]
struct Told {
    at: Instant,
    since: u64,
}

/// The refusals of a sandbox.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// By themselves, with no count and no program.
    told: BTreeMap<Refusal, Told>,
    /// To be told.
    queue: Vec<Refusal>,
}

impl Refusals {
    /// Takes a refusal in; its count is not looked at, and its program is asked for when it is to be told at once.
    pub(super) fn add(&mut self, refusal: Refusal, now: Instant, program: impl FnOnce() -> Option<Program>) {
        let mut refusal = Refusal { times: 0, program: None, ..refusal };
        if !self.told.contains_key(&refusal) && self.told.len() >= KINDS {
            // Whoever makes up so many has nothing to learn from each.
            let why = "more different refusals than are told apart".into();
            refusal = Refusal { kind: Kind::Limit, why, ..Refusal::default() };
        }
        match self.told.get_mut(&refusal) {
            Some(told) => told.since += 1,
            None => {
                self.queue.push(Refusal { times: 1, program: program(), ..refusal.clone() });
                self.told.insert(refusal, Told { at: now, since: 0 });
            }
        }
    }

    /// What is to be told now.
    pub(super) fn take(&mut self, now: Instant) -> Vec<Refusal> {
        let mut out = std::mem::take(&mut self.queue);
        self.told.retain(|refusal, told| {
            if now.saturating_duration_since(told.at) < EVERY {
                return true;
            }
            if told.since == 0 {
                return false;
            }
            out.push(Refusal { times: told.since, ..refusal.clone() });
            *told = Told { at: now, since: 0 };
            true
        });
        out
    }

    /// When there will be something to tell again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.told.values().filter(|told| told.since > 0).map(|told| told.at + EVERY).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(name: &str) -> Refusal {
        let (why, name) = ("no rule names it".into(), Some(name.to_owned()));
        Refusal { name, port: Some(443), why, ..Refusal::default() }
    }

    #[test]
    fn the_same_is_told_once_in_a_second_with_its_count() {
        let (mut refusals, begin) = (Refusals::default(), Instant::now());
        for _ in 0..1000 {
            refusals.add(refused("a.example"), begin, || None);
        }
        refusals.add(refused("b.example"), begin, || None);
        let told = |refusals: Vec<Refusal>| {
            refusals
                .into_iter()
                .map(|refusal| (refusal.name.unwrap_or_default(), refusal.times))
                .collect::<Vec<_>>()
        };
        assert_eq!(told(refusals.take(begin)), [("a.example".into(), 1), ("b.example".into(), 1)]);
        assert_eq!(told(refusals.take(begin)), []);
        assert_eq!(refusals.deadline(), Some(begin + EVERY));
        assert_eq!(told(refusals.take(begin + EVERY)), [("a.example".into(), 999)]);
        assert_eq!(refusals.deadline(), None);
        assert_eq!(told(refusals.take(begin + 2 * EVERY)), []);
        assert!(refusals.told.is_empty());
    }

    #[test]
    fn a_flood_of_different_ones_is_bounded() {
        let (mut refusals, begin) = (Refusals::default(), Instant::now());
        for number in 0..10_000 {
            refusals.add(refused(&format!("{number}.example")), begin, || None);
        }
        assert_eq!(refusals.take(begin).len(), KINDS + 1);
        let rest = refusals.take(begin + EVERY);
        assert_eq!(rest.iter().map(|refusal| refusal.times).sum::<u64>(), 10_000 - 1 - KINDS as u64);
    }
}
