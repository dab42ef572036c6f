//! Turns the settings of a container's process, the init or one of `exec`, into steps.

use super::step::ContainerStep;
use super::{ContainerFacts, ContainerFilter, invalid};
use crate::plan::path::{c_path, c_string};
use crate::spec::container::{Capabilities, ContainerSpec, IdExtent, Namespace, ProcessSpec};
use saggar_sys::error::{Code, Error, Result};

/// The container, the host and the filter that a process is started with.
pub(super) struct ProcessContext<'a> {
    pub(super) container: &'a ContainerSpec,
    pub(super) facts: &'a ContainerFacts,
    pub(super) filter: Option<&'a ContainerFilter>,
}

/// Adds every step before the search for the program.
pub(super) fn settings(
    process: &ProcessSpec,
    surroundings: &ProcessContext<'_>,
    steps: &mut Vec<ContainerStep>,
    warnings: &mut Vec<String>,
) -> Result<()> {
    steps.extend(process.scheduler.map(ContainerStep::Scheduler));
    steps.extend(process.io_priority.map(|value| ContainerStep::IoPriority { value }));
    steps.extend(process.personality.map(|value| ContainerStep::Personality { value }));
    for &(resource, soft, hard) in &process.rlimits {
        steps.push(ContainerStep::Rlimit { resource, soft, hard });
    }
    steps.push(ContainerStep::Umask { mask: process.umask.unwrap_or(0o022) });
    labels(process, surroundings.facts, steps)?;
    let cwd = c_path(&process.program.cwd)?;
    steps.push(ContainerStep::WorkingDirectory { path: cwd.clone(), as_user: false });
    if process.uid != 0 {
        steps.push(ContainerStep::ChownStreams { uid: process.uid, gid: process.gid });
    }

    let sets = grantable(process.capabilities, surroundings, warnings);
    steps.push(ContainerStep::LimitBoundingSet { keep: sets.bounding });
    steps.push(user_step(process, surroundings, warnings)?);
    steps.push(ContainerStep::SetCapabilities {
        effective: sets.effective,
        permitted: sets.permitted,
        inheritable: sets.inheritable,
        ambient: sets.ambient,
        until_exec: surroundings.filter.is_some() && !process.no_new_privs,
    });
    if process.no_new_privs {
        steps.push(ContainerStep::NoNewPrivs);
    }
    steps.push(ContainerStep::WorkingDirectory { path: cwd, as_user: true });
    let has_home = process.program.env.iter().any(|(name, value)| name == "HOME" && !value.is_empty());
    if !has_home {
        steps.push(ContainerStep::SetHome { uid: process.uid });
    }
    Ok(())
}

fn labels(process: &ProcessSpec, facts: &ContainerFacts, steps: &mut Vec<ContainerStep>) -> Result<()> {
    let missing = |what: &str, lsm: &str| {
        let message = format!("{what} is given, and {lsm} is not enabled on this host");
        Err(Error::new(Code::Unsupported, message).hint(format!("remove {what}, or enable {lsm}")))
    };
    if let Some(profile) = process.apparmor_profile.as_ref().filter(|profile| !profile.is_empty()) {
        if !facts.apparmor {
            return missing("process.apparmorProfile", "AppArmor");
        }
        let value = c_string(&format!("exec {profile}"))?;
        steps.push(ContainerStep::SecurityLabel { file: c_string("apparmor/exec")?, value });
    }
    if let Some(label) = process.selinux_label.as_ref().filter(|label| !label.is_empty()) {
        if !facts.selinux {
            return missing("process.selinuxLabel", "SELinux");
        }
        steps.push(ContainerStep::SecurityLabel { file: c_string("exec")?, value: c_string(label)? });
    }
    Ok(())
}

/// Returns the sets without unavailable capabilities: those that the kernel does not know, that the runtime lacks, or
/// that another set forbids (capabilities(7)). Adds a warning for each.
fn grantable(
    asked: Capabilities,
    surroundings: &ProcessContext<'_>,
    warnings: &mut Vec<String>,
) -> Capabilities {
    let facts = surroundings.facts;
    let in_user_namespace = surroundings.container.namespaces.has(Namespace::User);
    let ours = if in_user_namespace { u64::MAX } else { facts.bounding };
    let mut keep = |set: &str, asked: u64, allowed: u64, why: &str| {
        let lost = asked & !allowed;
        if lost != 0 {
            let names =
                (0..64).filter(|n| lost & (1 << n) != 0).map(capability_name).collect::<Vec<_>>().join(" ");
            warnings.push(format!("process.capabilities.{set}: {names} left out: {why}"));
        }
        asked & allowed
    };
    let all = facts.known_capabilities & ours;
    let cannot = "the kernel does not know it, or the runtime itself has it not";
    let bounding = keep("bounding", asked.bounding, all, cannot);
    let permitted = keep("permitted", asked.permitted, all, cannot);
    let effective = keep("effective", asked.effective, permitted, "it is not in the permitted set");
    let inheritable = keep("inheritable", asked.inheritable, bounding, "it is not in the bounding set");
    let both = permitted & inheritable;
    let ambient = keep("ambient", asked.ambient, both, "it is not both permitted and inheritable");
    Capabilities { bounding, effective, inheritable, permitted, ambient }
}

fn capability_name(number: u64) -> String {
    let known = caps::all().into_iter().find(|capability| u64::from(capability.index()) == number);
    known.map_or_else(|| format!("capability {number}"), |capability| capability.to_string())
}

/// Returns the step that sets the user; in a new user namespace the user must be in the maps, and without a map nothing
/// changes.
fn user_step(
    process: &ProcessSpec,
    surroundings: &ProcessContext<'_>,
    warnings: &mut Vec<String>,
) -> Result<ContainerStep> {
    let container = surroundings.container;
    let new = container.namespaces.new.contains(&Namespace::User);
    let maps = container.id_maps.clone().unwrap_or_default();
    let id = |map: &[IdExtent], id: u32, what: &str, field: &str| {
        let inside = |e: &IdExtent| id >= e.inside && id - e.inside < e.count;
        match map {
            _ if !new => Ok(Some(id)),
            [] if id == 0 => Ok(None),
            map if map.iter().any(inside) => Ok(Some(id)),
            _ => Err(invalid(format!("process.user.{what} {id} is not in linux.{field}"))),
        }
    };
    let uid = id(&maps.uid, process.uid, "uid", "uidMappings")?;
    let gid = id(&maps.gid, process.gid, "gid", "gidMappings")?;
    if process.keep_groups {
        return Ok(ContainerStep::SetUser { uid, gid, groups: None });
    }
    let mut groups = process.groups.clone();
    if !surroundings.facts.setgroups {
        // The process has this group in any case.
        groups.retain(|group| *group != process.gid);
        if new && !groups.is_empty() {
            let message =
                "process.user.additionalGids: an ordinary user's own map does not allow other groups";
            return Err(Error::new(Code::Unsupported, message).hint("give the user a range in /etc/subgid"));
        }
        // The caller created the namespace, and lists all groups of the image's user; it relies on their being ignored.
        if !groups.is_empty() {
            warnings.push(format!(
                "process.user.additionalGids: {groups:?} left out: /proc/self/setgroups is deny"
            ));
            groups.clear();
        }
    }
    Ok(ContainerStep::SetUser { uid, gid, groups: Some(groups) })
}
