//! Random documents and random bytes.

use super::*;
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use std::fmt::Debug;
use std::str::FromStr;

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
    let timeout = of(one_of(&["1s", "1h", "2h"]));
    (of(size()), of(size()), of(size()), cpus, of(select(counts)), of(select(counts)), timeout).prop_map(
        |(memory, disk, fsize, cpus, pids, nofile, timeout)| document::Limits {
            memory,
            disk,
            fsize,
            cpus,
            pids,
            nofile,
            timeout,
        },
    )
}

fn any_document() -> impl Strategy<Value = Document> {
    let top = (
        of(word(Profile::ALL)),
        of(one_of(&["claude", "demo -x"])),
        of(word(Adapter::ALL)),
        of(select(&[Network::None, Network::Host][..])),
    );
    let protect = (of(any::<bool>()), vec(one_of(&["Makefile", "ci"]), 0..2), of(Just(Missing::None)))
        .prop_map(|(git_config, paths, missing)| document::Protect { git_config, paths, missing });
    let protections = (vec(word(Protection::ALL), 0..3), vec(word(Protection::ALL), 0..3))
        .prop_map(|(require, prefer)| document::Protections { require, prefer });
    let sockets = (of(one_of(&["/run/a", "/run/b"])), of(one_of(&["/t/{id}", "/u"])));
    let ids = (
        of(one_of(&["100000-200000", "1879048192-2147418111"])),
        of(select(&[1u32, 1000][..])),
        of(select(&[1u32, 1000][..])),
    )
        .prop_map(|(id_range, uid, gid)| document::Sandbox { id_range, uid, gid });
    (top, files(), env(), limits(), protect, protections, sockets, ids)
        .prop_map(|(top, files, env, limits, protect, protections, sockets, sandbox)| {
            let (profile, agent_cmd, adapter, mode) = top;
            let (socket, bridge) = sockets;
            Document {
                profile,
                agent_cmd,
                adapter,
                files,
                env,
                network: document::NetworkTable { mode },
                limits,
                protect,
                protections,
                api: document::Api { socket },
                bridge: document::Bridge { socket: bridge, control: None },
                sandbox,
            }
        })
        .prop_filter("a document must be right by itself", |document| validate::validate(document).is_ok())
}

/// How `after` is wider than `before`, if it is. Written apart from `tighten`, from the result's side, so
/// that the two check each other.
fn wider(before: &Effective, after: &Effective) -> Option<String> {
    let Effective {
        profile,
        agent_cmd: _, // Not a wall.
        adapter: _,
        files,
        env,
        network,
        limits,
        protect,
        protections,
        api_socket,
        bridge_socket,
        control_socket,
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
    let timeout = |limits: &effective::Limits| {
        limits.timeout.as_ref().map_or(u128::MAX, |t| t.value.duration().as_millis())
    };

    let checks = [
        ("profile", profile.value <= before.profile.value),
        ("network", network.value <= before.network.value),
        ("home", same_home || rank(&files.home.value) < rank(&before.files.home.value)),
        ("memory", limits.memory.value <= before.limits.memory.value),
        ("disk", limits.disk.value <= before.limits.disk.value),
        ("fsize", after.fsize().value <= before.fsize().value),
        ("tmp_size", after.tmp_size().value <= before.tmp_size().value),
        ("cpus", limits.cpus.value <= before.limits.cpus.value),
        ("pids", limits.pids.value <= before.limits.pids.value),
        ("nofile", limits.nofile.value <= before.limits.nofile.value),
        ("timeout", timeout(limits) <= timeout(&before.limits)),
        ("git_config", protect.git_config.value >= before.protect.git_config.value),
        ("missing", protect.missing.value <= before.protect.missing.value),
        ("paths", holds_all(&before.protect.paths, &protect.paths)),
        ("hide", holds_all(&before.files.hide, &files.hide)),
        ("deny", before.env.deny.keys().all(|name| deny(after, name))),
        ("api", value(api_socket) == value(&before.api_socket)),
        ("bridge", template(bridge_socket) == template(&before.bridge_socket)),
        ("control", template(control_socket) == template(&before.control_socket)),
        ("range", ids.range.value == before.ids.range.value),
        ("uid", id(&ids.uid) == id(&before.ids.uid)),
        ("gid", id(&ids.gid) == id(&before.ids.gid)),
        ("allow_home", allow_home == &before.allow_home),
    ];
    if let Some((name, _)) = checks.iter().find(|(_, holds)| !holds) {
        return Some((*name).to_owned());
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

fn holds_all(before: &[Setting<WorkspacePath>], after: &[Setting<WorkspacePath>]) -> bool {
    before.iter().all(|held| after.iter().any(|path| path.value == held.value))
}

/// What holds after these operator documents.
fn operated(documents: &[Document]) -> Effective {
    let mut held = Effective::built_in(Home::Session);
    for document in documents {
        held.merge(document.clone(), &Layer::Operator(Path::new("/etc/x").into()));
    }
    held
}

/// Copies one key of a document to another, for every key.
const KEYS: [fn(&mut Document, &Document); 30] = [
    |to, from| to.profile = from.profile,
    |to, from| to.agent_cmd = from.agent_cmd.clone(),
    |to, from| to.adapter = from.adapter,
    |to, from| to.files.ro = from.files.ro.clone(),
    |to, from| to.files.rw = from.files.rw.clone(),
    |to, from| to.files.home = from.files.home.clone(),
    |to, from| to.files.tmp_size = from.files.tmp_size,
    |to, from| to.files.hide = from.files.hide.clone(),
    |to, from| to.env.pass = from.env.pass.clone(),
    |to, from| to.env.set = from.env.set.clone(),
    |to, from| to.env.deny = from.env.deny.clone(),
    |to, from| to.network.mode = from.network.mode,
    |to, from| to.limits.memory = from.limits.memory,
    |to, from| to.limits.disk = from.limits.disk,
    |to, from| to.limits.fsize = from.limits.fsize,
    |to, from| to.limits.cpus = from.limits.cpus,
    |to, from| to.limits.pids = from.limits.pids,
    |to, from| to.limits.nofile = from.limits.nofile,
    |to, from| to.limits.timeout = from.limits.timeout,
    |to, from| to.protect.git_config = from.protect.git_config,
    |to, from| to.protect.paths = from.protect.paths.clone(),
    |to, from| to.protect.missing = from.protect.missing,
    |to, from| to.protections.require = from.protections.require.clone(),
    |to, from| to.protections.prefer = from.protections.prefer.clone(),
    |to, from| to.api.socket = from.api.socket.clone(),
    |to, from| to.bridge.socket = from.bridge.socket.clone(),
    |to, from| to.bridge.control = from.bridge.control.clone(),
    |to, from| to.sandbox.id_range = from.sandbox.id_range,
    |to, from| to.sandbox.uid = from.sandbox.uid,
    |to, from| to.sandbox.gid = from.sandbox.gid,
];

/// A document of a few keys: one of many would nearly always be refused for one of them, and the others
/// never looked at.
fn few_keys() -> impl Strategy<Value = Document> {
    let copy = |(from, keys): (Document, Vec<usize>)| {
        keys.into_iter().fold(Document::default(), |mut to, key| {
            KEYS[key](&mut to, &from);
            to
        })
    };
    (any_document(), vec(0..KEYS.len(), 1..5)).prop_map(copy)
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
        let verdict = tighten::tighten(&before, &asked, &layer);
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
            // The program is no wall, and only the agent folder chooses it. What follows the disk limit would
            // be cut to it. A later layer may overrule what was refused.
            (Err(refusal), None) => prop_assert!(
                (is_workspace && matches!(refusal.key, "agent_cmd" | "adapter"))
                    || matches!(refusal.key, "limits.fsize" | "files.tmp_size")
                    || is_overruled,
                "refused, and widens nothing: {refusal}"
            ),
            _ => {}
        }
    }

    #[test]
    fn what_an_operator_says_a_folder_may_repeat(document in any_document(), is_workspace in any::<bool>()) {
        let mut before = operated(std::slice::from_ref(&document));
        let layer = if is_workspace { Layer::Workspace("saggar.toml") } else { Layer::AgentFolder("saggar.toml") };
        prop_assert_eq!(tighten::tighten(&before, &document, &layer).map_err(|e| e.to_string()), Ok(()));
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
