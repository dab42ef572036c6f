//! Reports denials. The same denial is reported at most once per second.

use super::socket_owner::CallingProgram;
use saggar_policy::hosts::{Destination, DestinationHost, DnsName};
use saggar_sys::text::summary;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Minimum interval between reports of the same denial.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of different denials that are reported separately in that interval.
const MAX_DENIALS: usize = 256;

/// The cause of a denial.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DenialKind {
    /// The policy.
    #[default]
    Policy,
    /// The program violates its protocol.
    Malformed,
    /// A limit is reached.
    Limit,
    /// The host is unreachable; the policy allows it.
    Unreachable,
}

/// A denied network operation of a program, and the reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NetworkDenial {
    /// The cause.
    pub kind: DenialKind,
    /// The requested name, if there is one.
    #[serde(rename = "host", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A description of the requested or called socket, if the socket itself was denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// The called address, unless it is a stand-in address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The port; a DNS question has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The reason.
    pub why: String,
    /// The rule that denies it, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The calling program, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<CallingProgram>,
    /// Number of denials since the last report.
    pub times: u64,
    /// Whether programs do this routinely. It is then reported as an event only, and not logged.
    #[serde(skip)]
    pub is_usual: bool,
}

/// What the reasons say that only a rule is missing.
const NO_RULE: &str = "no rule names";
const PRIVATE_ADDRESS: &str = " is a private address";

impl NetworkDenial {
    /// The rule that would allow the operation, if nothing but a rule is missing: `HOST`, `HOST:PORT` or `ADDRESS:PORT`. The
    /// name is of the program's choice, and is only returned if it is one of a host.
    pub fn missing_rule(&self) -> Option<String> {
        let lacks_rule = self.kind == DenialKind::Policy && self.rule.is_none() && self.socket.is_none();
        if !lacks_rule || !self.why.contains(NO_RULE) {
            return None;
        }
        let private = self.why.split_once(PRIVATE_ADDRESS).and_then(|(address, _)| address.parse().ok());
        let host = match (private, &self.name, self.address) {
            (Some(address), ..) | (None, None, Some(address)) => DestinationHost::Address(address),
            (None, Some(name), _) => DestinationHost::Name(DnsName::parse(name).ok()?),
            (None, None, None) => return None,
        };
        Some(match (host, self.port) {
            (host, Some(port)) => Destination { host, port }.to_string(),
            (DestinationHost::Name(name), None) => name.to_string(),
            (DestinationHost::Address(address), None) => address.to_string(),
        })
    }
}

impl std::fmt::Display for NetworkDenial {
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
        let what = if self.kind == DenialKind::Unreachable { "not reached" } else { "refused" };
        write!(f, " {what}: {}", summary(&self.why))?;
        if let Some(rule) = &self.rule {
            write!(f, " (rule {})", summary(rule))?;
        }
        if let Some(CallingProgram { pid, name }) = &self.program {
            write!(f, ", by {} (pid {pid})", summary(name))?;
        }
        if self.times > 1 { write!(f, ", {} times", self.times) } else { Ok(()) }
    }
}

/// The time of the last report of a denial, and the number of repeats since.
#[derive(Debug)]
struct ReportedDenial {
    reported_at: Instant,
    repeats: u64,
}

/// The denials of a sandbox.
#[derive(Debug, Default)]
pub(super) struct DenialLog {
    /// By denial, without count and program.
    reported: BTreeMap<NetworkDenial, ReportedDenial>,
    /// Denials to report.
    queue: Vec<NetworkDenial>,
}

impl DenialLog {
    /// Records a denial; its count is ignored. `program` is called only if the denial is reported at once.
    pub(super) fn add(
        &mut self,
        refusal: NetworkDenial,
        now: Instant,
        program: impl FnOnce() -> Option<CallingProgram>,
    ) {
        let mut refusal = NetworkDenial { times: 0, program: None, ..refusal };
        if !self.reported.contains_key(&refusal) && self.reported.len() >= MAX_DENIALS {
            // A program that causes this many different denials gets no separate report for each.
            let why = "more different refusals than are counted separately".into();
            refusal = NetworkDenial { kind: DenialKind::Limit, why, ..NetworkDenial::default() };
        }
        match self.reported.get_mut(&refusal) {
            Some(told) => told.repeats += 1,
            None => {
                self.queue.push(NetworkDenial { times: 1, program: program(), ..refusal.clone() });
                self.reported.insert(refusal, ReportedDenial { reported_at: now, repeats: 0 });
            }
        }
    }

    /// Denials that are due for a report.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<NetworkDenial> {
        let mut out = std::mem::take(&mut self.queue);
        self.reported.retain(|refusal, told| {
            if now.saturating_duration_since(told.reported_at) < REPORT_INTERVAL {
                return true;
            }
            if told.repeats == 0 {
                return false;
            }
            out.push(NetworkDenial { times: told.repeats, ..refusal.clone() });
            *told = ReportedDenial { reported_at: now, repeats: 0 };
            true
        });
        out
    }

    /// When the next repeated denial is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.reported
            .values()
            .filter(|told| told.repeats > 0)
            .map(|told| told.reported_at + REPORT_INTERVAL)
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(name: &str) -> NetworkDenial {
        let (why, name) = ("no rule names it".into(), Some(name.to_owned()));
        NetworkDenial { name, port: Some(443), why, ..NetworkDenial::default() }
    }

    #[test]
    fn the_same_is_told_once_in_a_second_with_its_count() {
        let (mut refusals, begin) = (DenialLog::default(), Instant::now());
        for _ in 0..1000 {
            refusals.add(refused("a.example"), begin, || None);
        }
        refusals.add(refused("b.example"), begin, || None);
        let told = |refusals: Vec<NetworkDenial>| {
            refusals
                .into_iter()
                .map(|refusal| (refusal.name.unwrap_or_default(), refusal.times))
                .collect::<Vec<_>>()
        };
        assert_eq!(told(refusals.take_due(begin)), [("a.example".into(), 1), ("b.example".into(), 1)]);
        assert_eq!(told(refusals.take_due(begin)), []);
        assert_eq!(refusals.deadline(), Some(begin + REPORT_INTERVAL));
        assert_eq!(told(refusals.take_due(begin + REPORT_INTERVAL)), [("a.example".into(), 999)]);
        assert_eq!(refusals.deadline(), None);
        assert_eq!(told(refusals.take_due(begin + 2 * REPORT_INTERVAL)), []);
        assert!(refusals.reported.is_empty());
    }

    #[test]
    fn a_flood_of_different_ones_is_bounded() {
        let (mut refusals, begin) = (DenialLog::default(), Instant::now());
        for number in 0..10_000 {
            refusals.add(refused(&format!("{number}.example")), begin, || None);
        }
        assert_eq!(refusals.take_due(begin).len(), MAX_DENIALS + 1);
        let rest = refusals.take_due(begin + REPORT_INTERVAL);
        assert_eq!(rest.iter().map(|refusal| refusal.times).sum::<u64>(), 10_000 - 1 - MAX_DENIALS as u64);
    }
}
