//! An error in its surroundings to what cures it: an exact command, or a file and what to write in it.
//! Pure, so that hosts which cannot be had in a test are tested by their error numbers.

use super::surroundings::Surroundings;
use crate::sys::Errno;

const APPARMOR: &str = "install -m 644 /usr/share/saggar/apparmor/saggar /etc/apparmor.d/saggar && \
                        apparmor_parser -r /etc/apparmor.d/saggar (it speaks of /usr/bin/saggar)";

const FILTERED: &str = "a seccomp filter around saggar refuses it: start the container with \
                        --security-opt seccomp=unconfined, or with a profile that allows it";

const SEE: &str = "see saggar-security(7)";

/// A user namespace that cannot be made (user_namespaces(7), clone(2)).
pub fn user_namespace(errno: Errno, around: &Surroundings) -> String {
    match errno {
        Errno::ENOSPC => raise("user"),
        Errno::EUSERS => "saggar runs 32 user namespaces deep: start it further out".into(),
        Errno::EPERM if around.unprivileged_userns_clone == Some(0) => {
            "sysctl -w kernel.unprivileged_userns_clone=1, and the same line without -w in \
             /etc/sysctl.d/50-saggar.conf"
                .into()
        }
        Errno::EPERM if around.apparmor_restricts => APPARMOR.into(),
        Errno::EPERM if around.chrooted => {
            "saggar runs in a chroot, where the kernel makes no user namespace: start it outside".into()
        }
        Errno::EPERM | Errno::EACCES if around.filtered => FILTERED.into(),
        Errno::EPERM | Errno::EACCES if around.selinux == Some("enforcing") => {
            "ausearch -m avc -c saggar says what SELinux refused; allow user_namespace create for its domain"
                .into()
        }
        Errno::ENOSYS if around.filtered => FILTERED.into(),
        Errno::ENOSYS => "boot Linux 5.3 or later: it has clone3".into(),
        Errno::EINVAL => "boot a kernel that was built with CONFIG_USER_NS=y".into(),
        _ => SEE.into(),
    }
}

/// A namespace of another kind; `kind` as in `user.max_<kind>_namespaces`.
pub fn namespace(kind: &str, errno: Errno, around: &Surroundings) -> String {
    let cure = match errno {
        Errno::ENOSPC => raise(kind),
        Errno::EINVAL => format!("boot a kernel that was built with {}=y", config(kind)),
        Errno::EPERM if around.filtered => FILTERED.into(),
        _ => SEE.into(),
    };
    if kind == "net" { format!("{cure}; or say --prefer network, and have less of a wall") } else { cure }
}

/// Id maps that the kernel does not take.
pub fn id_maps(errno: Errno, privileged: bool) -> String {
    match (errno, privileged) {
        (Errno::EPERM | Errno::EINVAL, true) => {
            "these ids are not ours to give: saggar runs in a user namespace itself; name a range that \
             /proc/self/uid_map and gid_map hold as sandbox.id_range in /etc/saggar/config.toml, or start it \
             as an ordinary user"
                .into()
        }
        _ => SEE.into(),
    }
}

/// The first mount in a user namespace that could be made.
pub fn first_mount(errno: Errno, around: &Surroundings) -> String {
    match errno {
        Errno::EPERM | Errno::EACCES if around.apparmor_restricts => APPARMOR.into(),
        Errno::EPERM | Errno::EACCES if around.filtered => FILTERED.into(),
        Errno::EPERM | Errno::EACCES if around.container.is_some() => {
            "the container around saggar refuses mounts: start it with --security-opt apparmor=unconfined \
             --security-opt seccomp=unconfined"
                .into()
        }
        _ => new_call(errno, "5.12", around),
    }
}

/// A fresh `/proc` (the kernel gives it only where the present one is wholly visible).
pub fn proc(errno: Errno, around: &Surroundings) -> String {
    match errno {
        Errno::EPERM => "something lies over parts of /proc here: start the container around saggar with \
                         --security-opt systempaths=unconfined (docker), --security-opt unmask=ALL (podman) \
                         or procMount: Unmasked (kubernetes)"
            .into(),
        _ => new_call(errno, "5.8", around),
    }
}

/// A file system whose owners cannot be mapped.
pub fn idmap(errno: Errno, around: &Surroundings) -> String {
    match errno {
        Errno::EINVAL => "work on a copy of it on ext4, xfs, btrfs or a tmpfs of Linux 6.3".into(),
        Errno::EPERM => "start saggar as root of the host, not of a container".into(),
        _ => new_call(errno, "5.12", around),
    }
}

/// A call that older kernels lack.
pub fn new_call(errno: Errno, since: &str, around: &Surroundings) -> String {
    match errno {
        Errno::ENOSYS | Errno::EPERM if around.filtered => FILTERED.into(),
        Errno::ENOSYS => format!("boot Linux {since} or later"),
        _ => SEE.into(),
    }
}

/// Landlock that the kernel lacks or was not told to use.
pub fn landlock(around: &Surroundings) -> String {
    match around.lsm.as_deref().filter(|list| !list.is_empty()) {
        Some(list) => format!(
            "add lsm=landlock,{list} to GRUB_CMDLINE_LINUX in /etc/default/grub, run update-grub, and boot"
        ),
        None => {
            "boot Linux 5.13 or later, built with CONFIG_SECURITY_LANDLOCK=y, with landlock first in lsm="
                .into()
        }
    }
}

/// A session keyring that cannot be had.
pub fn keyring(errno: Errno, around: &Surroundings) -> String {
    match errno {
        Errno::EDQUOT => "sysctl -w kernel.keys.maxkeys=2000 kernel.keys.maxbytes=200000".into(),
        Errno::ENOSYS if !around.filtered => "boot a kernel that was built with CONFIG_KEYS=y".into(),
        _ if around.filtered => FILTERED.into(),
        _ => SEE.into(),
    }
}

fn raise(kind: &str) -> String {
    format!(
        "sysctl -w user.max_{kind}_namespaces=65536, and user.max_{kind}_namespaces=65536 in \
         /etc/sysctl.d/50-saggar.conf (in a container: on its host)"
    )
}

fn config(kind: &str) -> &'static str {
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

    /// Hosts that a test cannot be on: Ubuntu's restriction, a container's filter, old kernels.
    #[test]
    fn each_error_has_the_cure_of_its_surroundings() {
        let plain = Surroundings::default();
        let ubuntu = Surroundings { apparmor_restricts: true, ..Surroundings::default() };
        let debian = Surroundings { unprivileged_userns_clone: Some(0), ..Surroundings::default() };
        let docker =
            Surroundings { filtered: true, container: Some("/.dockerenv"), ..Surroundings::default() };
        let fedora = Surroundings { selinux: Some("enforcing"), ..Surroundings::default() };
        let no_landlock = Surroundings { lsm: Some("capability,yama".into()), ..Surroundings::default() };
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
