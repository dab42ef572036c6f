//! Changes to a running sandbox: limits and hosts from the control socket, merged as one more layer.

use super::document::{LimitsTable, NetworkTable, PolicyDocument};
use super::effective::{EffectivePolicy, PolicyLock};
use super::hosts::{HostRule, MAX_PORTS};
use super::layer::{PolicyLayer, Setting};
use super::names::{NetworkMode, PolicyPart};
use super::parse::{self, PolicyFormat};
use super::provenance::AdmittedDocument;
use super::tighten::check_locks;
use super::validate::validate;
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::text::summary;
use serde::Deserialize;

/// The policy `current` with these limits, the JSON of a `[limits]` table. The table is validated on its
/// own.
///
/// # Errors
/// [`Code::Invalid`] for an invalid or empty table; [`Code::Unsupported`] for a limit that cannot change
/// after the start, and for a limit beyond a lock.
pub fn update_limits(current: &EffectivePolicy, limits: &str) -> Result<EffectivePolicy> {
    let source = "update";
    let document = parse::parse(source, PolicyFormat::Json, format!("{{\"limits\":{limits}}}").as_bytes())?;
    let wrong = |why: String| Error::new(Code::Invalid, format!("{source}: {why}"));
    validate(&document).map_err(|invalid| wrong(format!("{}: {}", invalid.key, invalid.reason)))?;
    if document.limits == LimitsTable::default() {
        return Err(
            wrong("no limit is named".into()).hint("name one, as in {\"limits\":{\"memory\":\"1G\"}}")
        );
    }
    let LimitsTable { disk, inodes, fsize, nofile, script, .. } = &document.limits;
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
    refuse_if_locked(current, &document, source)?;
    let mut changed = current.clone();
    let document = PolicyDocument { limits: document.limits, ..PolicyDocument::default() };
    let admitted = AdmittedDocument::admit(current, document, &PolicyLayer::ControlSocket, &[])
        .map_err(|e| wrong(e.to_string()))?;
    changed.merge_admitted(admitted);
    Ok(changed)
}

/// The lists of hosts to replace; an absent list is unchanged.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostLists {
    allow: Option<Vec<HostRule>>,
    deny: Option<Vec<HostRule>>,
    ask: Option<Vec<HostRule>>,
}

/// The policy `current` with these lists of hosts, the JSON of a `[network]` table without a mode. Each
/// list replaces the current one. Hosts that were denied when a layer locked the network stay denied.
///
/// # Errors
/// [`Code::Invalid`] for an invalid table; [`Code::Unsupported`] for a sandbox whose network mode is not
/// `policy`, and for hosts beyond a lock.
pub fn update_network(current: &EffectivePolicy, network: &str) -> Result<EffectivePolicy> {
    let source = "update";
    let wrong = |why: String| Error::new(Code::Invalid, summary(&format!("{source}: {why}")));
    let lists: HostLists = serde_json::from_str(network).map_err(|e| wrong(format!("network: {e}")))?;
    let HostLists { allow, deny, ask } = lists;
    if allow.is_none() && deny.is_none() && ask.is_none() {
        let hint = "name one, as in {\"network\":{\"allow\":[\"api.example.com\"]}}";
        return Err(wrong("no list of hosts is named".into()).hint(hint));
    }
    if current.network.value != NetworkMode::Policy {
        let mode = current.network.value;
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
    let document = PolicyDocument { network, ..PolicyDocument::default() };
    validate(&document).map_err(|invalid| wrong(format!("{}: {}", invalid.key, invalid.reason)))?;
    refuse_if_locked(current, &document, source)?;
    let mut changed = current.clone();
    let kept_denials = if current.locked_by(PolicyPart::Network).is_some() {
        current.hosts.deny.clone()
    } else {
        Vec::new()
    };
    replace_list(&mut changed.hosts.allow, allow, Vec::new());
    replace_list(&mut changed.hosts.deny, deny, kept_denials);
    replace_list(&mut changed.hosts.ask, ask, Vec::new());
    let ports = changed.hosts.rules().reachable_ports().len();
    if ports > MAX_PORTS {
        return Err(wrong(format!("network names {ports} ports, and {MAX_PORTS} are the most")));
    }
    Ok(changed)
}

/// Replaces a list. The entries in `kept` stay, before the new rules.
fn replace_list(
    list: &mut Vec<Setting<HostRule>>,
    rules: Option<Vec<HostRule>>,
    mut kept: Vec<Setting<HostRule>>,
) {
    let Some(rules) = rules else { return };
    kept.extend(rules.into_iter().map(|value| Setting { value, layer: PolicyLayer::ControlSocket }));
    *list = kept;
}

/// Refuses a document that widens a locked part.
fn refuse_if_locked(current: &EffectivePolicy, document: &PolicyDocument, source: &str) -> Result<()> {
    check_locks(current, document).map_err(|(widening, PolicyLock { part, layer, .. })| {
        let message =
            format!("{source} {widening}; {layer} locks {part}, which may only be tightened after it");
        Error::new(Code::Unsupported, message).hint("ask for less")
    })
}

#[cfg(test)]
mod tests {
    use super::super::HomeSource;
    use super::*;

    #[test]
    fn limits_are_those_of_a_policy() {
        let now = EffectivePolicy::built_in(HomeSource::Session);
        let changed =
            update_limits(&now, r#"{"memory":"1G","cpus":0.5,"idle":"1h","agent_idle":"2m"}"#).unwrap();
        assert_eq!(
            (changed.limits.memory.value.to_string().as_str(), &changed.limits.memory.layer),
            ("1G", &PolicyLayer::ControlSocket)
        );
        assert_eq!(changed.limits.pids, now.limits.pids);
        assert_eq!(changed.limits.idle.unwrap().value.duration().as_secs(), 3600);
        assert_eq!(changed.limits.agent_idle.unwrap().value.duration().as_secs(), 120);
    }

    #[test]
    fn what_the_operator_has_locked_is_only_tightened() {
        let mut now = EffectivePolicy::built_in(HomeSource::Session);
        let layer = PolicyLayer::Operator(std::path::Path::new("/etc/saggar/config.toml").into());
        now.merge(toml::from_str("locked = ['limits']\nlimits.timeout = '1h'").unwrap(), &layer);
        let refusal = |text: &str| update_limits(&now, text).unwrap_err().to_string();
        insta::assert_snapshot!(refusal(r#"{"memory":"4G"}"#), @"update asks for limits.memory = 4G, above the 2G of built-in; /etc/saggar/config.toml locks limits, which may only be tightened after it");
        assert!(refusal(r#"{"timeout":"2h"}"#).contains("limits.timeout = 2h, above the 1h"));
        let less = update_limits(&now, r#"{"memory":"1G","timeout":"30m","idle":"1m"}"#).unwrap();
        // The policy at the time of the lock counts, not the limits that were tightened since.
        update_limits(&less, r#"{"memory":"2G","timeout":"1h"}"#).unwrap();
        assert!(update_limits(&less, r#"{"timeout":"61m"}"#).is_err());
    }

    #[test]
    fn what_is_not_a_limit_that_can_change_is_refused_by_name() {
        let now = EffectivePolicy::built_in(HomeSource::Session);
        let refusal = |text: &str| {
            let error = update_limits(&now, text).unwrap_err();
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
        let mut now = EffectivePolicy::built_in(HomeSource::Session);
        let operator = PolicyLayer::Operator(std::path::Path::new("/etc/saggar/config.toml").into());
        now.merge(
            toml::from_str("network.allow = ['a.x', 'b.x']\nnetwork.deny = ['c.x']").unwrap(),
            &operator,
        );
        let changed = update_network(&now, r#"{"allow":["d.x"]}"#).unwrap();
        let texts = |rules: &[HostRule]| rules.iter().map(ToString::to_string).collect::<Vec<_>>();
        let rules = changed.hosts.rules();
        assert_eq!((texts(&rules.allow), texts(&rules.deny)), (vec!["d.x".into()], vec!["c.x".into()]));
        let emptied = update_network(&changed, r#"{"allow":[],"deny":[]}"#).unwrap();
        assert_eq!(emptied.hosts, super::super::effective::HostPolicy::default());
        let refusal = |text: &str| update_network(&now, text).unwrap_err().to_string();
        assert!(refusal("{}").contains("no list of hosts"));
        assert!(refusal(r#"{"allow":["a.x:53"]}"#).contains("network.allow: a.x:53 has port 53"));
        assert!(refusal(r#"{"allow":["http://a.x/"]}"#).contains("URL"));
        assert!(refusal(r#"{"publish":[]}"#).contains("unknown field"));
        let none = EffectivePolicy::built_in(HomeSource::Session);
        assert_eq!(update_network(&none, r#"{"deny":["a.x"]}"#).unwrap_err().code(), Code::Unsupported);
    }

    #[test]
    fn locked_hosts_are_only_fewer() {
        let mut now = EffectivePolicy::built_in(HomeSource::Session);
        let operator = PolicyLayer::Operator(std::path::Path::new("/etc/saggar/config.toml").into());
        let locked = "locked = ['network']\nnetwork.allow = ['a.x', 'b.x']\nnetwork.deny = ['c.x']";
        now.merge(toml::from_str(locked).unwrap(), &operator);
        let refusal = update_network(&now, r#"{"allow":["a.x","d.x"]}"#).unwrap_err();
        assert!(
            refusal.to_string().contains("network.allow = d.x, which no layer before it gives"),
            "{refusal}"
        );
        let fewer = update_network(&now, r#"{"allow":["a.x"],"deny":[],"ask":["b.x"]}"#).unwrap();
        let rules = fewer.hosts.rules();
        assert_eq!((rules.allow.len(), rules.deny.len(), rules.ask.len()), (1, 1, 1));
        // The policy at the time of the lock counts.
        update_network(&fewer, r#"{"allow":["b.x"]}"#).unwrap();
    }
}
