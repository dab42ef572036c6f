//! Limits of a sandbox's user namespace on what the kernel also counts for the user that started it (`user.max_*`,
//! namespaces(7) and inotify(7)): a share of that user's limits, so that programs that use all of it leave the rest.

use super::step::AgentStep;
use crate::host::UserLimits;
use crate::plan::path::{below_root, c_string};
use crate::spec::SandboxProfile;
use saggar_sys::error::Result;
use std::path::Path;

/// Instances of inotify that are set aside before the rest is shared.
const RESERVE: u64 = 16;
/// The divisor for the share of one sandbox. Several run at once, and no limit applies to all of them together.
const SHARE_DIVISOR: u64 = 4;
/// Namespaces of the sandbox itself, and some for programs.
const MIN_NAMESPACES: u64 = 16;
/// Namespaces that programs of the profile nesting can make.
const NAMESPACES: [&str; 8] = [
    "user_namespaces",
    "mnt_namespaces",
    "pid_namespaces",
    "net_namespaces",
    "ipc_namespaces",
    "uts_namespaces",
    "cgroup_namespaces",
    "time_namespaces",
];

/// Returns the steps that set the limits in a procfs that is mounted and not yet read-only.
///
/// # Errors
/// [`saggar_sys::error::Code::Invalid`] for a path that cannot be mounted.
pub(super) fn steps(quotas: &UserLimits, profile: SandboxProfile, proc: &Path) -> Result<Vec<AgentStep>> {
    let mut limits = Vec::new();
    if let Some(instances) = quotas.inotify_instances {
        limits.push(("inotify_instances", (instances.saturating_sub(RESERVE) / SHARE_DIVISOR).max(1)));
    }
    if let Some(watches) = quotas.inotify_watches {
        limits.push(("inotify_watches", watches / 2));
    }
    if let (SandboxProfile::Nesting, Some(namespaces)) = (profile, quotas.user_namespaces) {
        let most = (namespaces / SHARE_DIVISOR).max(MIN_NAMESPACES);
        limits.extend(NAMESPACES.map(|name| (name, most)));
    }
    let step = |(name, most): (&str, u64)| {
        let path = below_root(&proc.join(format!("sys/user/max_{name}")))?;
        Ok(AgentStep::NamespaceLimit { path, limit: c_string(&most.to_string())? })
    };
    limits.into_iter().map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(quotas: &UserLimits, profile: SandboxProfile) -> Vec<String> {
        steps(quotas, profile, Path::new("/proc")).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_sandbox_gets_a_share_and_its_starter_keeps_the_rest() {
        let quotas = UserLimits {
            inotify_instances: Some(128),
            inotify_watches: Some(8192),
            user_namespaces: Some(8),
        };
        let strict = [
            "write 28 to /proc/sys/user/max_inotify_instances",
            "write 4096 to /proc/sys/user/max_inotify_watches",
        ];
        assert_eq!(words(&quotas, SandboxProfile::Strict), strict);
        let nesting = words(&quotas, SandboxProfile::Nesting);
        assert_eq!(nesting.len(), strict.len() + NAMESPACES.len());
        assert_eq!(nesting[2], "write 16 to /proc/sys/user/max_user_namespaces");
        assert_eq!(words(&UserLimits::default(), SandboxProfile::Nesting), [""; 0]);
    }
}
