//! Namespaces, and what can be mounted in them.

use super::surroundings::Surroundings;
use super::{Check, Subject, cure};
use crate::host::owners;
use crate::sys::attempt::{Outcome, attempt};
use crate::sys::file::{self, Resolve};
use crate::sys::mount::{self, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOSUID};
use crate::sys::{Errno, SysResult, process};
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;

/// Kinds beside `user`: name, flag.
const KINDS: [(&str, i32); 6] = [
    ("mnt", libc::CLONE_NEWNS),
    ("pid", libc::CLONE_NEWPID),
    ("ipc", libc::CLONE_NEWIPC),
    ("uts", libc::CLONE_NEWUTS),
    ("net", libc::CLONE_NEWNET),
    ("cgroup", libc::CLONE_NEWCGROUP),
];

/// Every probe of this file.
pub fn checks(subject: &Subject, around: &Surroundings) -> Vec<Check> {
    let mut checks = vec![user_namespace(around)];
    if checks[0].cure.is_some() {
        // Nothing below can be tried without one.
        return checks;
    }
    checks.extend(KINDS.iter().map(|(kind, flag)| namespace(kind, *flag, around)));
    let maps = id_maps(subject);
    let no_maps = maps.cure.is_some();
    checks.push(maps);
    if no_maps {
        // What follows is tried as the inner user.
        return checks;
    }
    checks.push(first_mount(subject, around));
    checks.push(fresh_proc(subject, around));
    checks.extend(idmapped(subject, around));
    checks.push(overlay(subject));
    checks
}

fn flags(more: i32) -> u64 {
    u64::from((libc::CLONE_NEWUSER | more).cast_unsigned())
}

fn user_namespace(around: &Surroundings) -> Check {
    const NAME: &str = "user-namespace";
    let most = match around.max_user_namespaces {
        Some(most) => format!("user.max_user_namespaces is {most}"),
        None => "user.max_user_namespaces cannot be read".to_owned(),
    };
    match attempt(flags(0), |_| Ok(()), || Ok(())) {
        Outcome::Works => Check::ok(NAME, format!("can be made; {most}")),
        failed => {
            let errno = errno(failed);
            let detail = format!("cannot be made: {}; {most}", errno.desc());
            Check::missing(NAME, detail).cure(cure::user_namespace(errno, around))
        }
    }
}

fn id_maps(subject: &Subject) -> Check {
    const NAME: &str = "id-maps";
    let ids = if subject.privileged { "a block of ids is mapped" } else { "the own uid and gid are mapped" };
    let become_inner = || become_inner(subject);
    match attempt(flags(0), |pid| write_maps(pid, subject), become_inner) {
        Outcome::Works => Check::ok(NAME, ids),
        failed => {
            let errno = errno(failed);
            Check::missing(NAME, format!("the kernel does not take them: {}", errno.desc()))
                .cure(cure::id_maps(errno, subject.privileged))
        }
    }
}

/// What `unshare` alone does not show: on Ubuntu the namespace is made, and has no rights.
fn first_mount(subject: &Subject, around: &Surroundings) -> Check {
    const NAME: &str = "first-mount";
    match inside(subject, 0, || new_root().map(drop)) {
        Outcome::Works => Check::ok(NAME, "a tmpfs can be mounted in a new user namespace"),
        failed => {
            let errno = errno(failed);
            let detail = format!("a user namespace is made, and a mount in it fails: {}", errno.desc());
            Check::missing(NAME, detail).cure(cure::first_mount(errno, around))
        }
    }
}

fn namespace(kind: &'static str, flag: i32, around: &Surroundings) -> Check {
    let name = format!("{kind}-namespace");
    match attempt(flags(flag), |_| Ok(()), || Ok(())) {
        Outcome::Works => Check::ok(name, "can be made"),
        failed => {
            let errno = errno(failed);
            Check::missing(name, format!("cannot be made: {}", errno.desc()))
                .cure(cure::namespace(kind, errno, around))
        }
    }
}

fn fresh_proc(subject: &Subject, around: &Surroundings) -> Check {
    const NAME: &str = "fresh-proc";
    let hidden = [(c"hidepid", Some(c"invisible"))];
    let job = || mount::new_filesystem(c"proc", &hidden, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV).map(drop);
    match inside(subject, libc::CLONE_NEWPID, job) {
        Outcome::Works => Check::ok(NAME, "/proc of a new pid namespace can be mounted, with hidepid"),
        failed => {
            let errno = errno(failed);
            Check::missing(NAME, format!("cannot be mounted: {}", errno.desc()))
                .cure(cure::proc(errno, around))
        }
    }
}

/// Where root's sandboxes work: the owners of the tree are mapped into the block.
fn idmapped(subject: &Subject, around: &Surroundings) -> Vec<Check> {
    if !subject.privileged {
        return vec![Check::ok("idmapped-mounts", "not needed: an ordinary user's own ids are mapped")];
    }
    let places = [
        ("workspace", subject.current.as_path()),
        ("sessions", "/var/lib".as_ref()),
        ("tmp", "/tmp".as_ref()),
    ];
    let check = |(what, path): (&str, &Path)| {
        let (name, shown) = (format!("idmapped-mounts-{what}"), path.display());
        let tried = owners::open(path).and_then(|tree| owners::try_to_map(&tree, &subject.uid_map));
        let Err(errno) = tried else {
            return Check::ok(name, format!("the owners of {shown} can be mapped"));
        };
        let mut detail = format!("the owners of {shown} cannot be mapped: {}", errno.desc());
        let mut missing = false;
        if let Some(tree) = owners::unmapped(path) {
            detail = format!("{detail} (file system {})", tree.file_system);
            match tree.never() {
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
        let check = if missing { Check::missing(name, detail) } else { Check::degraded(name, detail) };
        check.cure(cure::idmap(errno, around))
    };
    places.into_iter().map(check).collect()
}

fn overlay(subject: &Subject) -> Check {
    const NAME: &str = "overlayfs";
    let job = || {
        nix::unistd::fchdir(new_root()?)?;
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
    match inside(subject, 0, job) {
        Outcome::Works => Check::ok(NAME, "can be mounted in a user namespace"),
        failed => {
            let errno = errno(failed);
            let cure = match errno {
                Errno::ENODEV => "modprobe overlay, and overlay in /etc/modules-load.d/saggar.conf",
                _ => "boot Linux 5.11 or later, built with CONFIG_OVERLAY_FS",
            };
            Check::degraded(NAME, format!("cannot be mounted in a user namespace: {}", errno.desc()))
                .cure(cure)
        }
    }
}

/// Runs `job` as the sandbox's user in new user and mount namespaces.
fn inside(subject: &Subject, more: i32, job: impl FnOnce() -> SysResult<()>) -> Outcome {
    attempt(
        flags(libc::CLONE_NEWNS | more),
        |pid| write_maps(pid, subject),
        || become_inner(subject).and_then(|()| job()),
    )
}

fn become_inner(subject: &Subject) -> SysResult<()> {
    process::become_user(subject.uid, subject.gid, !subject.deny_setgroups)
}

/// A tmpfs over the root, as a start makes it.
fn new_root() -> SysResult<std::os::fd::OwnedFd> {
    let options = [(c"size", Some(c"65536")), (c"mode", Some(c"0755"))];
    let root = mount::new_filesystem(c"tmpfs", &options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)?;
    mount::attach(root.as_fd(), open(Path::new("/"))?.as_fd())?;
    Ok(root)
}

fn open(path: &Path) -> SysResult<std::os::fd::OwnedFd> {
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| Errno::EINVAL)?;
    file::open(file::cwd(), &path, libc::O_PATH | libc::O_DIRECTORY, 0, Resolve::Ordinary)
}

/// Writes the maps of a child of ours, unreaped, so that the number is surely its.
fn write_maps(pid: i32, subject: &Subject) -> SysResult<()> {
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

/// Why an attempt failed; a signal is a filter's answer.
pub(super) fn errno(outcome: Outcome) -> Errno {
    match outcome {
        Outcome::NoChild(errno) | Outcome::Fails(errno) => errno,
        Outcome::Killed(_) | Outcome::Works => Errno::EPERM,
    }
}
