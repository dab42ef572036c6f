//! Random documents and random bytes.

use super::*;
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use std::fmt::Debug;
use std::str::FromStr;

/// Commands, of which a folder may name some.
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

/// The folders whose content stands inside.
pub(super) fn trees() -> [&'static Path; 1] {
    [Path::new("/work")]
}

/// Whether the program that a folder chose stands inside whatever it says.
fn program_stands(before: &Effective, after: &Effective) -> bool {
    let Some(chosen) = after.agent_cmd.as_ref().filter(|chosen| chosen.layer.is_folder()) else {
        return true;
    };
    let program = chosen.value.words()[0].as_str();
    let shown = before.files.binds.iter().any(|bind| Path::new(program).starts_with(&bind.value.dest));
    let inside =
        !program.starts_with('/') || program.starts_with("/usr/") || program.starts_with("/work/") || shown;
    inside && !program.contains("..")
}

/// One of these texts, parsed: few of them, so that two documents often speak of the same thing.
fn one_of<T: FromStr + Debug>(texts: &'static [&'static str]) -> impl Strategy<Value = T>
where
    T::Err: Debug,
{
    select(texts).prop_map(|text| text.parse().unwrap())
}

fn size() -> impl Strategy<Value = Size> {
    one_of(&["1M", "100M", "1G", "2G", "4G", "1T"])
}

fn word<T: Copy + Debug>(all: &'static [T]) -> impl Strategy<Value = T> {
    select(all)
}

fn files() -> impl Strategy<Value = document::Files> {
    let ro = vec(one_of(&["/a", "/b:/x", "/c"]), 0..2);
    let rw = vec(one_of(&["/a", "/d:/x", "/e"]), 0..2);
    let home = of(one_of(&["tmp", "session", "/srv/home", "/srv/other"]));
    let hide = vec(one_of(&["secret", "a/b"]), 0..2);
    (ro, rw, home, of(size()), hide).prop_map(|(ro, rw, home, tmp_size, hide)| document::Files {
        ro,
        rw,
        home,
        tmp_size,
        hide,
    })
}

fn env() -> impl Strategy<Value = document::Env> {
    let names = &["LANG", "FOO", "BAR", "LD_PRELOAD", "PATH", "AWS_KEY"];
    let set = btree_map(one_of(names), select(&["1", "2"][..]).prop_map(str::to_owned), 0..3);
    (vec(one_of(names), 0..3), set, vec(one_of(names), 0..2)).prop_map(|(pass, set, deny)| document::Env {
        pass,
        set,
        deny,
    })
}

fn limits() -> impl Strategy<Value = document::Limits> {
    let cpus = of(one_of(&["0.5", "1", "2"]));
    let counts = &[64u32, 512, 1000, 65536, 100_000][..];
    let time = || of(one_of(&["1s", "1h", "2h"]));
    let times = (time(), time(), time(), time());
    let files = (of(select(counts)), of(select(counts)), of(word(AtTimeout::ALL)));
    let old = (of(size()), of(size()), of(size()), cpus, of(select(counts)), files, times);
    (old, more_limits()).prop_map(
        |((memory, disk, fsize, cpus, pids, (nofile, inodes, at_timeout), times), more)| {
            let (timeout, cpu_time, idle, script) = times;
            let times = document::Limits { timeout, at_timeout, cpu_time, idle, script, ..more };
            document::Limits { memory, disk, inodes, fsize, cpus, pids, nofile, ..times }
        },
    )
}

/// Those that have no built-in value.
fn more_limits() -> impl Strategy<Value = document::Limits> {
    let set = || of(one_of(&["0", "0-1", "1,3", "0-3"]));
    let weight = || of(select(&[1u32, 100, 200][..]));
    let hugetlb = btree_map(one_of(&["2MB", "1GB"]), one_of(&["0", "1G", "2G"]), 0..2);
    let counts = &[1u32, 100][..];
    let rates = (of(size()), of(size()), of(select(counts)), of(select(counts))).prop_map(
        |(read_bps, write_bps, read_iops, write_iops)| Rates { read_bps, write_bps, read_iops, write_iops },
    );
    let io = btree_map(one_of(&["/dev/sda", "8:0"]), rates, 0..2);
    let cpu = (of(one_of(&["1ms", "50ms"])), weight(), of(any::<bool>()), set(), set());
    (of(size()), of(size()), hugetlb, cpu, io, weight()).prop_map(
        |(memory_high, swap, hugetlb, cpu, io, io_weight)| {
            let (cpu_burst, cpu_weight, cpu_idle, cpuset_cpus, cpuset_mems) = cpu;
            document::Limits {
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
                ..document::Limits::default()
            }
        },
    )
}

fn permissions() -> impl Strategy<Value = document::Permissions> {
    let rules = || vec(one_of(&["Read", "Bash", "Bash(ls *)", "*", "mcp__x(a=b)"]), 0..3);
    let modes = of(vec(word(PermissionMode::ALL), 0..3));
    (rules(), rules(), rules(), of(one_of(&["1s", "10m", "1h"])), modes).prop_map(
        |(allow, deny, ask, timeout, modes)| document::Permissions { allow, deny, ask, timeout, modes },
    )
}

fn network() -> impl Strategy<Value = document::NetworkTable> {
    let rules = || vec(one_of(&["a.example", "*.example:443", "*", "10.0.0.0/8:22"]), 0..3);
    let publish = vec(one_of(&["8080:1", "[::]:0:2"]), 0..2);
    let sockets = vec(one_of(&["/run/a", "/run/b:/run/c"]), 0..2);
    (of(word(Network::ALL)), rules(), rules(), rules(), publish, sockets)
        .prop_map(|(mode, allow, deny, ask, publish, mut sockets)| {
            sockets.dedup();
            document::NetworkTable { mode, allow, deny, ask, publish, sockets }
        })
        .prop_map(|network| match network.mode {
            Some(mode @ Network::None) => {
                document::NetworkTable { mode: Some(mode), allow: Vec::new(), ask: Vec::new(), ..network }
            }
            Some(Network::Host) => document::NetworkTable { mode: network.mode, ..Default::default() },
            Some(Network::Policy) | None => network,
        })
}

pub(super) fn any_document() -> impl Strategy<Value = Document> {
    let top = (of(word(Profile::ALL)), of(one_of(PROGRAMS)), of(word(Adapter::ALL)), network());
    let protect = (of(any::<bool>()), vec(one_of(&["Makefile", "ci"]), 0..2), of(Just(Missing::None)))
        .prop_map(|(git_config, paths, missing)| document::Protect { git_config, paths, missing });
    let protections = (vec(word(Protection::ALL), 0..3), vec(word(Protection::ALL), 0..3))
        .prop_map(|(require, prefer)| document::Protections { require, prefer });
    let upstream = of(one_of(&["https://a.example", "https://b.example"]));
    let key = (of(one_of(&["/key", "~/key"])), of(word(KeyHeader::ALL)), of(one_of(&["/ca.pem"])));
    let api = (of(one_of(&["/run/a", "/run/b"])), upstream, key).prop_map(
        |(socket, upstream, (key_file, header, ca_file))| document::Api {
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
    )
        .prop_map(|(id_range, uid, gid)| document::Sandbox { id_range, uid, gid });
    let spool = select(&[1u32, 64, 65][..]).prop_map(Size::mebibytes);
    let bridge = (permissions(), of(select(&[1u32, 2000, 9999][..])), of(spool));
    (top, files(), env(), limits(), protect, protections, sockets, ids, bridge)
        .prop_map(|(top, files, env, limits, protect, protections, sockets, sandbox, talk)| {
            let (permissions, remembered, spool) = talk;
            let (profile, agent_cmd, adapter, network) = top;
            let (api, (socket, allow_reachable, directory)) = sockets;
            Document {
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
                bridge: document::Bridge {
                    socket,
                    control: None,
                    allow_reachable,
                    directory,
                    remembered,
                    spool,
                },
                permissions,
                sandbox,
            }
        })
        .prop_filter("a document must be right by itself", |document| validate::validate(document).is_ok())
}

/// Whether requests go to the same place with the same key, whoever says so.
fn same_api(after: &effective::Api, before: &effective::Api) -> bool {
    fn value<T: Clone>(setting: &Option<Setting<T>>) -> Option<T> {
        setting.as_ref().map(|setting| setting.value.clone())
    }
    value(&after.upstream) == value(&before.upstream)
        && value(&after.key_file) == value(&before.key_file)
        && value(&after.header) == value(&before.header)
        && value(&after.ca_file) == value(&before.ca_file)
}

/// How `after` is wider than `before`, if it is. Written apart from `tighten`, from the result's side, so
/// that the two check each other.
pub(super) fn wider(before: &Effective, after: &Effective) -> Option<String> {
    let Effective {
        profile,
        agent_cmd: _, // See `program_stands`.
        adapter: _,
        locked,
        files,
        env,
        network,
        hosts,
        publish,
        sockets,
        limits,
        protect,
        protections,
        api_socket,
        api,
        bridge_socket,
        control_socket,
        allow_reachable,
        bridge_directory,
        remembered,
        spool,
        permissions,
        ids,
        allow_home,
    } = after;
    let value = |setting: &Option<Setting<HostPath>>| setting.clone().map(|setting| setting.value);
    let template = |setting: &Option<Setting<Template>>| setting.clone().map(|setting| setting.value);
    let id = |setting: &Option<Setting<u32>>| setting.clone().map(|setting| setting.value);
    let rank = |home: &Home| match home {
        Home::Tmp => 0,
        Home::Session => 1,
        Home::Directory(_) => 2,
    };
    let same_home = files.home.value == before.files.home.value;
    let deny = |policy: &Effective, name: &EnvName| policy.env.deny.contains_key(name.as_str());
    let times = |limits: &effective::Limits| {
        [&limits.timeout, &limits.cpu_time, &limits.idle]
            .map(|time| time.as_ref().map_or(u64::MAX, |time| time.value.milliseconds()))
    };
    let (timed, timed_before) = (times(limits), times(&before.limits));

    let checks = [
        ("agent_cmd", program_stands(before, after)),
        ("profile", profile.value <= before.profile.value),
        ("network", network.value <= before.network.value),
        ("hosts", network.value != before.network.value || hosts_hold(&before.hosts, hosts)),
        ("publish", publish.iter().all(|asked| before.publish.contains(asked))),
        ("sockets", sockets.iter().all(|asked| before.sockets.contains(asked))),
        ("home", same_home || rank(&files.home.value) < rank(&before.files.home.value)),
        ("memory", limits.memory.value <= before.limits.memory.value),
        ("disk", limits.disk.value <= before.limits.disk.value),
        ("inodes", limits.inodes.value <= before.limits.inodes.value),
        ("fsize", after.fsize().value <= before.fsize().value),
        ("tmp_size", after.tmp_size().value <= before.tmp_size().value),
        ("cpus", limits.cpus.value <= before.limits.cpus.value),
        ("pids", limits.pids.value <= before.limits.pids.value),
        ("nofile", limits.nofile.value <= before.limits.nofile.value),
        ("script", limits.script.value <= before.limits.script.value),
        ("at_timeout", limits.at_timeout.value <= before.limits.at_timeout.value),
        ("times", timed.iter().zip(timed_before).all(|(after, before)| *after <= before)),
        ("git_config", protect.git_config.value >= before.protect.git_config.value),
        ("missing", protect.missing.value <= before.protect.missing.value),
        ("paths", holds_all(&before.protect.paths, &protect.paths)),
        ("hide", holds_all(&before.files.hide, &files.hide)),
        ("locked", before.locked.iter().all(|lock| locked.contains(lock))),
        ("deny", before.env.deny.keys().all(|name| deny(after, name))),
        ("api.socket", value(api_socket) == value(&before.api_socket)),
        ("api", api == &before.api || same_api(api, &before.api)),
        ("bridge", template(bridge_socket) == template(&before.bridge_socket)),
        ("control", template(control_socket) == template(&before.control_socket)),
        ("reachable", allow_reachable.value <= before.allow_reachable.value),
        ("directory", value(bridge_directory) == value(&before.bridge_directory)),
        ("range", ids.range.value == before.ids.range.value),
        ("uid", id(&ids.uid) == id(&before.ids.uid)),
        ("gid", id(&ids.gid) == id(&before.ids.gid)),
        ("allow_home", allow_home == &before.allow_home),
        ("remembered", remembered.value == before.remembered.value),
        ("spool", spool.value <= before.spool.value),
        ("rules", rules_hold(&before.permissions, permissions)),
        ("asked", permissions.timeout.value <= before.permissions.timeout.value),
        (
            "modes",
            PermissionMode::ALL.iter().all(|mode| {
                let may = |held: &Permissions| held.may_set_mode(mode.name()).is_ok();
                may(&before.permissions) || !may(permissions)
            }),
        ),
    ];
    if let Some((name, _)) = checks.iter().find(|(_, holds)| !holds) {
        return Some((*name).to_owned());
    }
    if let Some(name) = wider_limit(&before.limits, limits) {
        return Some(name.to_owned());
    }
    for bind in &files.binds {
        let held = before.files.binds.iter().any(|held| {
            (&held.value.source, &held.value.dest) == (&bind.value.source, &bind.value.dest)
                && bind.value.access <= held.value.access
        });
        if !held {
            return Some(format!("bind {bind:?}"));
        }
    }
    for (protection, strength) in protections {
        if strength.value > before.strength(*protection) {
            return Some(format!("protection {protection}"));
        }
    }
    for (name, rule) in &env.rules {
        let held = before.env.rules.get(name);
        let ordinary = rule.value != effective::EnvRule::Pass
            && environment::folder_objection(name).is_none()
            && held.is_none_or(|held| held.layer == Layer::BuiltIn);
        if held.is_none_or(|held| held.value != rule.value) && !ordinary {
            return Some(format!("variable {name}"));
        }
    }
    None
}

/// The same, of the limits that have no built-in value: each with what holds when no layer names it.
fn wider_limit(before: &effective::Limits, after: &effective::Limits) -> Option<&'static str> {
    fn above<T: Ord + Clone>(after: &Option<Setting<T>>, before: &Option<Setting<T>>, unnamed: &T) -> bool {
        let value =
            |setting: &Option<Setting<T>>| setting.as_ref().map_or(unnamed.clone(), |s| s.value.clone());
        value(after) > value(before)
    }
    fn outside(after: &Option<Setting<NumberSet>>, before: &Option<Setting<NumberSet>>) -> bool {
        match (after, before) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(after), Some(before)) => !after.value.is_within(&before.value),
        }
    }
    let (none, all) = (Size::mebibytes(0), Size::MAX);
    let idle = |limits: &effective::Limits| limits.cpu_idle.as_ref().is_some_and(|idle| idle.value);
    let unlimited = effective::HeldRates::default();
    let io = before.io.iter().any(|(disk, before)| {
        let after = after.io.get(disk).unwrap_or(&unlimited);
        above(&after.read_bps, &before.read_bps, &all)
            || above(&after.write_bps, &before.write_bps, &all)
            || above(&after.read_iops, &before.read_iops, &u32::MAX)
            || above(&after.write_iops, &before.write_iops, &u32::MAX)
    });
    let hugetlb = before
        .hugetlb
        .iter()
        .any(|(page, before)| after.hugetlb.get(page).is_none_or(|after| after.value > before.value));
    let burst = |limits: &effective::Limits| limits.cpu_burst.as_ref().map(|burst| burst.value.duration());
    [
        ("memory_high", above(&after.memory_high, &before.memory_high, &all)),
        ("swap", above(&after.swap, &before.swap, &none)),
        ("hugetlb", hugetlb),
        ("cpu_burst", burst(after) > burst(before)),
        ("cpu_weight", above(&after.cpu_weight, &before.cpu_weight, &100)),
        ("cpu_idle", idle(before) && !idle(after)),
        ("cpuset_cpus", outside(&after.cpuset_cpus, &before.cpuset_cpus)),
        ("cpuset_mems", outside(&after.cpuset_mems, &before.cpuset_mems)),
        ("io", io),
        ("io_weight", above(&after.io_weight, &before.io_weight, &100)),
    ]
    .into_iter()
    .find_map(|(name, is_wider)| is_wider.then_some(name))
}

/// Whether no allowance came and no denial went.
fn rules_hold(before: &Permissions, after: &Permissions) -> bool {
    let all = |some: &[Setting<Rule>], of: &[Setting<Rule>]| {
        some.iter().all(|rule| of.iter().any(|held| held.value == rule.value))
    };
    all(&after.allow, &before.allow) && all(&before.deny, &after.deny) && all(&before.ask, &after.ask)
}

/// Whether no host came and no denial went.
fn hosts_hold(before: &Hosts, after: &Hosts) -> bool {
    let all = |some: &[Setting<HostRule>], of: &[Setting<HostRule>]| {
        some.iter().all(|rule| of.iter().any(|held| held.value == rule.value))
    };
    let open = [before.allow.clone(), before.ask.clone()].concat();
    all(&after.allow, &before.allow) && all(&before.deny, &after.deny) && all(&after.ask, &open)
}

fn holds_all(before: &[Setting<WorkspacePath>], after: &[Setting<WorkspacePath>]) -> bool {
    before.iter().all(|held| after.iter().any(|path| path.value == held.value))
}

/// What holds after these operator documents.
pub(super) fn operated(documents: &[Document]) -> Effective {
    let mut held = Effective::built_in(Home::Session);
    for document in documents {
        held.merge(document.clone(), &Layer::Operator(Path::new("/etc/x").into()));
    }
    held
}

/// Copies one key of a document to another, for every key.
const KEYS: [fn(&mut Document, &Document); 64] = [
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
    |to, from| to.permissions.allow = from.permissions.allow.clone(),
    |to, from| to.permissions.deny = from.permissions.deny.clone(),
    |to, from| to.permissions.ask = from.permissions.ask.clone(),
    |to, from| to.permissions.timeout = from.permissions.timeout,
    |to, from| to.permissions.modes = from.permissions.modes.clone(),
    |to, from| to.sandbox.id_range = from.sandbox.id_range,
    |to, from| to.sandbox.uid = from.sandbox.uid,
    |to, from| to.sandbox.gid = from.sandbox.gid,
];

/// A document of a few keys: one of many would nearly always be refused for one of them, and the others
/// never looked at.
pub(super) fn few_keys() -> impl Strategy<Value = Document> {
    let copy = |(from, keys): (Document, Vec<usize>)| {
        keys.into_iter().fold(Document::default(), |mut to, key| {
            KEYS[key](&mut to, &from);
            to
        })
    };
    (any_document(), vec(0..KEYS.len(), 1..5))
        .prop_map(copy)
        .prop_filter("a document must be right by itself", |document| validate::validate(document).is_ok())
}

#[test]
fn every_key_is_among_the_random_ones() {
    assert_eq!(KEYS.len(), schema::keys().len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn a_folder_never_widens_anything(
        operators in vec(any_document(), 0..3),
        asked in few_keys(),
        is_workspace in any::<bool>(),
        later in vec(few_keys(), 0..2),
    ) {
        let mut before = operated(&operators);
        let layer = if is_workspace { Layer::Workspace("saggar.toml") } else { Layer::AgentFolder("saggar.toml") };
        let verdict = tighten::tighten(&before, &asked, &layer, &trees());
        let mut after = before.clone();
        after.merge(asked, &layer);
        // Nor does it after more layers, as against the same layers without it.
        let is_overruled = !later.is_empty();
        for document in later {
            before.merge(document.clone(), &Layer::CommandLine);
            after.merge(document, &Layer::CommandLine);
        }
        match (verdict, wider(&before, &after)) {
            (Ok(()), Some(how)) => prop_assert!(false, "taken, and widens {how}"),
            // Only the agent folder chooses the program. What follows the disk limit would be cut to it, and a folder's
            // bind left out. A later layer may overrule what was refused.
            (Err(refusal), None) => prop_assert!(
                (is_workspace && matches!(refusal.key, "agent_cmd" | "adapter"))
                    || matches!(refusal.key, "limits.fsize" | "files.tmp_size" | "files.ro" | "files.rw")
                    || is_overruled,
                "refused, and widens nothing: {refusal}"
            ),
            _ => {}
        }
    }

    #[test]
    fn what_is_locked_is_never_widened(operators in vec(any_document(), 0..3), asked in few_keys()) {
        let mut before = operated(&operators);
        let all = Document { locked: Part::ALL.to_vec(), ..Document::default() };
        before.merge(all, &Layer::Operator(Path::new("/etc/y").into()));
        let kept = tighten::keep_locked(&before, &asked).is_ok();
        let mut after = before.clone();
        after.merge(asked, &Layer::CommandLine);
        if kept {
            prop_assert_eq!(wider(&before, &after), None);
            prop_assert_eq!(before.agent_cmd.map(|one| one.value), after.agent_cmd.map(|one| one.value));
        }
    }

    #[test]
    fn what_an_operator_says_a_folder_may_repeat(document in any_document(), is_workspace in any::<bool>()) {
        let mut before = operated(std::slice::from_ref(&document));
        let layer = if is_workspace { Layer::Workspace("saggar.toml") } else { Layer::AgentFolder("saggar.toml") };
        prop_assert_eq!(tighten::tighten(&before, &document, &layer, &trees()).map_err(|e| e.to_string()), Ok(()));
        let environment_before = before.env.clone();
        before.merge(document, &layer);
        prop_assert_eq!(before.env, environment_before);
    }

    #[test]
    fn a_merge_is_idempotent(document in any_document()) {
        let once = operated(std::slice::from_ref(&document));
        let twice = operated(&[document.clone(), document]);
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..400)) {
        for format in [parse::Format::Toml, parse::Format::Json] {
            let _ = parse::parse("f", format, &bytes);
        }
    }

    #[test]
    fn random_policies_give_a_document_or_a_message_of_one_line(
        tokens in vec(select(&[
            "profile", "limits", "memory", "files", "env", "set", "ro", "=", ".", "[", "]", "[[", "]]", "{", "}", ",",
            ":", "'", "\"", "\"\"\"", "\n", " ", "#", "1", "-1", "1.5", "nan", "inf", "1e999", "0x10", "true", "null",
            "2026-01-01", "'4G'", "'strict'", "\\u0000", "é", "\0", "9223372036854775808",
        ][..]), 0..40)
    ) {
        let text = tokens.concat();
        for format in [parse::Format::Toml, parse::Format::Json] {
            if let Err(error) = parse::parse("f", format, text.as_bytes()) {
                let message = error.to_string();
                prop_assert!(message.starts_with("f:"), "{message:?}");
                prop_assert!(!message.contains(|c: char| c.is_control()), "{message:?}");
            }
        }
    }
}
