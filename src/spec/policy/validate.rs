//! What is wrong with a document that the parsers of its single values cannot see.

use super::api::Scheme;
use super::document::{Api, Document, Env, Files, NetworkTable, Protections};
use super::hosts::{DNS_PORT, MOST_PORTS, Rules};
use super::names::{Missing, Network};
use super::units::Size;
use std::path::Path;

/// A key whose value cannot stand, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Invalid {
    /// The key, as `limits.memory`.
    pub(super) key: &'static str,
    /// Why, as the end of a sentence that begins with the key.
    pub(super) why: String,
}

/// Below this a limit is a slip: `memory = 512` was meant as 512M.
const LEAST_SIZE: Size = Size::mebibytes(1);
/// The ids of one sandbox (DECISIONS 2), without 0: a program with that id gets capabilities at each execve.
const INSIDE_IDS: std::ops::RangeInclusive<u32> = 1..=65535;

/// A uuid that is remembered takes some hundred bytes.
const REMEMBERED: std::ops::RangeInclusive<u32> = 1..=1_000_000;

/// Lists are searched for doubles, and a path is a mount: without a bound, a folder of the agent could make
/// its own start take minutes.
const LONGEST_LIST: usize = 1024;

/// Checks one document by itself, whatever layer it is of.
pub(super) fn validate(document: &Document) -> Result<(), Invalid> {
    lists(document)?;
    files(&document.files)?;
    env(&document.env)?;
    network(&document.network)?;
    api(&document.api)?;
    if document.protect.missing == Some(Missing::Placeholder) {
        return invalid(
            "protect.missing",
            "\"placeholder\" is not in this version; what appears under a protected name is quarantined",
        );
    }
    super::validate_limits::limits(&document.limits)?;
    if let Some(count) = document.bridge.remembered.filter(|count| !REMEMBERED.contains(count)) {
        return invalid("bridge.remembered", format!("{count} is not in 1 to 1000000"));
    }
    at_least("bridge.spool", document.bridge.spool)?;
    protections(&document.protections)?;
    for (key, id) in [("sandbox.uid", document.sandbox.uid), ("sandbox.gid", document.sandbox.gid)] {
        if let Some(id) = id.filter(|id| !INSIDE_IDS.contains(id)) {
            return invalid(key, format!("{id} is not in 1 to 65535"));
        }
    }
    Ok(())
}

fn lists(document: &Document) -> Result<(), Invalid> {
    let Document { files, env, network, protect, protections, permissions, limits, .. } = document;
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
        if length > LONGEST_LIST {
            return invalid(key, format!("{length} entries are more than {LONGEST_LIST}"));
        }
    }
    Ok(())
}

fn files(files: &Files) -> Result<(), Invalid> {
    let mut destinations: Vec<&Path> = Vec::new();
    for (key, specs) in [("files.ro", &files.ro), ("files.rw", &files.rw)] {
        for spec in specs {
            if spec.source.is_relative() {
                return invalid(key, format!("\"{spec}\" is not absolute"));
            }
            if spec.dest() == Path::new("/") {
                return invalid(key, format!("\"{spec}\" would replace the private root"));
            }
            if destinations.contains(&spec.dest()) {
                return invalid(key, format!("two entries stand at {}", spec.dest().display()));
            }
            destinations.push(spec.dest());
        }
    }
    at_least("files.tmp_size", files.tmp_size)
}

fn env(env: &Env) -> Result<(), Invalid> {
    if let Some(name) = env.pass.iter().find(|name| env.set.contains_key(name.as_str())) {
        return invalid("env.pass", format!("{name} is in env.set too"));
    }
    match env.set.iter().find(|(_, value)| value.contains('\0')) {
        Some((name, _)) => invalid("env.set", format!("the value of {name} has a NUL")),
        None => Ok(()),
    }
}

fn network(network: &NetworkTable) -> Result<(), Invalid> {
    let NetworkTable { mode, allow, deny, ask, publish, sockets } = network;
    for (at, socket) in sockets.iter().enumerate() {
        if socket.source.is_relative() {
            return invalid("network.sockets", format!("\"{socket}\" is not absolute"));
        }
        if sockets.iter().take(at).any(|earlier| earlier.dest() == socket.dest()) {
            return invalid("network.sockets", format!("two entries stand at {}", socket.dest().display()));
        }
    }
    let named = [("network.allow", allow), ("network.ask", ask)];
    if let Some(mode @ (Network::None | Network::Host)) = mode
        && let Some((key, _)) = named.iter().find(|(_, rules)| !rules.is_empty())
    {
        let why = format!("names hosts beside network.mode {mode}; leave the mode out, or name no host");
        return invalid(key, why);
    }
    match mode {
        Some(Network::Host) if !publish.is_empty() => {
            let why = "is not needed beside network.mode host: the ports of its programs are the host's";
            return invalid("network.publish", why);
        }
        Some(Network::Host) if !deny.is_empty() => {
            let why = "cannot hold beside network.mode host; leave the mode out, and name in network.allow what is needed";
            return invalid("network.deny", why);
        }
        _ => {}
    }
    for (key, rules) in named {
        if let Some(rule) = rules.iter().find(|rule| rule.ports.allow(DNS_PORT)) {
            let why = format!(
                "{rule} has port {DNS_PORT}, where saggar itself answers for the names that are allowed"
            );
            return invalid(key, why);
        }
        let ports = Rules { allow: rules.clone(), ..Rules::default() }.ports().len();
        if !rules.is_empty() && ports > MOST_PORTS {
            return invalid(key, format!("names {ports} ports, and {MOST_PORTS} are the most"));
        }
    }
    Ok(())
}

fn api(api: &Api) -> Result<(), Invalid> {
    let Api { socket, upstream, key_file: _, header: _, ca_file } = api;
    if socket.is_some() && upstream.is_some() {
        return invalid("api.upstream", "stands beside api.socket; the API is reached by one of them");
    }
    let in_the_clear = upstream.as_ref().is_some_and(|upstream| upstream.scheme == Scheme::Http);
    match ca_file.is_some() && in_the_clear {
        true => invalid("api.ca_file", "is for https, and api.upstream is http"),
        false => Ok(()),
    }
}

fn protections(protections: &Protections) -> Result<(), Invalid> {
    match protections.require.iter().find(|name| protections.prefer.contains(name)) {
        Some(name) => invalid("protections.prefer", format!("{name} is in protections.require too")),
        None => Ok(()),
    }
}

pub(super) fn at_least(key: &'static str, size: Option<Size>) -> Result<(), Invalid> {
    match size {
        Some(size) if size < LEAST_SIZE => {
            invalid(key, format!("{size} is less than 1M; write a unit, as in 512M"))
        }
        _ => Ok(()),
    }
}

pub(super) fn invalid(key: &'static str, why: impl Into<String>) -> Result<(), Invalid> {
    Err(Invalid { key, why: why.into() })
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
            let document: Document = toml::from_str(text).unwrap();
            let Invalid { key, why } = validate(&document).unwrap_err();
            format!("{key}: {why}")
        };
        insta::assert_snapshot!(cases.iter().map(complaint).collect::<Vec<_>>().join("\n"), @r#"
        network.allow: names hosts beside network.mode none; leave the mode out, or name no host
        network.allow: names hosts beside network.mode host; leave the mode out, or name no host
        network.deny: cannot hold beside network.mode host; leave the mode out, and name in network.allow what is needed
        network.allow: example.org:1-100 has port 53, where saggar itself answers for the names that are allowed
        network.allow: names 130 ports, and 128 are the most
        api.upstream: stands beside api.socket; the API is reached by one of them
        api.ca_file: is for https, and api.upstream is http
        protect.missing: "placeholder" is not in this version; what appears under a protected name is quarantined
        files.ro: "opt" is not absolute
        files.rw: "/srv:/" would replace the private root
        files.rw: two entries stand at /x
        files.ro: two entries stand at /a
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
