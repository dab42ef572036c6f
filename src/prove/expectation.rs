//! The access that a policy grants by design, and the protection that it requires.

use super::context::ProbeContext;
use super::{Attempt, Boundary, PolicyGrant};
use crate::spec::policy::effective::EnvRule;
use crate::spec::policy::{
    EffectivePolicy, NetworkMode, PolicyLayer, Protection, ProtectionStrength, SandboxProfile,
};
use std::path::PathBuf;

/// The expected protection of a sandbox; the default expects all of it.
#[derive(Debug, Default)]
pub struct Expectation<'a> {
    policy: Option<&'a EffectivePolicy>,
    host: HostGaps,
}

/// What this host does not give to a sandbox of this caller.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostGaps {
    /// The kernel mounts no new `/proc`.
    pub new_proc: bool,
    /// The caller is root and has no ids to give, so that programs have id 0 outside.
    pub own_ids: bool,
}

impl<'a> Expectation<'a> {
    /// The expectation for a sandbox with this policy.
    pub fn of(policy: &'a EffectivePolicy, host: HostGaps) -> Self {
        Expectation { policy: Some(policy), host }
    }

    /// The part of the policy that grants the access of this attempt by design, if any.
    pub fn granted_by(&self, attempt: &Attempt, scene: &ProbeContext) -> Option<String> {
        let policy = self.policy?;
        match attempt.grant {
            PolicyGrant::Nesting if policy.profile.value == SandboxProfile::Nesting => {
                return Some(format!("policy: profile nesting, from {}", policy.profile.layer));
            }
            PolicyGrant::Container => return self.granted_by_container(),
            PolicyGrant::HostNetwork if policy.network.value == NetworkMode::Host => {
                return Some(format!("policy: network.mode host, from {}", policy.network.layer));
            }
            _ => {}
        }
        granting_bind(policy, attempt, scene)
            .or_else(|| granting_variable(policy, attempt))
            .or_else(|| unprotected_reason(policy, attempt))
    }

    /// The profile `container`, if `/proc` is that of the container around saggar: it shows its processes, and takes no
    /// limits of the sandbox's user namespace.
    pub fn granted_by_container(&self) -> Option<String> {
        let profile = &self.policy?.profile;
        let is_container = profile.value == SandboxProfile::Container && self.host.new_proc;
        is_container.then(|| format!("policy: profile container, from {}", profile.layer))
    }

    /// Whether the attempt has to fail: what a sandbox that must not start without its boundary keeps from programs.
    pub fn requires_attempt(&self, attempt: &Attempt) -> bool {
        // The files of what cannot be traced belong to id 0 (proc(5)).
        let by_root_id = ["be-host-root", "init-descriptors", "init-thread-descriptors"];
        let is_lost = self.host.own_ids && by_root_id.contains(&attempt.name);
        !is_lost && self.requires(attempt.boundary)
    }

    /// Whether a sandbox must not start without this boundary.
    pub fn requires(&self, boundary: Boundary) -> bool {
        let Some(policy) = self.policy else { return true };
        let limits = &policy.limits;
        let named = |layer: &PolicyLayer| *layer != PolicyLayer::BuiltIn;
        let strength = |protection| policy.strength(protection) == ProtectionStrength::Require;
        match boundary {
            Boundary::Pids => strength(Protection::Pids) || named(&limits.pids.layer),
            Boundary::Memory => strength(Protection::Memory) || named(&limits.memory.layer),
            Boundary::Cpu => strength(Protection::Cpu) || named(&limits.cpus.layer),
            Boundary::Disk => strength(Protection::Disk) || named(&limits.disk.layer),
            Boundary::Landlock => strength(Protection::Landlock),
            Boundary::LandlockScope => strength(Protection::LandlockScope),
            Boundary::NetworkNamespace => strength(Protection::Network),
            // Every sandbox has the other boundaries.
            _ => true,
        }
    }
}

/// The bind of the policy that shows the path of this attempt as it is on the host.
fn granting_bind(policy: &EffectivePolicy, attempt: &Attempt, scene: &ProbeContext) -> Option<String> {
    let path = host_path_of(attempt.name, scene)?;
    let bind = policy.files.binds.iter().find(|bind| {
        let (source, destination) = (&bind.value.source, &bind.value.destination);
        path.strip_prefix(source)
            .is_ok_and(|rest| destination.join(rest) == path || rest.as_os_str().is_empty())
    })?;
    Some(format!("policy: files show {}, from {}", bind.value.source.display(), bind.layer))
}

/// The host path that an attempt uses.
fn host_path_of(attempt: &str, scene: &ProbeContext) -> Option<PathBuf> {
    match attempt {
        "write-usr" => Some("/usr".into()),
        "write-usr-bin" => Some("/usr/bin".into()),
        "write-etc-ssl" => Some("/etc/ssl".into()),
        "write-program" => Some("/usr/bin/env".into()),
        "reopen-stream" => Some(scene.work.with_file_name("complaint")),
        "host-unix-socket" => Some(scene.secret.with_file_name("socket")),
        _ if attempt.starts_with("outside-file") => Some(scene.secret.clone()),
        _ => {
            let name = attempt.strip_prefix("host-")?;
            scene.probed_paths.iter().find(|place| place.name == name).map(|place| place.path.clone())
        }
    }
}

/// The policy's variable that passes the value to the sandbox.
fn granting_variable(policy: &EffectivePolicy, attempt: &Attempt) -> Option<String> {
    let names = super::attempts::variables(attempt.name)?;
    let (name, rule) = policy
        .env
        .rules
        .iter()
        .find(|(name, rule)| names.contains(&name.as_str()) && rule.value == EnvRule::Pass)?;
    Some(format!("policy: env passes {name}, from {}", rule.layer))
}

fn unprotected_reason(policy: &EffectivePolicy, attempt: &Attempt) -> Option<String> {
    let off = !policy.protect.git_config.value && attempt.name.starts_with("git-config");
    off.then(|| format!("policy: protect.git_config is off, from {}", policy.protect.git_config.layer))
}
