//! Checks that a document from a folder that the agent can write asks for no more than the current policy.
//!
//! The agent may have written the document, so it may only tighten. Every key has its rule here; the
//! document is destructured field by field, so that a new key does not compile without a rule. A value that
//! is equal to the current one, or tighter, is accepted.

use super::document::{self, PolicyDocument};
use super::effective::{DiskRatePolicy, EffectivePolicy, EnvRule, LimitPolicy, PermissionPolicy, PolicyLock};
use super::environment;
use super::hosts::HostRule;
use super::layer::{PolicyLayer, Setting};
use super::mcp::SessionPattern;
use super::names::{NetworkMode, PolicyPart, ProtectionStrength};
use super::paths::{BindAccess, BindSpec, HomeSource};
use super::permission::PermissionMode;
use super::program::AgentCommand;
use super::provenance;
use super::publish::PublishedPort;
use super::resources::{CpusetList, DiskRates};
use std::fmt::{self, Display};
use std::path::Path;

/// A key with which a folder's policy asks for more than the layers before it permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Widening {
    /// The key, as `limits.memory`.
    pub(super) key: &'static str,
    /// The requested value, as text.
    requested: String,
    /// Its relation to the current value, as text.
    relation: String,
}

impl Display for Widening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Widening { key, requested: asked, relation } = self;
        write!(f, "asks for {key} = {asked}, {relation}")
    }
}

/// The end of the error message for a folder's policy.
pub(super) const FOLDER_MAY_ONLY_TIGHTEN: &str = "a policy from the agent's own folder may only tighten";

type TightenResult = Result<(), Widening>;

/// Refuses the first key of `requested` that widens `current`. `visible_trees` are the folders whose
/// content is visible in the sandbox.
pub(super) fn tighten(
    current: &EffectivePolicy,
    requested: &PolicyDocument,
    layer: &PolicyLayer,
    visible_trees: &[&Path],
) -> TightenResult {
    let PolicyDocument {
        profile,
        agent_cmd,
        adapter,
        locked,
        files,
        env,
        network,
        limits,
        protect,
        protections,
        api,
        bridge,
        mailbox,
        mcp,
        permissions,
        sandbox,
    } = requested;

    check_at_most("profile", profile.as_ref(), &current.profile)?;
    if let Some(part) = locked.first() {
        return refuse("locked", part, "which only the operator may set");
    }
    // Choosing the program is not a widening (DECISIONS 26). Only the agent's folder may choose it, and
    // only one that is visible in the sandbox already (DECISIONS 32).
    if matches!(layer, PolicyLayer::AgentFolder(_)) {
        check_program(current, agent_cmd.as_ref(), visible_trees)?;
    } else {
        check_equal("agent_cmd", agent_cmd.as_ref(), current.agent_cmd.as_ref())?;
        check_equal("adapter", adapter.as_ref(), current.adapter.as_ref())?;
    }
    check_files(current, files)?;
    check_env(current, env)?;
    check_network(current, network)?;
    check_limits(current, limits)?;
    check_protect(current, protect)?;
    check_protections(current, protections)?;
    let document::ApiTable { socket, upstream, key_file, header, ca_file } = api;
    check_equal("api.socket", socket.as_ref(), current.api_socket.as_ref())?;
    check_equal("api.upstream", upstream.as_ref(), current.api.upstream.as_ref())?;
    check_equal("api.key_file", key_file.as_ref(), current.api.key_file.as_ref())?;
    check_equal("api.header", header.as_ref(), current.api.header.as_ref())?;
    check_equal("api.ca_file", ca_file.as_ref(), current.api.ca_file.as_ref())?;
    let document::BridgeTable { socket, control, allow_reachable, directory, remembered, spool } = bridge;
    check_equal("bridge.socket", socket.as_ref(), current.bridge_socket.as_ref())?;
    check_equal("bridge.control", control.as_ref(), current.control_socket.as_ref())?;
    if *allow_reachable == Some(true) {
        check_equal("bridge.allow_reachable", allow_reachable.as_ref(), Some(&current.allow_reachable))?;
    }
    check_equal("bridge.directory", directory.as_ref(), current.bridge_directory.as_ref())?;
    check_equal("bridge.remembered", remembered.as_ref(), Some(&current.remembered_uuids))?;
    check_at_most("bridge.spool", spool.as_ref(), &current.spool_size)?;
    let document::MailboxTable { run, name, root, repo, register } = mailbox;
    check_equal("mailbox.run", run.as_ref(), current.mailbox.run.as_ref())?;
    check_equal("mailbox.name", name.as_ref(), current.mailbox.name.as_ref())?;
    check_equal("mailbox.root", root.as_ref(), current.mailbox.root.as_ref())?;
    check_equal("mailbox.repo", repo.as_ref(), current.mailbox.repo.as_ref())?;
    if *register == Some(true) {
        check_equal("mailbox.register", register.as_ref(), Some(&current.mailbox.register))?;
    }
    let document::McpTable { sessions } = mcp;
    check_sessions(sessions, &current.mcp_sessions)?;
    check_permissions(&current.permissions, permissions)?;
    let document::SandboxTable { id_range, uid, gid, cgroup_parent, cgroup_driver, keep_session } = sandbox;
    check_equal("sandbox.keep_session", keep_session.as_ref(), Some(&current.keep_session))?;
    check_equal("sandbox.cgroup_parent", cgroup_parent.as_ref(), Some(&current.cgroup.parent))?;
    check_equal("sandbox.cgroup_driver", cgroup_driver.as_ref(), Some(&current.cgroup.driver))?;
    check_equal("sandbox.id_range", id_range.as_ref(), Some(&current.ids.range))?;
    check_equal("sandbox.uid", uid.as_ref(), current.ids.uid.as_ref())?;
    check_equal("sandbox.gid", gid.as_ref(), current.ids.gid.as_ref())
}

/// Refuses the first key of `requested` that widens a locked part beyond the policy at the time of the
/// lock.
pub(super) fn check_locks<'a>(
    current: &'a EffectivePolicy,
    requested: &PolicyDocument,
) -> Result<(), (Widening, &'a PolicyLock)> {
    current.locked.iter().try_for_each(|lock| {
        let part = extract_part(requested, lock.part);
        tighten(&lock.policy_at_lock, &part, &PolicyLayer::CommandLine, &[])
            .map_err(|widening| (widening, lock))
    })
}

/// A document with only this part of `document`.
fn extract_part(document: &PolicyDocument, part: PolicyPart) -> PolicyDocument {
    let (all, mut only) = (document.clone(), PolicyDocument::default());
    match part {
        PolicyPart::Agent => (only.agent_cmd, only.adapter) = (all.agent_cmd, all.adapter),
        PolicyPart::Api => only.api = all.api,
        PolicyPart::Bridge => only.bridge = all.bridge,
        PolicyPart::Env => only.env = all.env,
        PolicyPart::Files => only.files = all.files,
        PolicyPart::Limits => only.limits = all.limits,
        PolicyPart::Mailbox => only.mailbox = all.mailbox,
        PolicyPart::Mcp => only.mcp = all.mcp,
        PolicyPart::Network => only.network = all.network,
        PolicyPart::Permissions => only.permissions = all.permissions,
        PolicyPart::Profile => only.profile = all.profile,
        PolicyPart::Protect => only.protect = all.protect,
        PolicyPart::Protections => only.protections = all.protections,
        PolicyPart::Sandbox => only.sandbox = all.sandbox,
    }
    only
}

/// Removes the keys that only the start of an agent reads, and returns their names. In a folder that is the
/// workspace of any other command, these keys widen nothing and do not concern that command.
pub(super) fn remove_agent_keys(document: &mut PolicyDocument) -> Vec<&'static str> {
    let agent_cmd = document.agent_cmd.take().map(|_| "agent_cmd");
    let adapter = document.adapter.take().map(|_| "adapter");
    agent_cmd.into_iter().chain(adapter).collect()
}

/// Sessions: only those that earlier layers name.
fn check_sessions(requested: &[SessionPattern], held: &[Setting<SessionPattern>]) -> TightenResult {
    match requested.iter().find(|asked| !held.iter().any(|held| held.value.covers(asked))) {
        Some(asked) => refuse("mcp.sessions", asked, "which no layer before it names"),
        None => Ok(()),
    }
}

fn check_program(
    current: &EffectivePolicy,
    requested: Option<&AgentCommand>,
    visible_trees: &[&Path],
) -> TightenResult {
    let is_held =
        |asked: &&AgentCommand| current.agent_cmd.as_ref().is_some_and(|held| held.value == **asked);
    match requested.filter(|asked| !is_held(asked)) {
        Some(asked) => match provenance::program_objection(current, asked, visible_trees) {
            Some(why) => refuse("agent_cmd", asked, why),
            None => Ok(()),
        },
        None => Ok(()),
    }
}

fn check_files(current: &EffectivePolicy, requested: &document::FilesTable) -> TightenResult {
    let document::FilesTable { ro, rw, home, tmp_size, hide } = requested;
    // Additional hidden paths only tighten.
    let _ = hide;
    check_binds(current, "files.ro", ro, BindAccess::ReadOnly)?;
    check_binds(current, "files.rw", rw, BindAccess::ReadWrite)?;
    if let Some(home) = home {
        // A home directory in memory shows nothing and keeps nothing. The session's own directory shows
        // nothing of the host.
        let held = &current.files.home;
        let tighter = match home {
            HomeSource::Tmp => true,
            HomeSource::Session => matches!(held.value, HomeSource::Directory(_)),
            HomeSource::Directory(_) => false,
        };
        if !tighter {
            check_equal("files.home", Some(home), Some(held))?;
        }
    }
    check_at_most("files.tmp_size", tmp_size.as_ref(), &current.tmp_size())
}

/// Only a destination that is bound already, and not with more access. A path below a bound one is not
/// equal to it: it may be a link that the agent made, and the host would follow it.
fn check_binds(
    current: &EffectivePolicy,
    key: &'static str,
    requested: &[BindSpec],
    access: BindAccess,
) -> TightenResult {
    for spec in requested {
        let held = current.files.binds.iter().find(|held| {
            held.value.source == spec.source
                && held.value.destination == spec.destination()
                && held.value.access >= access
        });
        if held.is_none() {
            return refuse(key, spec, "which no layer before it gives");
        }
    }
    Ok(())
}

fn check_env(current: &EffectivePolicy, requested: &document::EnvTable) -> TightenResult {
    let document::EnvTable { pass, set, deny } = requested;
    // Additional denied names only tighten.
    let _ = deny;
    for name in pass {
        if current.env.rules.get(name).is_none_or(|rule| rule.value != EnvRule::Pass) {
            return refuse("env.pass", name, "which no layer before it passes");
        }
    }
    for (name, value) in set {
        let held = current.env.rules.get(name);
        if held.is_some_and(|held| matches!(&held.value, EnvRule::Set(held) if held == value)) {
            continue;
        }
        // The message omits the value: it may be a secret, which must not be logged.
        if let Some(why) = environment::folder_objection(name) {
            return refuse("env.set", name, why);
        }
        if let Some(held) = held.filter(|held| held.layer != PolicyLayer::BuiltIn) {
            return refuse("env.set", name, format!("which {} rules on", held.layer));
        }
    }
    Ok(())
}

/// Only hosts that are allowed already. In the mode `host`, where all are, a folder may list the hosts that
/// it needs.
fn check_network(current: &EffectivePolicy, requested: &document::NetworkTable) -> TightenResult {
    let document::NetworkTable { mode, allow, deny, ask, publish, sockets } = requested;
    // Additional denied hosts only tighten.
    let _ = deny;
    check_at_most("network.mode", mode.as_ref(), &current.network)?;
    let is_published = |asked: &&PublishedPort| current.publish.iter().any(|held| held.value == **asked);
    if let Some(asked) = publish.iter().find(|asked| !is_published(asked)) {
        return refuse("network.publish", asked, "which no layer before it gives");
    }
    let is_shown = |asked: &&BindSpec| {
        let same = |held: &BindSpec| held.source == asked.source && held.destination() == asked.destination();
        current.sockets.iter().any(|held| same(&held.value))
    };
    if let Some(asked) = sockets.iter().find(|asked| !is_shown(asked)) {
        return refuse("network.sockets", asked, "which no layer before it gives");
    }
    let holds = |rules: &[Setting<HostRule>], rule: &HostRule| rules.iter().any(|held| held.value == *rule);
    let is_held = |rule: &HostRule| match current.network.value {
        NetworkMode::None => false,
        NetworkMode::Policy => holds(&current.hosts.allow, rule),
        NetworkMode::Host => true,
    };
    if let Some(rule) = allow.iter().find(|rule| !is_held(rule)) {
        return refuse("network.allow", rule, "which no layer before it gives");
    }
    // If a later layer has set another network mode, earlier rules allow nothing.
    let is_asked =
        |rule: &HostRule| current.network.value == NetworkMode::Policy && holds(&current.hosts.ask, rule);
    match ask.iter().find(|rule| !is_held(rule) && !is_asked(rule)) {
        Some(rule) => refuse("network.ask", rule, "which no layer before it gives or asks for"),
        None => Ok(()),
    }
}

fn check_limits(current: &EffectivePolicy, requested: &document::LimitsTable) -> TightenResult {
    let document::LimitsTable {
        memory,
        memory_high,
        swap,
        hugetlb,
        disk,
        inodes,
        fsize,
        cpus,
        cpu_burst,
        cpu_weight,
        cpu_idle,
        cpuset_cpus,
        cpuset_mems,
        io,
        io_weight,
        pids,
        nofile,
        timeout,
        at_timeout,
        cpu_time,
        idle,
        agent_idle,
        script,
    } = requested;
    let held = &current.limits;
    check_at_most("limits.memory", memory.as_ref(), &current.limits.memory)?;
    check_at_most("limits.disk", disk.as_ref(), &current.limits.disk)?;
    check_at_most("limits.inodes", inodes.as_ref(), &current.limits.inodes)?;
    check_at_most("limits.fsize", fsize.as_ref(), &current.fsize())?;
    check_at_most("limits.cpus", cpus.as_ref(), &current.limits.cpus)?;
    check_at_most("limits.pids", pids.as_ref(), &current.limits.pids)?;
    check_at_most("limits.nofile", nofile.as_ref(), &current.limits.nofile)?;
    check_at_most_if_limited("limits.timeout", timeout.as_ref(), held.timeout.as_ref())?;
    check_at_most("limits.at_timeout", at_timeout.as_ref(), &held.at_timeout)?;
    check_at_most_if_limited("limits.cpu_time", cpu_time.as_ref(), held.cpu_time.as_ref())?;
    check_at_most_if_limited("limits.idle", idle.as_ref(), held.idle.as_ref())?;
    check_at_most_if_limited("limits.agent_idle", agent_idle.as_ref(), held.agent_idle.as_ref())?;
    check_at_most("limits.script", script.as_ref(), &held.script)?;
    check_at_most_if_limited("limits.memory_high", memory_high.as_ref(), held.memory_high.as_ref())?;
    check_at_most("limits.swap", swap.as_ref(), &held.swap_or_none())?;
    for (page, size) in hugetlb {
        check_at_most_if_limited("limits.hugetlb", Some(size), held.hugetlb.get(page))?;
    }
    // Without `cpu_burst` no burst is allowed.
    match &held.cpu_burst {
        Some(held) => check_at_most("limits.cpu_burst", cpu_burst.as_ref(), held)?,
        None => check_equal("limits.cpu_burst", cpu_burst.as_ref(), None)?,
    }
    let default = Setting { value: LimitPolicy::WEIGHT, layer: PolicyLayer::BuiltIn };
    check_at_most("limits.cpu_weight", cpu_weight.as_ref(), held.cpu_weight.as_ref().unwrap_or(&default))?;
    check_at_most("limits.io_weight", io_weight.as_ref(), held.io_weight.as_ref().unwrap_or(&default))?;
    if *cpu_idle == Some(false) && held.cpu_idle.as_ref().is_some_and(|held| held.value) {
        check_equal("limits.cpu_idle", cpu_idle.as_ref(), held.cpu_idle.as_ref())?;
    }
    check_subset("limits.cpuset_cpus", cpuset_cpus.as_ref(), held.cpuset_cpus.as_ref())?;
    check_subset("limits.cpuset_mems", cpuset_mems.as_ref(), held.cpuset_mems.as_ref())?;
    let unlimited = DiskRatePolicy::default();
    for (disk, DiskRates { read_bps, write_bps, read_iops, write_iops }) in io {
        // Of two names of one disk the lower rate applies: another name widens nothing.
        let held = held.io.get(disk).unwrap_or(&unlimited);
        check_at_most_if_limited("limits.io", read_bps.as_ref(), held.read_bps.as_ref())?;
        check_at_most_if_limited("limits.io", write_bps.as_ref(), held.write_bps.as_ref())?;
        check_at_most_if_limited("limits.io", read_iops.as_ref(), held.read_iops.as_ref())?;
        check_at_most_if_limited("limits.io", write_iops.as_ref(), held.write_iops.as_ref())?;
    }
    Ok(())
}

fn check_protect(current: &EffectivePolicy, requested: &document::ProtectTable) -> TightenResult {
    let document::ProtectTable { git_config, paths, missing } = requested;
    // Additional protected paths only tighten.
    let _ = paths;
    if *git_config == Some(false) {
        check_equal("protect.git_config", git_config.as_ref(), Some(&current.protect.git_config))?;
    }
    check_at_most("protect.missing", missing.as_ref(), &current.protect.missing)
}

fn check_protections(current: &EffectivePolicy, requested: &document::ProtectionsTable) -> TightenResult {
    let document::ProtectionsTable { require: _, prefer: _, quiet } = requested;
    if *quiet == Some(true) {
        check_equal("protections.quiet", quiet.as_ref(), Some(&current.quiet_degraded))?;
    }
    // Requiring more only tightens.
    for (protection, strength) in requested.strengths() {
        if strength == ProtectionStrength::Prefer
            && current.strength(protection) == ProtectionStrength::Require
        {
            let by = current.protections.get(&protection).map_or(&PolicyLayer::BuiltIn, |held| &held.layer);
            return refuse("protections.prefer", &protection, format!("which is required by {by}"));
        }
    }
    Ok(())
}

fn check_permissions(current: &PermissionPolicy, requested: &document::PermissionsTable) -> TightenResult {
    let document::PermissionsTable { allow, deny, ask, timeout, modes } = requested;
    // Denying more, or asking about more, only tightens.
    let _ = (deny, ask);
    for rule in allow {
        if !current.allow.iter().any(|held| held.value == *rule) {
            return refuse("permissions.allow", rule, "which no layer before it gives");
        }
    }
    check_at_most("permissions.timeout", timeout.as_ref(), &current.timeout)?;
    let unasked = |mode: &&PermissionMode| match &current.modes {
        Some(held) => !held.value.0.contains(mode),
        None => **mode == PermissionMode::BypassPermissions,
    };
    match modes.iter().flatten().find(unasked) {
        Some(mode) => refuse("permissions.modes", mode, "which no layer before it gives"),
        None => Ok(()),
    }
}

/// Ordered values: at most the current value.
fn check_at_most<T: Ord + Display>(
    key: &'static str,
    requested: Option<&T>,
    held: &Setting<T>,
) -> TightenResult {
    match requested {
        Some(asked) if *asked > held.value => {
            refuse(key, asked, format!("above the {} of {}", held.value, held.layer))
        }
        _ => Ok(()),
    }
}

/// As [`check_at_most`], for a setting that is unlimited unless a layer sets it: any limit is tighter than
/// none.
fn check_at_most_if_limited<T: Ord + Display>(
    key: &'static str,
    requested: Option<&T>,
    held: Option<&Setting<T>>,
) -> TightenResult {
    held.map_or(Ok(()), |held| check_at_most(key, requested, held))
}

/// Sets: a subset of the current set, if there is one.
fn check_subset(
    key: &'static str,
    requested: Option<&CpusetList>,
    held: Option<&Setting<CpusetList>>,
) -> TightenResult {
    match (requested, held) {
        (Some(asked), Some(held)) if !asked.is_subset_of(&held.value) => {
            refuse(key, asked, format!("which is not within the {} of {}", held.value, held.layer))
        }
        _ => Ok(()),
    }
}

/// Values without an order: equal to the current value.
fn check_equal<T: PartialEq + Display>(
    key: &'static str,
    requested: Option<&T>,
    held: Option<&Setting<T>>,
) -> TightenResult {
    match (requested, held) {
        (None, _) => Ok(()),
        (Some(asked), Some(held)) if *asked == held.value => Ok(()),
        (Some(asked), Some(held)) => {
            refuse(key, asked, format!("other than the {} of {}", held.value, held.layer))
        }
        (Some(asked), None) => refuse(key, asked, "which no layer before it gives"),
    }
}

fn refuse(key: &'static str, requested: &impl Display, relation: impl Into<String>) -> TightenResult {
    Err(Widening { key, requested: requested.to_string(), relation: relation.into() })
}
