//! What changes while a sandbox runs: limits and hosts that the control socket says, as one more layer.

use super::document::{Document, Limits, NetworkTable};
use super::effective::{Effective, Lock};
use super::hosts::{HostRule, MOST_PORTS};
use super::layer::{Layer, Setting};
use super::names::{Network, Part};
use super::parse::{self, Format};
use super::provenance::Admitted;
use super::tighten::keep_locked;
use super::validate::validate;
use crate::error::{Code, Error, Result};
use crate::text::summary;
use serde::Deserialize;

/// The policy `now` with these limits, the JSON of a `[limits]` table. All is right with them in itself, and nothing
/// is named that cannot change.
///
/// # Errors
/// [`Code::Invalid`] for what is no such table; [`Code::Unsupported`] for a limit that holds as it was set at the start.
pub fn change(now: &Effective, limits: &str) -> Result<Effective> {
    let source = "update";
    let document = parse::parse(source, Format::Json, format!("{{\"limits\":{limits}}}").as_bytes())?;
    let wrong = |why: String| Error::new(Code::Invalid, format!("{source}: {why}"));
    validate(&document).map_err(|invalid| wrong(format!("{}: {}", invalid.key, invalid.why)))?;
    if document.limits == Limits::default() {
        return Err(
            wrong("no limit is named".into()).hint("name one, as in {\"limits\":{\"memory\":\"1G\"}}")
        );
    }
    let Limits { disk, inodes, fsize, nofile, script, .. } = &document.limits;
    let fixed = [
        ("disk", disk.is_some()),
        ("inodes", inodes.is_some()),
        ("fsize", fsize.is_some()),
        ("nofile", nofile.is_some()),
        ("script", script.is_some()),
    ];
    if let Some((name, _)) = fixed.into_iter().find(|(_, named)| *named) {
        let message = format!("{source}: limits.{name} is set when a sandbox starts, and cannot change");
        return Err(Error::new(Code::Unsupported, message).hint("start it with another value"));
    }
    hold_locks(now, &document, source)?;
    let mut changed = now.clone();
    let document = Document { limits: document.limits, ..Document::default() };
    let admitted = Admitted::of(now, document, &Layer::Control, &[]).map_err(|e| wrong(e.to_string()))?;
    changed.take(admitted);
    Ok(changed)
}

/// Lists of hosts; one that is not there stays as it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lists {
    allow: Option<Vec<HostRule>>,
    deny: Option<Vec<HostRule>>,
    ask: Option<Vec<HostRule>>,
}

/// The policy `now` with these lists of hosts, the JSON of a `[network]` table without a mode, each in place of the
/// list of that name; what was denied when a layer locked the network stays denied.
///
/// # Errors
/// [`Code::Invalid`] for what is no such table; [`Code::Unsupported`] for a sandbox whose network does not go by policy,
/// and for hosts beyond what is locked.
pub fn change_network(now: &Effective, network: &str) -> Result<Effective> {
    let source = "update";
    let wrong = |why: String| Error::new(Code::Invalid, summary(&format!("{source}: {why}")));
    let lists: Lists = serde_json::from_str(network).map_err(|e| wrong(format!("network: {e}")))?;
    let Lists { allow, deny, ask } = lists;
    if allow.is_none() && deny.is_none() && ask.is_none() {
        let hint = "name one, as in {\"network\":{\"allow\":[\"api.example.com\"]}}";
        return Err(wrong("no list of hosts is named".into()).hint(hint));
    }
    if now.network.value != Network::Policy {
        let mode = now.network.value;
        let message = format!("{source}: network.mode is {mode}, which is set when a sandbox starts");
        return Err(Error::new(Code::Unsupported, message).hint("start it with hosts in network.allow"));
    }
    let table = |allow: &Option<Vec<HostRule>>| allow.clone().unwrap_or_default();
    let network = NetworkTable {
        allow: table(&allow),
        deny: table(&deny),
        ask: table(&ask),
        ..NetworkTable::default()
    };
    let document = Document { network, ..Document::default() };
    validate(&document).map_err(|invalid| wrong(format!("{}: {}", invalid.key, invalid.why)))?;
    hold_locks(now, &document, source)?;
    let mut changed = now.clone();
    let held = if now.locked_by(Part::Network).is_some() { now.hosts.deny.clone() } else { Vec::new() };
    put(&mut changed.hosts.allow, allow, Vec::new());
    put(&mut changed.hosts.deny, deny, held);
    put(&mut changed.hosts.ask, ask, Vec::new());
    let ports = changed.hosts.rules().ports().len();
    if ports > MOST_PORTS {
        return Err(wrong(format!("network names {ports} ports, and {MOST_PORTS} are the most")));
    }
    Ok(changed)
}

/// Puts a list in the place of another one, behind what is held in any case.
fn put(list: &mut Vec<Setting<HostRule>>, rules: Option<Vec<HostRule>>, mut held: Vec<Setting<HostRule>>) {
    let Some(rules) = rules else { return };
    held.extend(rules.into_iter().map(|value| Setting { value, layer: Layer::Control }));
    *list = held;
}

/// Refuses a document that widens what a layer has locked.
fn hold_locks(now: &Effective, document: &Document, source: &str) -> Result<()> {
    keep_locked(now, document).map_err(|(widening, Lock { part, layer, .. })| {
        let message =
            format!("{source} {widening}; {layer} locks {part}, which may only be tightened after it");
        Error::new(Code::Unsupported, message).hint("ask for less")
    })
}

#[cfg(test)]
mod tests {
    use super::super::Home;
    use super::*;

    #[test]
    fn limits_are_those_of_a_policy() {
        let now = Effective::built_in(Home::Session);
        let changed = change(&now, r#"{"memory":"1G","cpus":0.5,"idle":"1h"}"#).unwrap();
        assert_eq!(
            (changed.limits.memory.value.to_string().as_str(), &changed.limits.memory.layer),
            ("1G", &Layer::Control)
        );
        assert_eq!(changed.limits.pids, now.limits.pids);
        assert_eq!(changed.limits.idle.unwrap().value.duration().as_secs(), 3600);
    }

    #[test]
    fn what_the_operator_has_locked_is_only_tightened() {
        let mut now = Effective::built_in(Home::Session);
        let layer = Layer::Operator(std::path::Path::new("/etc/saggar/config.toml").into());
        now.merge(toml::from_str("locked = ['limits']\nlimits.timeout = '1h'").unwrap(), &layer);
        let refusal = |text: &str| change(&now, text).unwrap_err().to_string();
        insta::assert_snapshot!(refusal(r#"{"memory":"4G"}"#), @"update asks for limits.memory = 4G, above the 2G of built-in; /etc/saggar/config.toml locks limits, which may only be tightened after it");
        assert!(refusal(r#"{"timeout":"2h"}"#).contains("limits.timeout = 2h, above the 1h"));
        let less = change(&now, r#"{"memory":"1G","timeout":"30m","idle":"1m"}"#).unwrap();
        // What counts is what was locked, and not what was tightened since.
        change(&less, r#"{"memory":"2G","timeout":"1h"}"#).unwrap();
        assert!(change(&less, r#"{"timeout":"61m"}"#).is_err());
    }

    #[test]
    fn what_is_not_a_limit_that_can_change_is_refused_by_name() {
        let now = Effective::built_in(Home::Session);
        let refusal = |text: &str| {
            let error = change(&now, text).unwrap_err();
            format!("{}: {error}", error.code().name())
        };
        let texts = [
            "{}",
            "[]",
            "3",
            r#"{"memory":null}"#,
            r#"{"memory":"much"}"#,
            r#"{"memory":512}"#,
            r#"{"memry":"1G"}"#,
            r#"{"disk":"1G"}"#,
            r#"{"nofile":1000}"#,
            r#"{"cpu_idle":true,"cpu_weight":5}"#,
        ];
        insta::assert_snapshot!(texts.map(refusal).join("\n"));
    }

    #[test]
    fn hosts_take_the_place_of_those_that_held() {
        let mut now = Effective::built_in(Home::Session);
        let operator = Layer::Operator(std::path::Path::new("/etc/saggar/config.toml").into());
        now.merge(
            toml::from_str("network.allow = ['a.x', 'b.x']\nnetwork.deny = ['c.x']").unwrap(),
            &operator,
        );
        let changed = change_network(&now, r#"{"allow":["d.x"]}"#).unwrap();
        let texts = |rules: &[HostRule]| rules.iter().map(ToString::to_string).collect::<Vec<_>>();
        let rules = changed.hosts.rules();
        assert_eq!((texts(&rules.allow), texts(&rules.deny)), (vec!["d.x".into()], vec!["c.x".into()]));
        let emptied = change_network(&changed, r#"{"allow":[],"deny":[]}"#).unwrap();
        assert_eq!(emptied.hosts, super::super::effective::Hosts::default());
        let refusal = |text: &str| change_network(&now, text).unwrap_err().to_string();
        assert!(refusal("{}").contains("no list of hosts"));
        assert!(refusal(r#"{"allow":["a.x:53"]}"#).contains("network.allow: a.x:53 has port 53"));
        assert!(refusal(r#"{"allow":["http://a.x/"]}"#).contains("URL"));
        assert!(refusal(r#"{"publish":[]}"#).contains("unknown field"));
        let none = Effective::built_in(Home::Session);
        assert_eq!(change_network(&none, r#"{"deny":["a.x"]}"#).unwrap_err().code(), Code::Unsupported);
    }

    #[test]
    fn locked_hosts_are_only_fewer() {
        let mut now = Effective::built_in(Home::Session);
        let operator = Layer::Operator(std::path::Path::new("/etc/saggar/config.toml").into());
        let locked = "locked = ['network']\nnetwork.allow = ['a.x', 'b.x']\nnetwork.deny = ['c.x']";
        now.merge(toml::from_str(locked).unwrap(), &operator);
        let refusal = change_network(&now, r#"{"allow":["a.x","d.x"]}"#).unwrap_err();
        assert!(
            refusal.to_string().contains("network.allow = d.x, which no layer before it gives"),
            "{refusal}"
        );
        let fewer = change_network(&now, r#"{"allow":["a.x"],"deny":[],"ask":["b.x"]}"#).unwrap();
        let rules = fewer.hosts.rules();
        assert_eq!((rules.allow.len(), rules.deny.len(), rules.ask.len()), (1, 1, 1));
        // What counts is what was locked.
        change_network(&fewer, r#"{"allow":["b.x"]}"#).unwrap();
    }
}
