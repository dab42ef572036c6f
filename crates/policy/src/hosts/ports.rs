//! The ports of a rule.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// The ports that a rule without ports allows: HTTP and HTTPS.
const WEB_PORTS: [RangeInclusive<u16>; 2] = [80..=80, 443..=443];

/// A set of ports, as `80,443,8000-8010`. A rule without ports allows those of `WEB_PORTS`, and denies
/// every port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct PortSet(Vec<RangeInclusive<u16>>);

impl PortSet {
    /// Whether a rule with these ports allows this port.
    pub fn allows(&self, port: u16) -> bool {
        self.allowed_ranges().iter().any(|range| range.contains(&port))
    }

    /// Whether a rule with these ports denies this port.
    pub fn denies(&self, port: u16) -> bool {
        self.0.is_empty() || self.0.iter().any(|range| range.contains(&port))
    }

    /// The port, if the set has only one.
    pub(super) fn as_single_port(&self) -> Option<u16> {
        match self.0.as_slice() {
            [range] if range.start() == range.end() => Some(*range.start()),
            _ => None,
        }
    }

    /// The ranges that a rule with these ports allows.
    pub(super) fn allowed_ranges(&self) -> &[RangeInclusive<u16>] {
        match self.0.as_slice() {
            [] => &WEB_PORTS,
            named => named,
        }
    }

    /// Every port of these ranges, in ascending order, without duplicates.
    pub(super) fn iter_ports<'a>(
        ranges: impl Iterator<Item = &'a [RangeInclusive<u16>]>,
    ) -> impl Iterator<Item = u16> {
        merge_ranges(ranges.flatten().cloned().collect()).into_iter().flatten()
    }
}

/// The same ports in the fewest ranges, in ascending order.
fn merge_ranges(mut ranges: Vec<RangeInclusive<u16>>) -> Vec<RangeInclusive<u16>> {
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

impl FromStr for PortSet {
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
        Ok(PortSet(merge_ranges(ranges)))
    }
}

impl fmt::Display for PortSet {
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
