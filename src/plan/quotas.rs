//! What the user namespace of a sandbox may have of what the kernel counts to its starter (`user.max_*`, namespaces(7)
//! and inotify(7)): a share of what the starter may have, so that programs that take all they get leave the rest.

use super::step::Step;
use super::{below_root, c_string};
use crate::error::Result;
use crate::host::Quotas;
use crate::spec::Profile;
use std::path::Path;

/// Instances of inotify that are not counted among what is shared out.
const RESERVE: u64 = 16;
/// What of the rest one sandbox gets. Several run at once, and no limit holds for all of them together.
const SHARE: u64 = 4;
/// Namespaces that a sandbox has itself, and some that programs make.
const LEAST_NAMESPACES: u64 = 16;
/// Those that programs of the profile nesting can make.
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

/// The steps that set them in a proc that is mounted there, and not yet read-only.
///
/// # Errors
/// [`crate::error::Code::Invalid`] for a path that cannot be mounted.
pub(super) fn steps(quotas: &Quotas, profile: Profile, proc: &Path) -> Result<Vec<Step>> {
    let mut limits = Vec::new();
    if let Some(instances) = quotas.inotify_instances {
        limits.push(("inotify_instances", (instances.saturating_sub(RESERVE) / SHARE).max(1)));
    }
    if let Some(watches) = quotas.inotify_watches {
        limits.push(("inotify_watches", watches / 2));
    }
    if let (Profile::Nesting, Some(namespaces)) = (profile, quotas.user_namespaces) {
        let most = (namespaces / SHARE).max(LEAST_NAMESPACES);
        limits.extend(NAMESPACES.map(|name| (name, most)));
    }
    let step = |(name, most): (&str, u64)| {
        let path = below_root(&proc.join(format!("sys/user/max_{name}")))?;
        Ok(Step::Quota { path, most: c_string(&most.to_string())? })
    };
    limits.into_iter().map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(quotas: &Quotas, profile: Profile) -> Vec<String> {
        steps(quotas, profile, Path::new("/proc")).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_sandbox_gets_a_share_and_its_starter_keeps_the_rest() {
        let quotas =
            Quotas { inotify_instances: Some(128), inotify_watches: Some(8192), user_namespaces: Some(8) };
        let strict = [
            "write 28 to /proc/sys/user/max_inotify_instances",
            "write 4096 to /proc/sys/user/max_inotify_watches",
        ];
        assert_eq!(words(&quotas, Profile::Strict), strict);
        let nesting = words(&quotas, Profile::Nesting);
        assert_eq!(nesting.len(), strict.len() + NAMESPACES.len());
        assert_eq!(nesting[2], "write 16 to /proc/sys/user/max_user_namespaces");
        assert_eq!(words(&Quotas::default(), Profile::Nesting), [""; 0]);
    }
}
