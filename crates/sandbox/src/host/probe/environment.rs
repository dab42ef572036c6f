//! Causes of a failure: kernel settings, security modules, an outer container.

use super::HostCheck;
use crate::host::processes;
use std::fs;
use std::path::Path;

/// The facts about the host that determine which remedy applies to an error. They are data, so that
/// remedies can be tested.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProbeEnvironment {
    /// Whether `kernel.apparmor_restrict_unprivileged_userns` is on (Ubuntu 23.10 and later).
    pub apparmor_restricts: bool,
    /// `kernel.unprivileged_userns_clone`; `None` outside of Debian and its derivatives, which means
    /// allowed.
    pub unprivileged_userns_clone: Option<u64>,
    /// `user.max_user_namespaces` as seen in this user namespace.
    pub max_user_namespaces: Option<u64>,
    /// Whether this process has a seccomp filter.
    pub filtered: bool,
    /// The evidence that this is a container, if there is any.
    pub container: Option<&'static str>,
    /// Whether the root of this process differs from that of its mount namespace.
    pub chrooted: bool,
    /// The active security modules, as in `/sys/kernel/security/lsm`.
    pub lsm: Option<String>,
    /// The SELinux mode, if SELinux is active.
    pub selinux: Option<&'static str>,
    /// The `hidepid` option of `/proc`.
    pub hidepid: Option<String>,
}

impl ProbeEnvironment {
    /// Reads the facts from `/proc` and `/sys`.
    pub fn detect() -> Self {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        ProbeEnvironment {
            apparmor_restricts: read_number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
                == Some(1),
            unprivileged_userns_clone: read_number("/proc/sys/kernel/unprivileged_userns_clone"),
            max_user_namespaces: read_number("/proc/sys/user/max_user_namespaces"),
            filtered: fs::read_to_string("/proc/self/status").is_ok_and(|status| {
                status
                    .lines()
                    .any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() != "0"))
            }),
            container: container_marker(),
            chrooted: !mounts.lines().any(|line| line.split(' ').nth(1) == Some("/")),
            lsm: fs::read_to_string("/sys/kernel/security/lsm").ok().map(|text| text.trim().to_owned()),
            selinux: match read_number("/sys/fs/selinux/enforce") {
                Some(0) => Some("permissive"),
                Some(_) => Some("enforcing"),
                None => None,
            },
            hidepid: processes::hidepid_option(&mounts),
        }
    }

    /// Facts worth reporting as checks. None of them alone prevents a start.
    pub fn checks(&self) -> Vec<HostCheck> {
        let mut facts = vec![match self.lsm.as_deref() {
            Some(list) => format!("active: {list}"),
            None => "which are active is unknown: securityfs is not mounted".to_owned(),
        }];
        if self.apparmor_restricts {
            facts.push("apparmor restricts user namespaces".to_owned());
        }
        if let Some(mode) = self.selinux {
            facts.push(format!("selinux is {mode}"));
        }
        let mut checks = vec![HostCheck::ok("security-modules", facts.join("; "))];
        checks.push(match self.hidepid.as_deref() {
            None => HostCheck::ok("proc-hidepid", "off: processes of others can be seen on the host"),
            Some(option) => HostCheck::ok("proc-hidepid", format!("{option} on the host's /proc")),
        });
        if let Some(mark) = self.container {
            checks.push(HostCheck::ok("container", format!("saggar runs in a container ({mark})")));
        }
        checks
    }
}

/// Reads a small file that contains one number.
pub(super) fn read_number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The marker of a container engine that programs can see, if there is one.
fn container_marker() -> Option<&'static str> {
    const MARKS: [&str; 3] = ["/run/.containerenv", "/.dockerenv", "/run/systemd/container"];
    MARKS
        .into_iter()
        .find(|mark| Path::new(mark).exists())
        .or_else(|| std::env::var_os("KUBERNETES_SERVICE_HOST").map(|_| "KUBERNETES_SERVICE_HOST is set"))
}
