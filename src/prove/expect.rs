//! What a policy gives by design, and what it requires.

use super::scene::Scene;
use super::{Attempt, Boundary, Gift};
use crate::spec::policy::effective::EnvRule;
use crate::spec::policy::{Effective, Layer, Network, Profile, Protection, Strength};
use std::path::PathBuf;

/// What is to be expected of a sandbox; the default expects everything.
#[derive(Debug, Default)]
pub struct Expect<'a> {
    policy: Option<&'a Effective>,
}

impl<'a> Expect<'a> {
    /// Of the sandbox that this policy gives.
    pub fn of(policy: &'a Effective) -> Self {
        Expect { policy: Some(policy) }
    }

    /// Who gives by design what this attempt takes, if the policy does.
    pub fn given(&self, attempt: &Attempt, scene: &Scene) -> Option<String> {
        let policy = self.policy?;
        match attempt.gift {
            Gift::Nesting if policy.profile.value == Profile::Nesting => {
                return Some(format!("policy: profile nesting, from {}", policy.profile.layer));
            }
            Gift::HostNetwork if policy.network.value == Network::Host => {
                return Some(format!("policy: network.mode host, from {}", policy.network.layer));
            }
            _ => {}
        }
        shown(policy, attempt, scene)
            .or_else(|| passed(policy, attempt))
            .or_else(|| unprotected(policy, attempt))
    }

    /// Whether the sandbox must not start without this boundary.
    pub fn requires(&self, boundary: Boundary) -> bool {
        let Some(policy) = self.policy else { return true };
        let limits = &policy.limits;
        let named = |layer: &Layer| *layer != Layer::BuiltIn;
        let strength = |protection| policy.strength(protection) == Strength::Require;
        match boundary {
            Boundary::Pids => strength(Protection::Pids) || named(&limits.pids.layer),
            Boundary::Memory => strength(Protection::Memory) || named(&limits.memory.layer),
            Boundary::Cpu => strength(Protection::Cpu) || named(&limits.cpus.layer),
            Boundary::Disk => strength(Protection::Disk) || named(&limits.disk.layer),
            Boundary::Landlock => strength(Protection::Landlock),
            Boundary::LandlockScope => strength(Protection::LandlockScope),
            Boundary::NetworkNamespace => strength(Protection::Network),
            // A sandbox is made of the others.
            _ => true,
        }
    }
}

/// A bind of the policy that shows the path of this attempt where it is on the host.
fn shown(policy: &Effective, attempt: &Attempt, scene: &Scene) -> Option<String> {
    let path = subject(attempt.name, scene)?;
    let bind = policy.files.binds.iter().find(|bind| {
        let (source, destination) = (&bind.value.source, &bind.value.dest);
        path.strip_prefix(source)
            .is_ok_and(|rest| destination.join(rest) == path || rest.as_os_str().is_empty())
    })?;
    Some(format!("policy: files show {}, from {}", bind.value.source.display(), bind.layer))
}

/// The path of the host that an attempt is about.
fn subject(attempt: &str, scene: &Scene) -> Option<PathBuf> {
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
            scene.places.iter().find(|place| place.name == name).map(|place| place.path.clone())
        }
    }
}

/// A variable that the policy passes on.
fn passed(policy: &Effective, attempt: &Attempt) -> Option<String> {
    let names = super::attempts::variables(attempt.name)?;
    let (name, rule) = policy
        .env
        .rules
        .iter()
        .find(|(name, rule)| names.contains(&name.as_str()) && rule.value == EnvRule::Pass)?;
    Some(format!("policy: env passes {name}, from {}", rule.layer))
}

fn unprotected(policy: &Effective, attempt: &Attempt) -> Option<String> {
    let off = !policy.protect.git_config.value && attempt.name.starts_with("git-config");
    off.then(|| format!("policy: protect.git_config is off, from {}", policy.protect.git_config.layer))
}
