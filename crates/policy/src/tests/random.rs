//! Properties of random documents and of random bytes.

use super::*;
use crate::testing::{any_document, few_keys, operated, trees};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use saggar_sys::testing::cases;

/// Whether the program that a folder chose is visible in the sandbox independently of the folder's policy.
fn program_stands(before: &EffectivePolicy, after: &EffectivePolicy) -> bool {
    let Some(chosen) = after.agent_cmd.as_ref().filter(|chosen| chosen.layer.is_agent_writable()) else {
        return true;
    };
    let program = chosen.value.words()[0].as_str();
    let shown = before.files.binds.iter().any(|bind| Path::new(program).starts_with(&bind.value.destination));
    let inside =
        !program.starts_with('/') || program.starts_with("/usr/") || program.starts_with("/work/") || shown;
    inside && !program.contains("..")
}

/// The value of a setting, independently of its layer.
fn value<T: Clone>(setting: &Option<Setting<T>>) -> Option<T> {
    setting.as_ref().map(|setting| setting.value.clone())
}

/// Whether it is the same mailbox under the same name, independently of layers; its registration may only go.
fn same_mailbox(after: &effective::MailboxPolicy, before: &effective::MailboxPolicy) -> bool {
    value(&after.run) == value(&before.run)
        && value(&after.name) == value(&before.name)
        && value(&after.root) == value(&before.root)
        && value(&after.repo) == value(&before.repo)
        && after.register.value <= before.register.value
}

/// Whether MCP clients could use all of these sessions before: tried with names, and not by the patterns.
fn serves(before: &EffectivePolicy, asked: &SessionPattern) -> bool {
    ["dev", "de", "dev2", "ci-", "ci-7", "ci-8", "x"]
        .iter()
        .filter(|name| asked.matches(name))
        .all(|name| before.mcp_sessions.iter().any(|held| held.value.matches(name)))
}

/// Whether requests go to the same upstream with the same key, independently of layers.
fn same_api(after: &effective::ApiPolicy, before: &effective::ApiPolicy) -> bool {
    value(&after.upstream) == value(&before.upstream)
        && value(&after.key_file) == value(&before.key_file)
        && value(&after.header) == value(&before.header)
        && value(&after.ca_file) == value(&before.ca_file)
}

/// The way in which `after` is wider than `before`, if it is. Written independently of `tighten`, from the
/// result, so that the two check each other.
pub(super) fn wider(before: &EffectivePolicy, after: &EffectivePolicy) -> Option<String> {
    let EffectivePolicy {
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
        quiet_degraded,
        api_socket,
        api,
        bridge_socket,
        control_socket,
        allow_reachable,
        bridge_directory,
        remembered_uuids: remembered,
        spool_size: spool,
        keep_session,
        mailbox,
        mcp_sessions,
        permissions,
        ids,
        cgroup,
        allow_home,
    } = after;
    let value = |setting: &Option<Setting<HostPath>>| setting.clone().map(|setting| setting.value);
    let template =
        |setting: &Option<Setting<SocketPathTemplate>>| setting.clone().map(|setting| setting.value);
    let id = |setting: &Option<Setting<u32>>| setting.clone().map(|setting| setting.value);
    let rank = |home: &HomeSource| match home {
        HomeSource::Tmp => 0,
        HomeSource::Session => 1,
        HomeSource::Directory(_) => 2,
    };
    let same_home = files.home.value == before.files.home.value;
    let deny = |policy: &EffectivePolicy, name: &EnvName| policy.env.deny.contains_key(name.as_str());
    let times = |limits: &effective::LimitPolicy| {
        [&limits.timeout, &limits.cpu_time, &limits.idle, &limits.agent_idle]
            .map(|time| time.as_ref().map_or(u64::MAX, |time| time.value.milliseconds()))
    };
    let (timed, timed_before) = (times(limits), times(&before.limits));

    let checks = [
        ("agent_cmd", program_stands(before, after)),
        ("profile", profile.value <= before.profile.value),
        ("keep_session", keep_session.value == before.keep_session.value),
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
        ("cgroup parent", cgroup.parent.value == before.cgroup.parent.value),
        ("cgroup driver", cgroup.driver.value == before.cgroup.driver.value),
        ("range", ids.range.value == before.ids.range.value),
        ("uid", id(&ids.uid) == id(&before.ids.uid)),
        ("gid", id(&ids.gid) == id(&before.ids.gid)),
        ("allow_home", allow_home == &before.allow_home),
        ("remembered", remembered.value == before.remembered_uuids.value),
        ("spool", spool.value <= before.spool_size.value),
        ("mailbox", same_mailbox(mailbox, &before.mailbox)),
        ("mcp", mcp_sessions.iter().all(|asked| serves(before, &asked.value))),
        ("rules", rules_hold(&before.permissions, permissions)),
        ("asked", permissions.timeout.value <= before.permissions.timeout.value),
        (
            "modes",
            PermissionMode::ALL.iter().all(|mode| {
                let may = |held: &PermissionPolicy| held.may_set_mode(mode.name()).is_ok();
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
            (&held.value.source, &held.value.destination) == (&bind.value.source, &bind.value.destination)
                && bind.value.access <= held.value.access
        });
        if !held {
            return Some(format!("bind {bind:?}"));
        }
    }
    if quiet_degraded.value && !before.quiet_degraded.value {
        return Some("protections.quiet".into());
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
            && held.is_none_or(|held| held.layer == PolicyLayer::BuiltIn);
        if held.is_none_or(|held| held.value != rule.value) && !ordinary {
            return Some(format!("variable {name}"));
        }
    }
    None
}

/// As [`wider`], for the limits without a built-in value, with the default of each.
fn wider_limit(before: &effective::LimitPolicy, after: &effective::LimitPolicy) -> Option<&'static str> {
    fn above<T: Ord + Clone>(after: &Option<Setting<T>>, before: &Option<Setting<T>>, unnamed: &T) -> bool {
        let value =
            |setting: &Option<Setting<T>>| setting.as_ref().map_or(unnamed.clone(), |s| s.value.clone());
        value(after) > value(before)
    }
    fn outside(after: &Option<Setting<CpusetList>>, before: &Option<Setting<CpusetList>>) -> bool {
        match (after, before) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(after), Some(before)) => !after.value.is_subset_of(&before.value),
        }
    }
    let (none, all) = (ByteSize::from_mebibytes(0), ByteSize::MAX);
    let idle = |limits: &effective::LimitPolicy| limits.cpu_idle.as_ref().is_some_and(|idle| idle.value);
    let unlimited = effective::DiskRatePolicy::default();
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
    let burst =
        |limits: &effective::LimitPolicy| limits.cpu_burst.as_ref().map(|burst| burst.value.duration());
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

/// Whether no allowance was added and no denial was removed.
fn rules_hold(before: &PermissionPolicy, after: &PermissionPolicy) -> bool {
    let all = |some: &[Setting<PermissionRule>], of: &[Setting<PermissionRule>]| {
        some.iter().all(|rule| of.iter().any(|held| held.value == rule.value))
    };
    all(&after.allow, &before.allow) && all(&before.deny, &after.deny) && all(&before.ask, &after.ask)
}

/// Whether no host was added and no denial was removed.
fn hosts_hold(before: &HostPolicy, after: &HostPolicy) -> bool {
    let all = |some: &[Setting<HostRule>], of: &[Setting<HostRule>]| {
        some.iter().all(|rule| of.iter().any(|held| held.value == rule.value))
    };
    let open = [before.allow.clone(), before.ask.clone()].concat();
    all(&after.allow, &before.allow) && all(&before.deny, &after.deny) && all(&after.ask, &open)
}

fn holds_all(before: &[Setting<WorkspacePattern>], after: &[Setting<WorkspacePattern>]) -> bool {
    before.iter().all(|held| after.iter().any(|path| path.value == held.value))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(4000)))]

    #[test]
    fn a_folder_never_widens_anything(
        operators in vec(any_document(), 0..3),
        asked in few_keys(),
        is_workspace in any::<bool>(),
        later in vec(few_keys(), 0..2),
    ) {
        let mut before = operated(&operators);
        let layer = if is_workspace { PolicyLayer::Workspace("saggar.toml") } else { PolicyLayer::AgentFolder("saggar.toml") };
        let verdict = tighten::tighten(&before, &asked, &layer, &trees());
        let mut after = before.clone();
        after.merge(asked, &layer);
        // The folder's document widens nothing after further layers either, compared with the same layers
        // without it.
        let is_overruled = !later.is_empty();
        for document in later {
            before.merge(document.clone(), &PolicyLayer::CommandLine);
            after.merge(document, &PolicyLayer::CommandLine);
        }
        match (verdict, wider(&before, &after)) {
            (Ok(()), Some(how)) => prop_assert!(false, "taken, and widens {how}"),
            // Only the agent folder may choose the program. A value that follows the disk limit would be
            // capped by it, and a folder's bind is omitted. A later layer may override what was refused.
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
        let all = PolicyDocument { locked: PolicyPart::ALL.to_vec(), ..PolicyDocument::default() };
        before.merge(all, &PolicyLayer::Operator(Path::new("/etc/y").into()));
        let kept = tighten::check_locks(&before, &asked).is_ok();
        let mut after = before.clone();
        after.merge(asked, &PolicyLayer::CommandLine);
        if kept {
            prop_assert_eq!(wider(&before, &after), None);
            prop_assert_eq!(before.agent_cmd.map(|one| one.value), after.agent_cmd.map(|one| one.value));
        }
    }

    #[test]
    fn what_an_operator_says_a_folder_may_repeat(document in any_document(), is_workspace in any::<bool>()) {
        let mut before = operated(std::slice::from_ref(&document));
        let layer = if is_workspace { PolicyLayer::Workspace("saggar.toml") } else { PolicyLayer::AgentFolder("saggar.toml") };
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
        for format in [parse::PolicyFormat::Toml, parse::PolicyFormat::Json] {
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
        for format in [parse::PolicyFormat::Toml, parse::PolicyFormat::Json] {
            match parse::parse("f", format, text.as_bytes()) {
                Ok(document) => {
                    let json = parse::to_json("f", format, text.as_bytes()).unwrap();
                    prop_assert_eq!(parse::parse("f", parse::PolicyFormat::Json, json.as_bytes()).unwrap(), document);
                }
                Err(error) => {
                    let message = error.to_string();
                    prop_assert!(message.starts_with("f:"), "{message:?}");
                    prop_assert!(!message.contains(|c: char| c.is_control()), "{message:?}");
                }
            }
        }
    }
}
