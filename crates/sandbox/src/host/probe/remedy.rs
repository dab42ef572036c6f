//! Remedies for errors in a given environment: an exact command, or a file and its new content. Does no
//! I/O, so that hosts that are not available to tests can be tested by error number.

use super::environment::ProbeEnvironment;
use saggar_sys::Errno;

const APPARMOR_REMEDY: &str = "install -m 644 /usr/share/saggar/apparmor/saggar /etc/apparmor.d/saggar && \
                        apparmor_parser -r /etc/apparmor.d/saggar (it applies to /usr/bin/saggar)";

const SECCOMP_REMEDY: &str = "a seccomp filter around saggar refuses it: start the container with \
                        --security-opt seccomp=unconfined, or with a profile that allows it";

/// The remedy for a `/proc` of which parts are covered, as in most containers.
pub const MASKED_PROC_REMEDY: &str = "something lies over parts of /proc here: start the container around saggar with \
                        --security-opt systempaths=unconfined (docker), --security-opt unmask=ALL (podman) or procMount: \
                        Unmasked (kubernetes); or use --profile container, if the policy permits it: programs then see \
                        the processes of the container";

const FALLBACK_REMEDY: &str = "see saggar-security(7)";

/// The remedy for a user namespace that cannot be created (user_namespaces(7), clone(2)).
pub fn user_namespace(errno: Errno, environment: &ProbeEnvironment) -> String {
    match errno {
        Errno::ENOSPC => raise_namespace_limit("user"),
        Errno::EUSERS => "saggar runs 32 user namespaces deep: start it further out".into(),
        Errno::EPERM if environment.unprivileged_userns_clone == Some(0) => {
            "sysctl -w kernel.unprivileged_userns_clone=1, and the same line without -w in \
             /etc/sysctl.d/50-saggar.conf"
                .into()
        }
        Errno::EPERM if environment.apparmor_restricts => APPARMOR_REMEDY.into(),
        Errno::EPERM if environment.chrooted => {
            "saggar runs in a chroot, where the kernel makes no user namespace: start it outside".into()
        }
        Errno::EPERM | Errno::EACCES if environment.filtered => SECCOMP_REMEDY.into(),
        Errno::EPERM | Errno::EACCES if environment.selinux == Some("enforcing") => {
            "ausearch -m avc -c saggar shows what SELinux refused; allow user_namespace create for its domain"
                .into()
        }
        Errno::ENOSYS if environment.filtered => SECCOMP_REMEDY.into(),
        Errno::ENOSYS => "boot Linux 5.3 or later: it has clone3".into(),
        Errno::EINVAL => "boot a kernel that was built with CONFIG_USER_NS=y".into(),
        _ => FALLBACK_REMEDY.into(),
    }
}

/// The remedy for another type of namespace; `kind` as in `user.max_<kind>_namespaces`.
pub fn namespace(kind: &str, errno: Errno, environment: &ProbeEnvironment) -> String {
    let remedy = match errno {
        Errno::ENOSPC => raise_namespace_limit(kind),
        Errno::EINVAL => format!("boot a kernel that was built with {}=y", kernel_option(kind)),
        Errno::EPERM if environment.filtered => SECCOMP_REMEDY.into(),
        _ => FALLBACK_REMEDY.into(),
    };
    if kind == "net" { format!("{remedy}; or use --prefer network, which isolates less") } else { remedy }
}

/// The remedy for id maps that the kernel refuses.
pub fn id_maps(errno: Errno, privileged: bool) -> String {
    match (errno, privileged) {
        (Errno::EPERM | Errno::EINVAL, true) => {
            "these ids are not ours to give: saggar runs in a user namespace itself; name a range that \
             /proc/self/uid_map and gid_map hold as sandbox.id_range in /etc/saggar/config.toml, or start it \
             as an ordinary user"
                .into()
        }
        _ => FALLBACK_REMEDY.into(),
    }
}

/// The remedy for the first mount in a new user namespace.
pub(crate) fn first_mount(errno: Errno, environment: &ProbeEnvironment) -> String {
    match errno {
        Errno::EPERM | Errno::EACCES if environment.apparmor_restricts => APPARMOR_REMEDY.into(),
        Errno::EPERM | Errno::EACCES if environment.filtered => SECCOMP_REMEDY.into(),
        Errno::EPERM | Errno::EACCES if environment.container.is_some() => {
            "the container around saggar refuses mounts: start it with --security-opt apparmor=unconfined \
             --security-opt seccomp=unconfined"
                .into()
        }
        _ => newer_kernel(errno, "5.12", environment),
    }
}

/// The remedy for a new `/proc` (the kernel permits it only if the existing one is completely visible).
pub fn proc(errno: Errno, environment: &ProbeEnvironment) -> String {
    match errno {
        Errno::EPERM => MASKED_PROC_REMEDY.into(),
        _ => newer_kernel(errno, "5.8", environment),
    }
}

/// The remedy for a file system whose owners cannot be mapped.
pub fn idmap(errno: Errno, environment: &ProbeEnvironment) -> String {
    match errno {
        Errno::EINVAL => "work on a copy of it on ext4, xfs, btrfs or a tmpfs of Linux 6.3".into(),
        Errno::EPERM => "start saggar as root of the host, not of a container".into(),
        _ => newer_kernel(errno, "5.12", environment),
    }
}

/// The remedy for a system call that older kernels do not have.
pub(crate) fn newer_kernel(errno: Errno, since: &str, environment: &ProbeEnvironment) -> String {
    match errno {
        Errno::ENOSYS | Errno::EPERM if environment.filtered => SECCOMP_REMEDY.into(),
        Errno::ENOSYS => format!("boot Linux {since} or later"),
        _ => FALLBACK_REMEDY.into(),
    }
}

/// The remedy for landlock that the kernel does not support or enable.
pub fn landlock(environment: &ProbeEnvironment) -> String {
    match environment.lsm.as_deref().filter(|list| !list.is_empty()) {
        Some(list) => format!(
            "add lsm=landlock,{list} to GRUB_CMDLINE_LINUX in /etc/default/grub, run update-grub, and boot"
        ),
        None => {
            "boot Linux 5.13 or later, built with CONFIG_SECURITY_LANDLOCK=y, with landlock first in lsm="
                .into()
        }
    }
}

/// The remedy for a session keyring that cannot be created.
pub fn keyring(errno: Errno, environment: &ProbeEnvironment) -> String {
    match errno {
        Errno::EDQUOT => "sysctl -w kernel.keys.maxkeys=2000 kernel.keys.maxbytes=200000".into(),
        Errno::ENOSYS if !environment.filtered => "boot a kernel that was built with CONFIG_KEYS=y".into(),
        _ if environment.filtered => SECCOMP_REMEDY.into(),
        _ => FALLBACK_REMEDY.into(),
    }
}

fn raise_namespace_limit(kind: &str) -> String {
    format!(
        "sysctl -w user.max_{kind}_namespaces=65536, and user.max_{kind}_namespaces=65536 in \
         /etc/sysctl.d/50-saggar.conf (in a container: on its host)"
    )
}

fn kernel_option(kind: &str) -> &'static str {
    match kind {
        "pid" => "CONFIG_PID_NS",
        "net" => "CONFIG_NET_NS",
        "uts" => "CONFIG_UTS_NS",
        "ipc" => "CONFIG_IPC_NS",
        "cgroup" => "CONFIG_CGROUPS",
        _ => "CONFIG_NAMESPACES",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(rows: &[(&str, String)]) -> String {
        rows.iter().map(|(what, cure)| format!("{what}: {cure}\n")).collect()
    }

    /// Hosts that a test cannot run on: Ubuntu's restriction, a container's filter, old kernels.
    #[test]
    fn each_error_has_the_cure_of_its_surroundings() {
        let plain = ProbeEnvironment::default();
        let ubuntu = ProbeEnvironment { apparmor_restricts: true, ..ProbeEnvironment::default() };
        let debian = ProbeEnvironment { unprivileged_userns_clone: Some(0), ..ProbeEnvironment::default() };
        let docker = ProbeEnvironment {
            filtered: true,
            container: Some("/.dockerenv"),
            ..ProbeEnvironment::default()
        };
        let fedora = ProbeEnvironment { selinux: Some("enforcing"), ..ProbeEnvironment::default() };
        let no_landlock =
            ProbeEnvironment { lsm: Some("capability,yama".into()), ..ProbeEnvironment::default() };
        insta::assert_snapshot!(lines(&[
            ("limit of user namespaces", user_namespace(Errno::ENOSPC, &plain)),
            ("debian, switched off", user_namespace(Errno::EPERM, &debian)),
            ("ubuntu, clone refused", user_namespace(Errno::EPERM, &ubuntu)),
            ("docker, clone refused", user_namespace(Errno::EPERM, &docker)),
            ("fedora, clone refused", user_namespace(Errno::EACCES, &fedora)),
            ("old kernel", user_namespace(Errno::ENOSYS, &plain)),
            ("no CONFIG_USER_NS", user_namespace(Errno::EINVAL, &plain)),
            ("ubuntu, first mount", first_mount(Errno::EACCES, &ubuntu)),
            ("docker, first mount", first_mount(Errno::EPERM, &docker)),
            ("old kernel, first mount", first_mount(Errno::ENOSYS, &plain)),
            ("masked /proc", proc(Errno::EPERM, &docker)),
            ("limit of net namespaces", namespace("net", Errno::ENOSPC, &plain)),
            ("no CONFIG_NET_NS", namespace("net", Errno::EINVAL, &plain)),
            ("root of a container", id_maps(Errno::EPERM, true)),
            ("idmap on overlayfs", idmap(Errno::EINVAL, &plain)),
            ("no landlock", landlock(&no_landlock)),
            ("no landlock, no securityfs", landlock(&plain)),
            ("key quota", keyring(Errno::EDQUOT, &plain)),
        ]));
    }
}
