//! The ports of a rule.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// What a host is allowed at when its rule names no port: HTTP and HTTPS.
const WEB: [RangeInclusive<u16>; 2] = [80..=80, 443..=443];

/// Ports, as `80,443,8000-8010`. A rule that names none allows the web's, and denies every one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Ports(Vec<RangeInclusive<u16>>);

impl Ports {
    /// Whether a rule with these ports allows this one.
    pub fn allow(&self, port: u16) -> bool {
        self.allowed().iter().any(|range| range.contains(&port))
    }

    /// Whether a rule with these ports denies this one.
    pub fn deny(&self, port: u16) -> bool {
        self.0.is_empty() || self.0.iter().any(|range| range.contains(&port))
    }

    /// The one port, where it is one.
    pub(super) fn single(&self) -> Option<u16> {
        match self.0.as_slice() {
            [range] if range.start() == range.end() => Some(*range.start()),
            _ => None,
        }
    }

    /// What is allowed with these ports.
    pub(super) fn allowed(&self) -> &[RangeInclusive<u16>] {
        match self.0.as_slice() {
            [] => &WEB,
            named => named,
        }
    }

    /// Every port of these ranges, in order, each once.
    pub(super) fn all_of<'a>(
        ranges: impl Iterator<Item = &'a [RangeInclusive<u16>]>,
    ) -> impl Iterator<Item = u16> {
        joined(ranges.flatten().cloned().collect()).into_iter().flatten()
    }
}

/// The same ports in as few ranges as there can be, in order.
fn joined(mut ranges: Vec<RangeInclusive<u16>>) -> Vec<RangeInclusive<u16>> {
    ranges.sort_by_key(|range| *range.start());
    let mut joined: Vec<RangeInclusive<u16>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if *range.start() <= last.end().saturating_add(1) => {
                *last = *last.start()..=*last.end().max(range.end());
            }
            _ => joined.push(range),
        }
    }
    joined
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = |digits: &str| {
            let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            let port = plain.then(|| digits.parse::<u16>().ok()).flatten().filter(|port| *port != 0);
            port.ok_or_else(|| format!("names the port {digits:?}, which is no number from 1 to 65535"))
        };
        let mut ranges = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (port(first)?, port(last)?);
            if first > last {
                return Err(format!("has the range {part}, which ends before it begins"));
            }
            ranges.push(first..=last);
        }
        Ok(Ports(joined(ranges)))
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for range in &self.0 {
            match range.start() == range.end() {
                true => write!(f, "{comma}{}", range.start())?,
                false => write!(f, "{comma}{}-{}", range.start(), range.end())?,
            }
            comma = ",";
        }
        Ok(())
    }
}
