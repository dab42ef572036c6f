//! The rules that would have allowed what a sandbox was denied, for a line at its end.

use crate::egress::io::NetworkDenial;
use std::collections::BTreeMap;

/// The largest number of rules that are named.
const MAX_RULES: usize = 16;

/// How often each rule was missing.
#[derive(Debug, Default)]
pub(super) struct MissingRules {
    times: BTreeMap<String, u64>,
    /// Whether there were more than can be named.
    has_more: bool,
}

impl MissingRules {
    /// Counts a denial, if only a rule was missing.
    pub(super) fn add(&mut self, denial: &NetworkDenial) {
        let Some(rule) = denial.missing_rule() else { return };
        if self.times.len() < MAX_RULES || self.times.contains_key(&rule) {
            *self.times.entry(rule).or_default() += denial.times;
        } else {
            self.has_more = true;
        }
    }

    /// A line for each rule.
    pub(super) fn into_lines(self) -> impl Iterator<Item = String> {
        let more = self.has_more.then(|| "more hosts were refused than are listed".to_owned());
        let line = |(rule, times): (String, u64)| {
            let refused = if times == 1 { "once".to_owned() } else { format!("{times} times") };
            format!("to allow {rule}, which was refused {refused}: --allow-host {rule}")
        };
        self.times.into_iter().map(line).chain(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::io::DenialKind;

    fn denial(name: &str, port: Option<u16>, why: &str) -> NetworkDenial {
        let name = (!name.is_empty()).then(|| name.to_owned());
        NetworkDenial { name, port, why: why.to_owned(), times: 1, ..NetworkDenial::default() }
    }

    fn lines(denials: &[NetworkDenial]) -> Vec<String> {
        let mut rules = MissingRules::default();
        denials.iter().for_each(|denial| rules.add(denial));
        rules.into_lines().collect()
    }

    #[test]
    fn a_rule_is_named_if_nothing_else_is_missing() {
        let name = || denial("a.example", Some(443), "no rule names it with this port");
        let address = "10.1.2.3 is a private address, and no rule names it";
        assert_eq!(
            lines(&[
                name(),
                name(),
                denial("b.example", None, "no rule names it"),
                denial("c.example", Some(80), address),
                denial("d.example", Some(80), &address.replace("10.1.2.3", "fd00::7")),
                NetworkDenial {
                    address: Some("192.0.2.7".parse().unwrap()),
                    ..denial("", Some(22), "no rule names it")
                },
            ]),
            [
                "to allow 10.1.2.3:80, which was refused once: --allow-host 10.1.2.3:80",
                "to allow 192.0.2.7:22, which was refused once: --allow-host 192.0.2.7:22",
                "to allow [fd00::7]:80, which was refused once: --allow-host [fd00::7]:80",
                "to allow a.example:443, which was refused 2 times: --allow-host a.example:443",
                "to allow b.example, which was refused once: --allow-host b.example",
            ]
        );
        let other = [
            denial("a.example", Some(443), "it is denied"),
            NetworkDenial { rule: Some("a.example".into()), ..name() },
            NetworkDenial { kind: DenialKind::Unreachable, ..name() },
            NetworkDenial { socket: Some("a raw socket".into()), ..name() },
            denial("$(reboot)", Some(443), "no rule names it"),
            denial("169.254.169.254", Some(80), "169.254.169.254 is a metadata service"),
        ];
        assert_eq!(lines(&other), [""; 0]);
    }

    #[test]
    fn the_number_of_rules_is_bounded() {
        let many: Vec<_> =
            (0..100).map(|n| denial(&format!("n{n}.example"), Some(443), "no rule names it")).collect();
        let lines = lines(&many);
        assert_eq!((lines.len(), lines[16].as_str()), (17, "more hosts were refused than are listed"));
    }
}
