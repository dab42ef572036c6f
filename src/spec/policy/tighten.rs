//! What a document from a folder that the agent can write may not ask for.
//!
//! The agent may have written it: so it can take away, and never give. Every key has its rule here; the
//! document is taken apart field by field, so that a new key does not compile without one. What is equal
//! to what holds already, or tighter, is taken.

use super::document::{self, Document};
use super::effective::{Effective, EnvRule, HeldRates, Limits, Lock, Permissions};
use super::environment;
use super::hosts::HostRule;
use super::layer::{Layer, Setting};
use super::names::{Network, Part, Strength};
use super::paths::{Access, BindSpec, Home};
use super::permission::PermissionMode;
use super::program::AgentCommand;
use super::provenance;
use super::publish::Publish;
use super::resources::{NumberSet, Rates};
use std::fmt::{self, Display};
use std::path::Path;

/// A key with which a folder's policy asks for more than the layers before it give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Widening {
    /// The key, as `limits.memory`.
    pub(super) key: &'static str,
    /// The value asked for.
    asked: String,
    /// How that relates to what holds.
    relation: String,
}

impl Display for Widening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Widening { key, asked, relation } = self;
        write!(f, "asks for {key} = {asked}, {relation}")
    }
}

/// The end of the sentence, where a folder's policy is meant.
pub(super) const FOLDERS_TIGHTEN: &str = "a policy from the agent's own folder may only tighten";

type Verdict = Result<(), Widening>;

/// Refuses the first key of `asked` that widens what `now` holds. `trees` are the folders whose content stands inside.
pub(super) fn tighten(now: &Effective, asked: &Document, layer: &Layer, trees: &[&Path]) -> Verdict {
    let Document {
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
        permissions,
        sandbox,
    } = asked;

    at_most("profile", profile.as_ref(), &now.profile)?;
    if let Some(part) = locked.first() {
        return widening("locked", part, "which binds people, and is the operator's to say");
    }
    // Choosing the program is not a widening (DECISIONS 26), but it is the agent folder's to choose, and what it
    // chooses stands inside already (DECISIONS 32).
    if matches!(layer, Layer::AgentFolder(_)) {
        check_program(now, agent_cmd.as_ref(), trees)?;
    } else {
        same("agent_cmd", agent_cmd.as_ref(), now.agent_cmd.as_ref())?;
        same("adapter", adapter.as_ref(), now.adapter.as_ref())?;
    }
    check_files(now, files)?;
    check_env(now, env)?;
    check_network(now, network)?;
    check_limits(now, limits)?;
    check_protect(now, protect)?;
    check_protections(now, protections)?;
    let document::Api { socket, upstream, key_file, header, ca_file } = api;
    same("api.socket", socket.as_ref(), now.api_socket.as_ref())?;
    same("api.upstream", upstream.as_ref(), now.api.upstream.as_ref())?;
    same("api.key_file", key_file.as_ref(), now.api.key_file.as_ref())?;
    same("api.header", header.as_ref(), now.api.header.as_ref())?;
    same("api.ca_file", ca_file.as_ref(), now.api.ca_file.as_ref())?;
    let document::Bridge { socket, control, allow_reachable, directory, remembered, spool } = bridge;
    same("bridge.socket", socket.as_ref(), now.bridge_socket.as_ref())?;
    same("bridge.control", control.as_ref(), now.control_socket.as_ref())?;
    if *allow_reachable == Some(true) {
        same("bridge.allow_reachable", allow_reachable.as_ref(), Some(&now.allow_reachable))?;
    }
    same("bridge.directory", directory.as_ref(), now.bridge_directory.as_ref())?;
    same("bridge.remembered", remembered.as_ref(), Some(&now.remembered))?;
    at_most("bridge.spool", spool.as_ref(), &now.spool)?;
    check_permissions(&now.permissions, permissions)?;
    let document::Sandbox { id_range, uid, gid } = sandbox;
    same("sandbox.id_range", id_range.as_ref(), Some(&now.ids.range))?;
    same("sandbox.uid", uid.as_ref(), now.ids.uid.as_ref())?;
    same("sandbox.gid", gid.as_ref(), now.ids.gid.as_ref())
}

/// Refuses the first key of `asked` that widens a part of the policy beyond what held when a layer locked it.
pub(super) fn keep_locked<'a>(now: &'a Effective, asked: &Document) -> Result<(), (Widening, &'a Lock)> {
    now.locked.iter().try_for_each(|lock| {
        let part = only(asked, lock.part);
        tighten(&lock.bounds, &part, &Layer::CommandLine, &[]).map_err(|widening| (widening, lock))
    })
}

/// A part of a document.
fn only(document: &Document, part: Part) -> Document {
    let (all, mut only) = (document.clone(), Document::default());
    match part {
        Part::Agent => (only.agent_cmd, only.adapter) = (all.agent_cmd, all.adapter),
        Part::Api => only.api = all.api,
        Part::Bridge => only.bridge = all.bridge,
        Part::Env => only.env = all.env,
        Part::Files => only.files = all.files,
        Part::Limits => only.limits = all.limits,
        Part::Network => only.network = all.network,
        Part::Permissions => only.permissions = all.permissions,
        Part::Profile => only.profile = all.profile,
        Part::Protect => only.protect = all.protect,
        Part::Protections => only.protections = all.protections,
        Part::Sandbox => only.sandbox = all.sandbox,
    }
    only
}

/// Takes out of the document what only a start of an agent reads, and names it: in a folder that is the workspace
/// of any other command it widens nothing, and is not that command's business.
pub(super) fn leave_out_the_agents(document: &mut Document) -> Vec<&'static str> {
    let agent_cmd = document.agent_cmd.take().map(|_| "agent_cmd");
    let adapter = document.adapter.take().map(|_| "adapter");
    agent_cmd.into_iter().chain(adapter).collect()
}

fn check_program(now: &Effective, asked: Option<&AgentCommand>, trees: &[&Path]) -> Verdict {
    let is_held = |asked: &&AgentCommand| now.agent_cmd.as_ref().is_some_and(|held| held.value == **asked);
    match asked.filter(|asked| !is_held(asked)) {
        Some(asked) => match provenance::objection(now, asked, trees) {
            Some(why) => widening("agent_cmd", asked, why),
            None => Ok(()),
        },
        None => Ok(()),
    }
}

fn check_files(now: &Effective, asked: &document::Files) -> Verdict {
    let document::Files { ro, rw, home, tmp_size, hide } = asked;
    // More hidden paths only take away.
    let _ = hide;
    binds(now, "files.ro", ro, Access::ReadOnly)?;
    binds(now, "files.rw", rw, Access::ReadWrite)?;
    if let Some(home) = home {
        // A home in memory shows nothing and keeps nothing. The session's own directory shows nothing of
        // the host either.
        let held = &now.files.home;
        let tighter = match home {
            Home::Tmp => true,
            Home::Session => matches!(held.value, Home::Directory(_)),
            Home::Directory(_) => false,
        };
        if !tighter {
            same("files.home", Some(home), Some(held))?;
        }
    }
    at_most("files.tmp_size", tmp_size.as_ref(), &now.tmp_size())
}

/// Only a place that is bound already, and not with more access. A path below a bound one is not an
/// equal: it may be a link that the agent made, and would be followed on the host.
fn binds(now: &Effective, key: &'static str, asked: &[BindSpec], access: Access) -> Verdict {
    for spec in asked {
        let held = now.files.binds.iter().find(|held| {
            held.value.source == spec.source && held.value.dest == spec.dest() && held.value.access >= access
        });
        if held.is_none() {
            return widening(key, spec, "which no layer before it gives");
        }
    }
    Ok(())
}

fn check_env(now: &Effective, asked: &document::Env) -> Verdict {
    let document::Env { pass, set, deny } = asked;
    // More denied names only take away.
    let _ = deny;
    for name in pass {
        if now.env.rules.get(name).is_none_or(|rule| rule.value != EnvRule::Pass) {
            return widening("env.pass", name, "which no layer before it passes");
        }
    }
    for (name, value) in set {
        let held = now.env.rules.get(name);
        if held.is_some_and(|held| matches!(&held.value, EnvRule::Set(held) if held == value)) {
            continue;
        }
        // The value stays out of the message: it may be a secret that does not belong into a log.
        if let Some(why) = environment::folder_objection(name) {
            return widening("env.set", name, why);
        }
        if let Some(held) = held.filter(|held| held.layer != Layer::BuiltIn) {
            return widening("env.set", name, format!("which {} rules on", held.layer));
        }
    }
    Ok(())
}

/// Only hosts that can be reached already; where all can be, a folder may name those that it needs.
fn check_network(now: &Effective, asked: &document::NetworkTable) -> Verdict {
    let document::NetworkTable { mode, allow, deny, ask, publish, sockets } = asked;
    // More denied hosts only take away.
    let _ = deny;
    at_most("network.mode", mode.as_ref(), &now.network)?;
    let is_published = |asked: &&Publish| now.publish.iter().any(|held| held.value == **asked);
    if let Some(asked) = publish.iter().find(|asked| !is_published(asked)) {
        return widening("network.publish", asked, "which no layer before it gives");
    }
    let is_shown = |asked: &&BindSpec| {
        let same = |held: &BindSpec| held.source == asked.source && held.dest() == asked.dest();
        now.sockets.iter().any(|held| same(&held.value))
    };
    if let Some(asked) = sockets.iter().find(|asked| !is_shown(asked)) {
        return widening("network.sockets", asked, "which no layer before it gives");
    }
    let holds = |rules: &[Setting<HostRule>], rule: &HostRule| rules.iter().any(|held| held.value == *rule);
    let is_held = |rule: &HostRule| match now.network.value {
        Network::None => false,
        Network::Policy => holds(&now.hosts.allow, rule),
        Network::Host => true,
    };
    if let Some(rule) = allow.iter().find(|rule| !is_held(rule)) {
        return widening("network.allow", rule, "which no layer before it gives");
    }
    // Rules of a layer whose network a later one has closed give nothing.
    let is_asked = |rule: &HostRule| now.network.value == Network::Policy && holds(&now.hosts.ask, rule);
    match ask.iter().find(|rule| !is_held(rule) && !is_asked(rule)) {
        Some(rule) => widening("network.ask", rule, "which no layer before it gives or asks for"),
        None => Ok(()),
    }
}

fn check_limits(now: &Effective, asked: &document::Limits) -> Verdict {
    let document::Limits {
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
        script,
    } = asked;
    let held = &now.limits;
    at_most("limits.memory", memory.as_ref(), &now.limits.memory)?;
    at_most("limits.disk", disk.as_ref(), &now.limits.disk)?;
    at_most("limits.inodes", inodes.as_ref(), &now.limits.inodes)?;
    at_most("limits.fsize", fsize.as_ref(), &now.fsize())?;
    at_most("limits.cpus", cpus.as_ref(), &now.limits.cpus)?;
    at_most("limits.pids", pids.as_ref(), &now.limits.pids)?;
    at_most("limits.nofile", nofile.as_ref(), &now.limits.nofile)?;
    at_most_if("limits.timeout", timeout.as_ref(), held.timeout.as_ref())?;
    at_most("limits.at_timeout", at_timeout.as_ref(), &held.at_timeout)?;
    at_most_if("limits.cpu_time", cpu_time.as_ref(), held.cpu_time.as_ref())?;
    at_most_if("limits.idle", idle.as_ref(), held.idle.as_ref())?;
    at_most("limits.script", script.as_ref(), &held.script)?;
    at_most_if("limits.memory_high", memory_high.as_ref(), held.memory_high.as_ref())?;
    at_most("limits.swap", swap.as_ref(), &held.swap_or_none())?;
    for (page, size) in hugetlb {
        at_most_if("limits.hugetlb", Some(size), held.hugetlb.get(page))?;
    }
    // Without a burst none is given.
    match &held.cpu_burst {
        Some(held) => at_most("limits.cpu_burst", cpu_burst.as_ref(), held)?,
        None => same("limits.cpu_burst", cpu_burst.as_ref(), None)?,
    }
    let default = Setting { value: Limits::WEIGHT, layer: Layer::BuiltIn };
    at_most("limits.cpu_weight", cpu_weight.as_ref(), held.cpu_weight.as_ref().unwrap_or(&default))?;
    at_most("limits.io_weight", io_weight.as_ref(), held.io_weight.as_ref().unwrap_or(&default))?;
    if *cpu_idle == Some(false) && held.cpu_idle.as_ref().is_some_and(|held| held.value) {
        same("limits.cpu_idle", cpu_idle.as_ref(), held.cpu_idle.as_ref())?;
    }
    within("limits.cpuset_cpus", cpuset_cpus.as_ref(), held.cpuset_cpus.as_ref())?;
    within("limits.cpuset_mems", cpuset_mems.as_ref(), held.cpuset_mems.as_ref())?;
    let unlimited = HeldRates::default();
    for (disk, Rates { read_bps, write_bps, read_iops, write_iops }) in io {
        // Of two names of one disk the lower rate holds: another name widens nothing.
        let held = held.io.get(disk).unwrap_or(&unlimited);
        at_most_if("limits.io", read_bps.as_ref(), held.read_bps.as_ref())?;
        at_most_if("limits.io", write_bps.as_ref(), held.write_bps.as_ref())?;
        at_most_if("limits.io", read_iops.as_ref(), held.read_iops.as_ref())?;
        at_most_if("limits.io", write_iops.as_ref(), held.write_iops.as_ref())?;
    }
    Ok(())
}

fn check_protect(now: &Effective, asked: &document::Protect) -> Verdict {
    let document::Protect { git_config, paths, missing } = asked;
    // More protected paths only take away.
    let _ = paths;
    if *git_config == Some(false) {
        same("protect.git_config", git_config.as_ref(), Some(&now.protect.git_config))?;
    }
    at_most("protect.missing", missing.as_ref(), &now.protect.missing)
}

fn check_protections(now: &Effective, asked: &document::Protections) -> Verdict {
    let document::Protections { require, prefer } = asked;
    // To require more only takes away.
    let _ = require;
    for protection in prefer {
        if now.strength(*protection) == Strength::Require {
            let by = now.protections.get(protection).map_or(&Layer::BuiltIn, |held| &held.layer);
            return widening("protections.prefer", protection, format!("which is required by {by}"));
        }
    }
    Ok(())
}

fn check_permissions(now: &Permissions, asked: &document::Permissions) -> Verdict {
    let document::Permissions { allow, deny, ask, timeout, modes } = asked;
    // To deny more, or to ask about more, only takes away.
    let _ = (deny, ask);
    for rule in allow {
        if !now.allow.iter().any(|held| held.value == *rule) {
            return widening("permissions.allow", rule, "which no layer before it gives");
        }
    }
    at_most("permissions.timeout", timeout.as_ref(), &now.timeout)?;
    let unasked = |mode: &&PermissionMode| match &now.modes {
        Some(held) => !held.value.0.contains(mode),
        None => **mode == PermissionMode::BypassPermissions,
    };
    match modes.iter().flatten().find(unasked) {
        Some(mode) => widening("permissions.modes", mode, "which no layer before it gives"),
        None => Ok(()),
    }
}

/// Ordered values: not above what holds.
fn at_most<T: Ord + Display>(key: &'static str, asked: Option<&T>, held: &Setting<T>) -> Verdict {
    match asked {
        Some(asked) if *asked > held.value => {
            widening(key, asked, format!("above the {} of {}", held.value, held.layer))
        }
        _ => Ok(()),
    }
}

/// As [`at_most`], for what has no limit unless a layer names one: any is tighter than none.
fn at_most_if<T: Ord + Display>(key: &'static str, asked: Option<&T>, held: Option<&Setting<T>>) -> Verdict {
    held.map_or(Ok(()), |held| at_most(key, asked, held))
}

/// Sets: nothing that is not in the one that holds, where one does.
fn within(key: &'static str, asked: Option<&NumberSet>, held: Option<&Setting<NumberSet>>) -> Verdict {
    match (asked, held) {
        (Some(asked), Some(held)) if !asked.is_within(&held.value) => {
            widening(key, asked, format!("which is not within the {} of {}", held.value, held.layer))
        }
        _ => Ok(()),
    }
}

/// Values without an order: only what holds already.
fn same<T: PartialEq + Display>(key: &'static str, asked: Option<&T>, held: Option<&Setting<T>>) -> Verdict {
    match (asked, held) {
        (None, _) => Ok(()),
        (Some(asked), Some(held)) if *asked == held.value => Ok(()),
        (Some(asked), Some(held)) => {
            widening(key, asked, format!("other than the {} of {}", held.value, held.layer))
        }
        (Some(asked), None) => widening(key, asked, "which no layer before it gives"),
    }
}

fn widening(key: &'static str, asked: &impl Display, relation: impl Into<String>) -> Verdict {
    Err(Widening { key, asked: asked.to_string(), relation: relation.into() })
}
