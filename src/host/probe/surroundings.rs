//! What explains a refusal: switches of the kernel, security modules, a container around us.

use super::Check;
use std::fs;
use std::path::Path;

/// What of the host decides between two cures of one error. As data, so that the cures can be tested.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// `kernel.apparmor_restrict_unprivileged_userns` is on (Ubuntu 23.10 and later).
    pub apparmor_restricts: bool,
    /// `kernel.unprivileged_userns_clone`; absent outside of Debian and its kin, which means allowed.
    pub unprivileged_userns_clone: Option<u64>,
    /// `user.max_user_namespaces` as this user namespace sees it.
    pub max_user_namespaces: Option<u64>,
    /// A seccomp filter is on this very process.
    pub filtered: bool,
    /// Something says that this is a container.
    pub container: Option<&'static str>,
    /// The root of this process is not that of its mount namespace.
    pub chrooted: bool,
    /// The active security modules, as in `/sys/kernel/security/lsm`.
    pub lsm: Option<String>,
    /// The SELinux mode, when it is there.
    pub selinux: Option<&'static str>,
    /// The `hidepid` option of `/proc`.
    pub hidepid: Option<String>,
}

impl Surroundings {
    /// Reads them from `/proc` and `/sys`.
    pub fn read() -> Self {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        Surroundings {
            apparmor_restricts: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1),
            unprivileged_userns_clone: number("/proc/sys/kernel/unprivileged_userns_clone"),
            max_user_namespaces: number("/proc/sys/user/max_user_namespaces"),
            filtered: fs::read_to_string("/proc/self/status").is_ok_and(|status| {
                status
                    .lines()
                    .any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() != "0"))
            }),
            container: container(),
            chrooted: !mounts.lines().any(|line| line.split(' ').nth(1) == Some("/")),
            lsm: fs::read_to_string("/sys/kernel/security/lsm").ok().map(|text| text.trim().to_owned()),
            selinux: match number("/sys/fs/selinux/enforce") {
                Some(0) => Some("permissive"),
                Some(_) => Some("enforcing"),
                None => None,
            },
            hidepid: hidepid(&mounts),
        }
    }

    /// What of it is worth a line: nothing here stops a start by itself.
    pub fn checks(&self) -> Vec<Check> {
        let mut said = vec![match self.lsm.as_deref() {
            Some(list) => format!("active: {list}"),
            None => "which are active is unknown: securityfs is not mounted".to_owned(),
        }];
        if self.apparmor_restricts {
            said.push("apparmor restricts user namespaces".to_owned());
        }
        if let Some(mode) = self.selinux {
            said.push(format!("selinux is {mode}"));
        }
        let mut checks = vec![Check::ok("security-modules", said.join("; "))];
        checks.push(match self.hidepid.as_deref() {
            None => Check::ok("proc-hidepid", "off: processes of others can be seen on the host"),
            Some(option) => Check::ok("proc-hidepid", format!("{option} on the host's /proc")),
        });
        if let Some(mark) = self.container {
            checks.push(Check::ok("container", format!("saggar runs in a container ({mark})")));
        }
        checks
    }
}

/// A small file that holds one number.
pub(super) fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// What container engines leave for programs to see.
fn container() -> Option<&'static str> {
    const MARKS: [&str; 3] = ["/run/.containerenv", "/.dockerenv", "/run/systemd/container"];
    MARKS
        .into_iter()
        .find(|mark| Path::new(mark).exists())
        .or_else(|| std::env::var_os("KUBERNETES_SERVICE_HOST").map(|_| "KUBERNETES_SERVICE_HOST is set"))
}

/// The `hidepid` option of `/proc` when it is not off (proc(5)).
fn hidepid(mounts: &str) -> Option<String> {
    let proc = mounts.lines().rfind(|line| line.split(' ').nth(1) == Some("/proc"))?;
    let options = proc.split(' ').nth(3)?;
    let off = ["hidepid=0", "hidepid=off"];
    options.split(',').find(|o| o.starts_with("hidepid=") && !off.contains(o)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::hidepid;

    #[test]
    fn hidepid_is_that_of_the_uppermost_proc() {
        let mounts = "proc /proc proc rw,hidepid=2 0 0\nproc /proc proc rw,hidepid=invisible 0 0\n";
        assert_eq!(hidepid(mounts).as_deref(), Some("hidepid=invisible"));
        assert_eq!(hidepid("proc /proc proc rw,hidepid=off 0 0\n"), None);
        assert_eq!(hidepid("proc /x/proc proc rw,hidepid=2 0 0\n"), None);
    }
}
