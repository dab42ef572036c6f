//! Random documents, for tests of this crate and of those that lower a policy.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "for tests")]

use crate::provenance::AdmittedDocument;
use crate::*;
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use std::fmt::Debug;
use std::path::Path;
use std::str::FromStr;

/// Commands; a folder may name some of them.
const PROGRAMS: &[&str] = &[
    "claude",
    "demo -x",
    "./tool",
    "/usr/bin/env x",
    "/work/tool",
    "/a/tool",
    "/srv/x/tool",
    "../x",
    "/work/../x",
];

/// The folders whose content is visible in the sandbox.
pub fn trees() -> [&'static Path; 1] {
    [Path::new("/work")]
}

/// One of these texts, parsed. The texts are few, so that two documents often name the same values.
fn one_of<T: FromStr + Debug>(texts: &'static [&'static str]) -> impl Strategy<Value = T>
where
    T::Err: Debug,
{
    select(texts).prop_map(|text| text.parse().unwrap())
}

fn size() -> impl Strategy<Value = ByteSize> {
    one_of(&["1M", "100M", "1G", "2G", "4G", "1T"])
}

fn word<T: Copy + Debug>(all: &'static [T]) -> impl Strategy<Value = T> {
    select(all)
}

fn files() -> impl Strategy<Value = document::FilesTable> {
    let ro = vec(one_of(&["/a", "/b:/x", "/c"]), 0..2);
    let rw = vec(one_of(&["/a", "/d:/x", "/e"]), 0..2);
    let home = of(one_of(&["tmp", "session", "/srv/home", "/srv/other"]));
    let hide = vec(one_of(&["secret", "a/b"]), 0..2);
    (ro, rw, home, of(size()), hide).prop_map(|(ro, rw, home, tmp_size, hide)| document::FilesTable {
        ro,
        rw,
        home,
        tmp_size,
        hide,
    })
}

fn env() -> impl Strategy<Value = document::EnvTable> {
    let names = &["LANG", "FOO", "BAR", "LD_PRELOAD", "PATH", "AWS_KEY"];
    let set = btree_map(one_of(names), select(&["1", "2"][..]).prop_map(str::to_owned), 0..3);
    (vec(one_of(names), 0..3), set, vec(one_of(names), 0..2))
        .prop_map(|(pass, set, deny)| document::EnvTable { pass, set, deny })
}

fn limits() -> impl Strategy<Value = document::LimitsTable> {
    let cpus = of(one_of(&["0.5", "1", "2"]));
    let counts = &[64u32, 512, 1000, 65536, 100_000][..];
    let time = || of(one_of(&["1s", "1h", "2h"]));
    let times = (time(), time(), time(), time(), time());
    let files = (of(select(counts)), of(select(counts)), of(word(TimeoutAction::ALL)));
    let old = (of(size()), of(size()), of(size()), cpus, of(select(counts)), files, times);
    (old, more_limits()).prop_map(
        |((memory, disk, fsize, cpus, pids, (nofile, inodes, at_timeout), times), more)| {
            let (timeout, cpu_time, idle, agent_idle, script) = times;
            let times =
                document::LimitsTable { timeout, at_timeout, cpu_time, idle, agent_idle, script, ..more };
            document::LimitsTable { memory, disk, inodes, fsize, cpus, pids, nofile, ..times }
        },
    )
}

/// Limits without a built-in value.
fn more_limits() -> impl Strategy<Value = document::LimitsTable> {
    let set = || of(one_of(&["0", "0-1", "1,3", "0-3"]));
    let weight = || of(select(&[1u32, 100, 200][..]));
    let hugetlb = btree_map(one_of(&["2MB", "1GB"]), one_of(&["0", "1G", "2G"]), 0..2);
    let counts = &[1u32, 100][..];
    let rates = (of(size()), of(size()), of(select(counts)), of(select(counts))).prop_map(
        |(read_bps, write_bps, read_iops, write_iops)| DiskRates {
            read_bps,
            write_bps,
            read_iops,
            write_iops,
        },
    );
    let io = btree_map(one_of(&["/dev/sda", "8:0"]), rates, 0..2);
    let cpu = (of(one_of(&["1ms", "50ms"])), weight(), of(any::<bool>()), set(), set());
    (of(size()), of(size()), hugetlb, cpu, io, weight()).prop_map(
        |(memory_high, swap, hugetlb, cpu, io, io_weight)| {
            let (cpu_burst, cpu_weight, cpu_idle, cpuset_cpus, cpuset_mems) = cpu;
            document::LimitsTable {
                memory_high,
                swap,
                hugetlb,
                cpu_burst,
                cpu_weight,
                cpu_idle,
                cpuset_cpus,
                cpuset_mems,
                io,
                io_weight,
                ..document::LimitsTable::default()
            }
        },
    )
}

fn permissions() -> impl Strategy<Value = document::PermissionsTable> {
    let rules = || vec(one_of(&["Read", "Bash", "Bash(ls *)", "*", "mcp__x(a=b)"]), 0..3);
    let modes = of(vec(word(PermissionMode::ALL), 0..3));
    (rules(), rules(), rules(), of(one_of(&["1s", "10m", "1h"])), modes).prop_map(
        |(allow, deny, ask, timeout, modes)| document::PermissionsTable { allow, deny, ask, timeout, modes },
    )
}

fn network() -> impl Strategy<Value = document::NetworkTable> {
    let rules = || vec(one_of(&["a.example", "*.example:443", "*", "10.0.0.0/8:22"]), 0..3);
    let publish = vec(one_of(&["8080:1", "[::]:0:2"]), 0..2);
    let sockets = vec(one_of(&["/run/a", "/run/b:/run/c"]), 0..2);
    (of(word(NetworkMode::ALL)), rules(), rules(), rules(), publish, sockets)
        .prop_map(|(mode, allow, deny, ask, publish, mut sockets)| {
            sockets.dedup();
            document::NetworkTable { mode, allow, deny, ask, publish, sockets }
        })
        .prop_map(|network| match network.mode {
            Some(mode @ NetworkMode::None) => {
                document::NetworkTable { mode: Some(mode), allow: Vec::new(), ask: Vec::new(), ..network }
            }
            Some(NetworkMode::Host) => document::NetworkTable { mode: network.mode, ..Default::default() },
            Some(NetworkMode::Policy) | None => network,
        })
}

fn mailbox() -> impl Strategy<Value = document::MailboxTable> {
    let paths = || of(one_of(&["/srv/runs", "~/runs"]));
    (of(one_of(&["1", "2"])), of(one_of(&["claude", "codex"])), paths(), paths(), of(any::<bool>())).prop_map(
        |(run, name, root, repo, register)| document::MailboxTable { run, name, root, repo, register },
    )
}

/// Boxed, like its parts: in an unoptimised build, each of these large values would be on the stack several times.
pub fn any_document() -> BoxedStrategy<PolicyDocument> {
    let top = (of(word(SandboxProfile::ALL)), of(one_of(PROGRAMS)), of(word(AdapterKind::ALL)), network());
    let protect =
        (of(any::<bool>()), vec(one_of(&["Makefile", "ci"]), 0..2), of(Just(MissingPathAction::None)))
            .prop_map(|(git_config, paths, missing)| document::ProtectTable { git_config, paths, missing });
    let protections = (vec(word(Protection::ALL), 0..3), vec(word(Protection::ALL), 0..3), of(any::<bool>()))
        .prop_map(|(require, prefer, quiet)| document::ProtectionsTable { require, prefer, quiet });
    let upstream = of(one_of(&["https://a.example", "https://b.example"]));
    let key = (of(one_of(&["/key", "~/key"])), of(word(KeyHeader::ALL)), of(one_of(&["/ca.pem"])));
    let api = (of(one_of(&["/run/a", "/run/b"])), upstream, key).prop_map(
        |(socket, upstream, (key_file, header, ca_file))| document::ApiTable {
            socket,
            upstream,
            key_file,
            header,
            ca_file,
        },
    );
    let bridge =
        (of(one_of(&["/t/{id}", "/u"])), of(select(&[true, false][..])), of(one_of(&["/run/a", "/run/b"])));
    let sockets = (api, bridge);
    let ids = (
        of(one_of(&["100000-200000", "1879048192-2147418111"])),
        of(select(&[1u32, 1000][..])),
        of(select(&[1u32, 1000][..])),
        of(one_of(&["saggar.slice", "agents.slice"])),
        of(word(SandboxCgroupDriver::ALL)),
        of(select(&[true, false][..])),
    )
        .prop_map(|(id_range, uid, gid, cgroup_parent, cgroup_driver, keep_session)| {
            document::SandboxTable { id_range, uid, gid, cgroup_parent, cgroup_driver, keep_session }
        });
    let spool = select(&[1u32, 64, 65][..]).prop_map(ByteSize::from_mebibytes);
    let bridge = (permissions(), of(select(&[1u32, 2000, 9999][..])), of(spool));
    let sessions =
        vec(one_of(&["dev", "ci-*", "ci-7", "*"]), 0..2).prop_map(|sessions| document::McpTable { sessions });
    let tables =
        (files().boxed(), env().boxed(), limits().boxed(), (mailbox().boxed(), sessions.boxed()).boxed());
    (top.boxed(), tables, protect.boxed(), protections.boxed(), sockets.boxed(), ids.boxed(), bridge.boxed())
        .prop_map(
            |(top, (files, env, limits, (mailbox, mcp)), protect, protections, sockets, sandbox, talk)| {
                let (permissions, remembered, spool) = talk;
                let (profile, agent_cmd, adapter, network) = top;
                let (api, (socket, allow_reachable, directory)) = sockets;
                PolicyDocument {
                    profile,
                    agent_cmd,
                    adapter,
                    locked: Vec::new(),
                    files,
                    env,
                    network,
                    limits,
                    protect,
                    protections,
                    api,
                    bridge: document::BridgeTable {
                        socket,
                        control: None,
                        allow_reachable,
                        directory,
                        remembered,
                        spool,
                    },
                    mailbox,
                    mcp,
                    permissions,
                    sandbox,
                }
            },
        )
        .prop_filter("a document must be right by itself", |document| validate::validate(document).is_ok())
        .boxed()
}

/// The effective policy after these operator documents.
pub fn operated(documents: &[PolicyDocument]) -> EffectivePolicy {
    let mut held = EffectivePolicy::built_in(HomeSource::Session);
    for document in documents {
        held.merge(document.clone(), &PolicyLayer::Operator(Path::new("/etc/x").into()));
    }
    held
}

/// Merges a document without admission: what an operator's layer does.
pub fn merge(policy: &mut EffectivePolicy, document: PolicyDocument, layer: &PolicyLayer) {
    policy.merge(document, layer);
}

/// The policy with what a folder asks for; `None` if it may not.
pub fn admitted(
    before: &EffectivePolicy,
    asked: PolicyDocument,
    layer: &PolicyLayer,
) -> Option<EffectivePolicy> {
    let mut after = before.clone();
    after.merge_admitted(AdmittedDocument::admit(before, asked, layer, &trees()).ok()?);
    Some(after)
}

/// Functions that copy one key of a document to another, for every key.
const KEYS: [fn(&mut PolicyDocument, &PolicyDocument); 75] = [
    |to, from| to.profile = from.profile,
    |to, from| to.agent_cmd = from.agent_cmd.clone(),
    |to, from| to.adapter = from.adapter,
    |to, from| to.locked = from.locked.clone(),
    |to, from| to.files.ro = from.files.ro.clone(),
    |to, from| to.files.rw = from.files.rw.clone(),
    |to, from| to.files.home = from.files.home.clone(),
    |to, from| to.files.tmp_size = from.files.tmp_size,
    |to, from| to.files.hide = from.files.hide.clone(),
    |to, from| to.env.pass = from.env.pass.clone(),
    |to, from| to.env.set = from.env.set.clone(),
    |to, from| to.env.deny = from.env.deny.clone(),
    |to, from| to.network.mode = from.network.mode,
    |to, from| to.network.allow = from.network.allow.clone(),
    |to, from| to.network.deny = from.network.deny.clone(),
    |to, from| to.network.ask = from.network.ask.clone(),
    |to, from| to.network.publish = from.network.publish.clone(),
    |to, from| to.network.sockets = from.network.sockets.clone(),
    |to, from| to.limits.memory = from.limits.memory,
    |to, from| to.limits.disk = from.limits.disk,
    |to, from| to.limits.inodes = from.limits.inodes,
    |to, from| to.limits.fsize = from.limits.fsize,
    |to, from| to.limits.cpus = from.limits.cpus,
    |to, from| to.limits.pids = from.limits.pids,
    |to, from| to.limits.nofile = from.limits.nofile,
    |to, from| to.limits.timeout = from.limits.timeout,
    |to, from| to.limits.at_timeout = from.limits.at_timeout,
    |to, from| to.limits.cpu_time = from.limits.cpu_time,
    |to, from| to.limits.idle = from.limits.idle,
    |to, from| to.limits.agent_idle = from.limits.agent_idle,
    |to, from| to.limits.script = from.limits.script,
    |to, from| to.limits.memory_high = from.limits.memory_high,
    |to, from| to.limits.swap = from.limits.swap,
    |to, from| to.limits.hugetlb = from.limits.hugetlb.clone(),
    |to, from| to.limits.cpu_burst = from.limits.cpu_burst,
    |to, from| to.limits.cpu_weight = from.limits.cpu_weight,
    |to, from| to.limits.cpu_idle = from.limits.cpu_idle,
    |to, from| to.limits.cpuset_cpus = from.limits.cpuset_cpus.clone(),
    |to, from| to.limits.cpuset_mems = from.limits.cpuset_mems.clone(),
    |to, from| to.limits.io = from.limits.io.clone(),
    |to, from| to.limits.io_weight = from.limits.io_weight,
    |to, from| to.protect.git_config = from.protect.git_config,
    |to, from| to.protect.paths = from.protect.paths.clone(),
    |to, from| to.protect.missing = from.protect.missing,
    |to, from| to.protections.require = from.protections.require.clone(),
    |to, from| to.protections.prefer = from.protections.prefer.clone(),
    |to, from| to.protections.quiet = from.protections.quiet,
    |to, from| to.api.socket = from.api.socket.clone(),
    |to, from| to.api.upstream = from.api.upstream.clone(),
    |to, from| to.api.key_file = from.api.key_file.clone(),
    |to, from| to.api.header = from.api.header,
    |to, from| to.api.ca_file = from.api.ca_file.clone(),
    |to, from| to.bridge.socket = from.bridge.socket.clone(),
    |to, from| to.bridge.control = from.bridge.control.clone(),
    |to, from| to.bridge.allow_reachable = from.bridge.allow_reachable,
    |to, from| to.bridge.directory = from.bridge.directory.clone(),
    |to, from| to.bridge.remembered = from.bridge.remembered,
    |to, from| to.bridge.spool = from.bridge.spool,
    |to, from| to.mailbox.run = from.mailbox.run,
    |to, from| to.mailbox.name = from.mailbox.name.clone(),
    |to, from| to.mailbox.root = from.mailbox.root.clone(),
    |to, from| to.mailbox.repo = from.mailbox.repo.clone(),
    |to, from| to.mailbox.register = from.mailbox.register,
    |to, from| to.mcp.sessions = from.mcp.sessions.clone(),
    |to, from| to.permissions.allow = from.permissions.allow.clone(),
    |to, from| to.permissions.deny = from.permissions.deny.clone(),
    |to, from| to.permissions.ask = from.permissions.ask.clone(),
    |to, from| to.permissions.timeout = from.permissions.timeout,
    |to, from| to.permissions.modes = from.permissions.modes.clone(),
    |to, from| to.sandbox.id_range = from.sandbox.id_range,
    |to, from| to.sandbox.uid = from.sandbox.uid,
    |to, from| to.sandbox.gid = from.sandbox.gid,
    |to, from| to.sandbox.cgroup_parent = from.sandbox.cgroup_parent.clone(),
    |to, from| to.sandbox.cgroup_driver = from.sandbox.cgroup_driver,
    |to, from| to.sandbox.keep_session = from.sandbox.keep_session,
];

/// A document with a few keys: a document with many would nearly always be refused for one of them, and the
/// others would never be tested.
pub fn few_keys() -> BoxedStrategy<PolicyDocument> {
    let copy = |(from, keys): (PolicyDocument, Vec<usize>)| {
        keys.into_iter().fold(PolicyDocument::default(), |mut to, key| {
            KEYS[key](&mut to, &from);
            to
        })
    };
    (any_document(), vec(0..KEYS.len(), 1..5))
        .prop_map(copy)
        .prop_filter("a document must be right by itself", |document| validate::validate(document).is_ok())
        .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_among_the_random_ones() {
        assert_eq!(KEYS.len(), schema::keys().len());
    }
}
