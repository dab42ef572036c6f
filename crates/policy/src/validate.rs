//! Checks a document for errors that the parsers of single values cannot detect.

use super::api::UpstreamScheme;
use super::document::{ApiTable, EnvTable, FilesTable, NetworkTable, PolicyDocument, ProtectionsTable};
use super::hosts::{DNS_PORT, HostRules, MAX_PORTS};
use super::names::{MissingPathAction, NetworkMode};
use super::units::ByteSize;
use std::fmt;
use std::path::Path;

/// A key with an invalid value, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InvalidKey {
    /// The key, as `limits.memory`.
    pub(super) key: &'static str,
    /// The reason, as the end of a sentence that begins with the key.
    pub(super) reason: String,
}

impl fmt::Display for InvalidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.reason)
    }
}

/// A lower limit is a mistake: `memory = 512` was meant as 512M.
const MIN_SIZE: ByteSize = ByteSize::from_mebibytes(1);
/// The ids of one sandbox (DECISIONS 2), without 0: a program with uid 0 gains capabilities at each execve.
const SANDBOX_IDS: std::ops::RangeInclusive<u32> = 1..=65535;

/// Each remembered uuid takes a few hundred bytes of memory.
const REMEMBERED_RANGE: std::ops::RangeInclusive<u32> = 1..=1_000_000;

/// The most entries of a list. Lists are searched for duplicates, and each path is a mount: without a
/// bound, a folder could make the start of its sandbox take minutes.
const MAX_LIST_ENTRIES: usize = 1024;

/// The most patterns of a list: each is compared with each path of the workspace.
const MAX_PATTERNS: usize = 64;

/// Validates one document on its own, independently of its layer.
pub(super) fn validate(document: &PolicyDocument) -> Result<(), InvalidKey> {
    check_list_lengths(document)?;
    check_files(&document.files)?;
    check_env(&document.env)?;
    check_network(&document.network)?;
    check_api(&document.api)?;
    if document.protect.missing == Some(MissingPathAction::Placeholder) {
        return invalid(
            "protect.missing",
            "\"placeholder\" is not in this version; what appears under a protected name is quarantined",
        );
    }
    super::validate_limits::check_limits(&document.limits)?;
    if let Some(count) = document.bridge.remembered.filter(|count| !REMEMBERED_RANGE.contains(count)) {
        return invalid("bridge.remembered", format!("{count} is not in 1 to 1000000"));
    }
    check_min_size("bridge.spool", document.bridge.spool)?;
    check_protections(&document.protections)?;
    for (key, id) in [("sandbox.uid", document.sandbox.uid), ("sandbox.gid", document.sandbox.gid)] {
        if let Some(id) = id.filter(|id| !SANDBOX_IDS.contains(id)) {
            return invalid(key, format!("{id} is not in 1 to 65535"));
        }
    }
    Ok(())
}

fn check_list_lengths(document: &PolicyDocument) -> Result<(), InvalidKey> {
    let PolicyDocument { files, env, network, protect, protections, permissions, limits, .. } = document;
    for (key, length) in [
        ("files.ro", files.ro.len()),
        ("files.rw", files.rw.len()),
        ("files.hide", files.hide.len()),
        ("env.pass", env.pass.len()),
        ("env.set", env.set.len()),
        ("env.deny", env.deny.len()),
        ("network.allow", network.allow.len()),
        ("network.deny", network.deny.len()),
        ("network.ask", network.ask.len()),
        ("network.publish", network.publish.len()),
        ("network.sockets", network.sockets.len()),
        ("protect.paths", protect.paths.len()),
        ("protections.require", protections.require.len()),
        ("protections.prefer", protections.prefer.len()),
        ("limits.io", limits.io.len()),
        ("limits.hugetlb", limits.hugetlb.len()),
        ("permissions.allow", permissions.allow.len()),
        ("permissions.deny", permissions.deny.len()),
        ("permissions.ask", permissions.ask.len()),
        ("permissions.modes", permissions.modes.as_ref().map_or(0, Vec::len)),
    ] {
        if length > MAX_LIST_ENTRIES {
            return invalid(key, format!("{length} entries are more than {MAX_LIST_ENTRIES}"));
        }
    }
    for (key, entries) in [("files.hide", &files.hide), ("protect.paths", &protect.paths)] {
        let patterns = entries.iter().filter(|entry| entry.has_wildcards()).count();
        if patterns > MAX_PATTERNS {
            return invalid(key, format!("{patterns} patterns are more than {MAX_PATTERNS}"));
        }
    }
    Ok(())
}

fn check_files(files: &FilesTable) -> Result<(), InvalidKey> {
    let mut destinations: Vec<&Path> = Vec::new();
    for (key, specs) in [("files.ro", &files.ro), ("files.rw", &files.rw)] {
        for spec in specs {
            if spec.source.is_relative() {
                return invalid(key, format!("\"{spec}\" is not absolute"));
            }
            if spec.destination() == Path::new("/") {
                return invalid(key, format!("\"{spec}\" would replace the private root"));
            }
            if destinations.contains(&spec.destination()) {
                return invalid(key, format!("two entries are mounted at {}", spec.destination().display()));
            }
            destinations.push(spec.destination());
        }
    }
    check_min_size("files.tmp_size", files.tmp_size)
}

fn check_env(env: &EnvTable) -> Result<(), InvalidKey> {
    if let Some(name) = env.pass.iter().find(|name| env.set.contains_key(name.as_str())) {
        return invalid("env.pass", format!("{name} is in env.set too"));
    }
    match env.set.iter().find(|(_, value)| value.contains('\0')) {
        Some((name, _)) => invalid("env.set", format!("the value of {name} has a NUL")),
        None => Ok(()),
    }
}

fn check_network(network: &NetworkTable) -> Result<(), InvalidKey> {
    let NetworkTable { mode, allow, deny, ask, publish, sockets } = network;
    for (at, socket) in sockets.iter().enumerate() {
        if socket.source.is_relative() {
            return invalid("network.sockets", format!("\"{socket}\" is not absolute"));
        }
        if sockets.iter().take(at).any(|earlier| earlier.destination() == socket.destination()) {
            return invalid(
                "network.sockets",
                format!("two entries are mounted at {}", socket.destination().display()),
            );
        }
    }
    let named = [("network.allow", allow), ("network.ask", ask)];
    if let Some(mode @ (NetworkMode::None | NetworkMode::Host)) = mode
        && let Some((key, _)) = named.iter().find(|(_, rules)| !rules.is_empty())
    {
        let why = format!(
            "names hosts, which network.mode {mode} does not support; leave the mode out, or name no \
                           host"
        );
        return invalid(key, why);
    }
    match mode {
        Some(NetworkMode::Host) if !publish.is_empty() => {
            let why = "is not needed beside network.mode host: the ports of its programs are the host's";
            return invalid("network.publish", why);
        }
        Some(NetworkMode::Host) if !deny.is_empty() => {
            let why = "cannot be enforced with network.mode host; leave the mode out, and list the hosts that are \
                       needed in network.allow";
            return invalid("network.deny", why);
        }
        _ => {}
    }
    for (key, rules) in named {
        if let Some(rule) = rules.iter().find(|rule| rule.ports.allows(DNS_PORT)) {
            let why = format!(
                "{rule} has port {DNS_PORT}, where saggar itself answers for the names that are allowed"
            );
            return invalid(key, why);
        }
        let ports = HostRules { allow: rules.clone(), ..HostRules::default() }.reachable_ports().len();
        if !rules.is_empty() && ports > MAX_PORTS {
            return invalid(key, format!("names {ports} ports, and {MAX_PORTS} are the most"));
        }
    }
    Ok(())
}

fn check_api(api: &ApiTable) -> Result<(), InvalidKey> {
    let ApiTable { socket, upstream, key_file: _, header: _, ca_file } = api;
    if socket.is_some() && upstream.is_some() {
        return invalid("api.upstream", "cannot be used together with api.socket; set only one of them");
    }
    let in_the_clear = upstream.as_ref().is_some_and(|upstream| upstream.scheme == UpstreamScheme::Http);
    match ca_file.is_some() && in_the_clear {
        true => invalid("api.ca_file", "is for https, and api.upstream is http"),
        false => Ok(()),
    }
}

fn check_protections(protections: &ProtectionsTable) -> Result<(), InvalidKey> {
    match protections.require.iter().find(|name| protections.prefer.contains(name)) {
        Some(name) => invalid("protections.prefer", format!("{name} is in protections.require too")),
        None => Ok(()),
    }
}

pub(super) fn check_min_size(key: &'static str, size: Option<ByteSize>) -> Result<(), InvalidKey> {
    match size {
        Some(size) if size < MIN_SIZE => {
            invalid(key, format!("{size} is less than 1M; write a unit, as in 512M"))
        }
        _ => Ok(()),
    }
}

pub(super) fn invalid(key: &'static str, why: impl Into<String>) -> Result<(), InvalidKey> {
    Err(InvalidKey { key, reason: why.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_between_values_is_said_of_its_key() {
        let cases = [
            "network = { mode = 'none', allow = ['example.org'] }",
            "network = { mode = 'host', allow = ['example.org'] }",
            "network = { mode = 'host', deny = ['example.org'] }",
            "network.allow = ['example.org:1-100']",
            "network.allow = ['example.org:8000-8127', '*.example.org']",
            "api = { socket = '/run/a.sock', upstream = 'https://example.org' }",
            "api = { ca_file = '/etc/ca.pem', upstream = 'http://example.org' }",
            "protect.missing = 'placeholder'",
            "files.ro = ['opt']",
            "files.rw = ['/srv:/']",
            "files = { ro = ['/a:/x'], rw = ['/b:/x'] }",
            "files.ro = ['/a', '/a']",
            "files.tmp_size = 64",
            "env = { pass = ['A'], set = { A = '1' } }",
            "env.set.A = \"a\\u0000b\"",
            "protections = { require = ['disk'], prefer = ['disk'] }",
            "sandbox.uid = 0",
            "sandbox.gid = 65536",
            "bridge.remembered = 0",
            "bridge.spool = 64",
        ];
        let complaint = |text: &&str| {
            let document: PolicyDocument = toml::from_str(text).unwrap();
            let InvalidKey { key, reason: why } = validate(&document).unwrap_err();
            format!("{key}: {why}")
        };
        insta::assert_snapshot!(cases.iter().map(complaint).collect::<Vec<_>>().join("\n"), @r#"
        network.allow: names hosts, which network.mode none does not support; leave the mode out, or name no host
        network.allow: names hosts, which network.mode host does not support; leave the mode out, or name no host
        network.deny: cannot be enforced with network.mode host; leave the mode out, and list the hosts that are needed in network.allow
        network.allow: example.org:1-100 has port 53, where saggar itself answers for the names that are allowed
        network.allow: names 130 ports, and 128 are the most
        api.upstream: cannot be used together with api.socket; set only one of them
        api.ca_file: is for https, and api.upstream is http
        protect.missing: "placeholder" is not in this version; what appears under a protected name is quarantined
        files.ro: "opt" is not absolute
        files.rw: "/srv:/" would replace the private root
        files.rw: two entries are mounted at /x
        files.ro: two entries are mounted at /a
        files.tmp_size: 64 is less than 1M; write a unit, as in 512M
        env.pass: A is in env.set too
        env.set: the value of A has a NUL
        protections.prefer: disk is in protections.require too
        sandbox.uid: 0 is not in 1 to 65535
        sandbox.gid: 65536 is not in 1 to 65535
        bridge.remembered: 0 is not in 1 to 1000000
        bridge.spool: 64 is less than 1M; write a unit, as in 512M
        "#);
    }
}
