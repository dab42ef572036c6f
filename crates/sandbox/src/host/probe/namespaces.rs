//! Probes namespaces, and the mounts that are possible in them.

use super::environment::ProbeEnvironment;
use super::{CheckStatus, HostCheck, ProbeSubject, remedy};
use crate::host::idmap_support;
use saggar_sys::attempt::{AttemptOutcome, attempt};
use saggar_sys::file::{self, Resolve};
use saggar_sys::mount::{self, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOSUID};
use saggar_sys::{Errno, SysResult, process};
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;

/// Types of namespaces other than `user`: name, flag.
const NAMESPACE_KINDS: [(&str, i32); 6] = [
    ("mnt", libc::CLONE_NEWNS),
    ("pid", libc::CLONE_NEWPID),
    ("ipc", libc::CLONE_NEWIPC),
    ("uts", libc::CLONE_NEWUTS),
    ("net", libc::CLONE_NEWNET),
    ("cgroup", libc::CLONE_NEWCGROUP),
];

/// Runs all probes of this file.
pub(crate) fn namespace_checks(subject: &ProbeSubject, environment: &ProbeEnvironment) -> Vec<HostCheck> {
    let mut checks = vec![check_user_namespace(environment)];
    if checks[0].remedy.is_some() {
        // All later probes need a user namespace.
        return checks;
    }
    checks.extend(NAMESPACE_KINDS.iter().map(|(kind, flag)| check_namespace(kind, *flag, environment)));
    let maps = check_id_maps(subject);
    let no_maps = maps.status == CheckStatus::Missing;
    checks.push(maps);
    if no_maps {
        // All later probes run as the sandbox's user.
        return checks;
    }
    checks.push(check_first_mount(subject, environment));
    checks.push(check_fresh_proc(subject, environment));
    checks.extend(check_idmapped_mounts(subject, environment));
    checks.push(check_overlay(subject));
    checks
}

fn flags(more: i32) -> u64 {
    u64::from((libc::CLONE_NEWUSER | more).cast_unsigned())
}

fn check_user_namespace(environment: &ProbeEnvironment) -> HostCheck {
    const NAME: &str = "user-namespace";
    let most = match environment.max_user_namespaces {
        Some(most) => format!("user.max_user_namespaces is {most}"),
        None => "user.max_user_namespaces cannot be read".to_owned(),
    };
    match attempt(flags(0), |_| Ok(()), || Ok(())) {
        AttemptOutcome::Works => HostCheck::ok(NAME, format!("can be made; {most}")),
        failed => {
            let errno = attempt_errno(failed);
            let detail = format!("cannot be made: {}; {most}", errno.desc());
            HostCheck::missing(NAME, detail).with_remedy(remedy::user_namespace(errno, environment))
        }
    }
}

fn check_id_maps(subject: &ProbeSubject) -> HostCheck {
    const NAME: &str = "id-maps";
    let ids = if subject.privileged { "a block of ids is mapped" } else { "the own uid and gid are mapped" };
    let become_inner = || become_inner(subject);
    match attempt(flags(0), |pid| write_maps(pid, subject), become_inner) {
        AttemptOutcome::Works if !subject.privileged && nix::unistd::geteuid().is_root() => {
            HostCheck::degraded(
                NAME,
                "this is root without CAP_SYS_ADMIN: programs have its user id 0 outside",
            )
            .with_remedy("start saggar as an ordinary user: --user 1000 of docker run and podman run")
        }
        AttemptOutcome::Works => HostCheck::ok(NAME, ids),
        failed => {
            let errno = attempt_errno(failed);
            HostCheck::missing(NAME, format!("the kernel does not take them: {}", errno.desc()))
                .with_remedy(remedy::id_maps(errno, subject.privileged))
        }
    }
}

/// The first mount in a new user namespace. On Ubuntu, unshare(2) alone succeeds, but the namespace has no
/// capabilities.
fn check_first_mount(subject: &ProbeSubject, environment: &ProbeEnvironment) -> HostCheck {
    const NAME: &str = "first-mount";
    match attempt_in_namespaces(subject, 0, || mount_new_root().map(drop)) {
        AttemptOutcome::Works => HostCheck::ok(NAME, "a tmpfs can be mounted in a new user namespace"),
        failed => {
            let errno = attempt_errno(failed);
            let detail = format!("a user namespace is made, and a mount in it fails: {}", errno.desc());
            HostCheck::missing(NAME, detail).with_remedy(remedy::first_mount(errno, environment))
        }
    }
}

fn check_namespace(kind: &'static str, flag: i32, environment: &ProbeEnvironment) -> HostCheck {
    let name = format!("{kind}-namespace");
    match attempt(flags(flag), |_| Ok(()), || Ok(())) {
        AttemptOutcome::Works => HostCheck::ok(name, "can be made"),
        failed => {
            let errno = attempt_errno(failed);
            HostCheck::missing(name, format!("cannot be made: {}", errno.desc()))
                .with_remedy(remedy::namespace(kind, errno, environment))
        }
    }
}

fn check_fresh_proc(subject: &ProbeSubject, environment: &ProbeEnvironment) -> HostCheck {
    const NAME: &str = "fresh-proc";
    let hidden = [(c"hidepid", Some(c"invisible"))];
    let job = || mount::new_filesystem(c"proc", &hidden, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV).map(drop);
    match attempt_in_namespaces(subject, libc::CLONE_NEWPID, job) {
        AttemptOutcome::Works => {
            HostCheck::ok(NAME, "/proc of a new pid namespace can be mounted, with hidepid")
        }
        failed => {
            let errno = attempt_errno(failed);
            HostCheck::missing(NAME, format!("cannot be mounted: {}", errno.desc()))
                .with_remedy(remedy::proc(errno, environment))
        }
    }
}

/// For root: whether the owners of the trees that sandboxes use can be mapped to the block of ids.
fn check_idmapped_mounts(subject: &ProbeSubject, environment: &ProbeEnvironment) -> Vec<HostCheck> {
    if !subject.privileged {
        return vec![HostCheck::ok("idmapped-mounts", "not needed: an ordinary user's own ids are mapped")];
    }
    let places = [
        ("workspace", subject.current_directory.as_path()),
        ("sessions", "/var/lib".as_ref()),
        ("tmp", "/tmp".as_ref()),
    ];
    let check = |(what, path): (&str, &Path)| {
        let (name, shown) = (format!("idmapped-mounts-{what}"), path.display());
        let tried =
            idmap_support::open_path(path).and_then(|tree| idmap_support::try_idmap(&tree, &subject.uid_map));
        let Err(errno) = tried else {
            return HostCheck::ok(name, format!("the owners of {shown} can be mapped"));
        };
        let mut detail = format!("the owners of {shown} cannot be mapped: {}", errno.desc());
        let mut missing = false;
        if let Some(tree) = idmap_support::find_unmappable(path) {
            detail = format!("{detail} (file system {})", tree.filesystem);
            match tree.owner_id_obstacle() {
                None => {
                    detail = format!("{detail}; sandboxes that work there have its owner's id, {}", tree.uid)
                }
                Some(why) if what == "workspace" => {
                    detail = format!("{detail}; {why}: sandboxes cannot work there");
                    missing = true;
                }
                Some(_) => {}
            }
        }
        let check =
            if missing { HostCheck::missing(name, detail) } else { HostCheck::degraded(name, detail) };
        check.with_remedy(remedy::idmap(errno, environment))
    };
    places.into_iter().map(check).collect()
}

fn check_overlay(subject: &ProbeSubject) -> HostCheck {
    const NAME: &str = "overlayfs";
    let job = || {
        nix::unistd::fchdir(mount_new_root()?)?;
        for name in [c"lower", c"upper", c"work"] {
            file::mkdir(file::cwd(), name, 0o755)?;
        }
        let options = [
            (c"lowerdir", Some(c"lower")),
            (c"upperdir", Some(c"upper")),
            (c"workdir", Some(c"work")),
            (c"userxattr", None),
        ];
        mount::new_filesystem(c"overlay", &options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV).map(drop)
    };
    match attempt_in_namespaces(subject, 0, job) {
        AttemptOutcome::Works => HostCheck::ok(NAME, "can be mounted in a user namespace"),
        failed => {
            let errno = attempt_errno(failed);
            let remedy = match errno {
                Errno::ENODEV => "modprobe overlay, and overlay in /etc/modules-load.d/saggar.conf",
                _ => "boot Linux 5.11 or later, built with CONFIG_OVERLAY_FS",
            };
            HostCheck::degraded(NAME, format!("cannot be mounted in a user namespace: {}", errno.desc()))
                .with_remedy(remedy)
        }
    }
}

/// Runs `job` as the sandbox's user in new user and mount namespaces.
fn attempt_in_namespaces(
    subject: &ProbeSubject,
    more: i32,
    operation: impl FnOnce() -> SysResult<()>,
) -> AttemptOutcome {
    attempt(
        flags(libc::CLONE_NEWNS | more),
        |pid| write_maps(pid, subject),
        || become_inner(subject).and_then(|()| operation()),
    )
}

fn become_inner(subject: &ProbeSubject) -> SysResult<()> {
    process::become_user(subject.uid, subject.gid, !subject.deny_setgroups)
}

/// Mounts a tmpfs over the root, as a start does.
fn mount_new_root() -> SysResult<std::os::fd::OwnedFd> {
    let options = [(c"size", Some(c"65536")), (c"mode", Some(c"0755"))];
    let root = mount::new_filesystem(c"tmpfs", &options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)?;
    mount::attach(root.as_fd(), open_directory(Path::new("/"))?.as_fd())?;
    Ok(root)
}

fn open_directory(path: &Path) -> SysResult<std::os::fd::OwnedFd> {
    let path = file::c_path(path)?;
    file::open(file::cwd(), &path, libc::O_PATH | libc::O_DIRECTORY, 0, Resolve::Ordinary)
}

/// Writes the id maps of a child process. It is not reaped yet, so its pid cannot be reused.
fn write_maps(pid: i32, subject: &ProbeSubject) -> SysResult<()> {
    let write = |name: &str, text: &str| fs::write(format!("/proc/{pid}/{name}"), text).map_err(from_io);
    if subject.deny_setgroups {
        write("setgroups", "deny")?;
    }
    write("gid_map", &subject.gid_map)?;
    write("uid_map", &subject.uid_map)
}

fn from_io(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

/// The errno of a failed attempt. A signal means that a seccomp filter killed it.
pub(super) fn attempt_errno(outcome: AttemptOutcome) -> Errno {
    match outcome {
        AttemptOutcome::NoChild(errno) | AttemptOutcome::Fails(errno) => errno,
        AttemptOutcome::Killed(_) | AttemptOutcome::Works => Errno::EPERM,
    }
}
