//! Creates and joins namespaces, and checks whether the probe's namespaces are the host's.

use super::super::context::ProbeContext;
use super::super::{Attempt, AttemptFailure, AttemptResult, Boundary, PolicyGrant};
use super::{address_of, discard_value, open};
use crate::sys::disposable_child::DisposableChild;
use crate::sys::process;

/// CLONE_NEWTIME, which libc names for some targets only.
const NEW_TIME: i32 = 0x80;

/// The attempts of this class.
pub(super) const ATTEMPTS: &[Attempt] = &[
    own("own-user-namespace", Boundary::UserNamespace, "Be in the host's user namespace", |_, scene| {
        is_shared(scene, "user")
    }),
    own("own-mount-namespace", Boundary::MountNamespace, "Be in the host's mount namespace", |_, scene| {
        is_shared(scene, "mnt")
    }),
    own("own-pid-namespace", Boundary::PidNamespace, "Be in the host's pid namespace", |_, scene| {
        is_shared(scene, "pid")
    }),
    own("own-ipc-namespace", Boundary::IpcNamespace, "Be in the host's ipc namespace", |_, scene| {
        is_shared(scene, "ipc")
    }),
    own("own-uts-namespace", Boundary::UtsNamespace, "Be in the host's uts namespace", |_, scene| {
        is_shared(scene, "uts")
    }),
    own(
        "own-cgroup-namespace",
        Boundary::CgroupNamespace,
        "Be in the host's cgroup namespace",
        |_, scene| is_shared(scene, "cgroup"),
    ),
    own(
        "own-network-namespace",
        Boundary::NetworkNamespace,
        "Be in the host's network namespace",
        |_, scene| is_shared(scene, "net"),
    )
    .grant(PolicyGrant::HostNetwork),
    new("unshare-user", "Make a user namespace", |child, _| unshare(child, libc::CLONE_NEWUSER))
        .grant(PolicyGrant::Nesting),
    new("unshare-mount", "Make a mount namespace", |child, _| unshare(child, libc::CLONE_NEWNS)),
    new("unshare-network", "Make a network namespace", |child, _| unshare(child, libc::CLONE_NEWNET)),
    new("unshare-pid", "Make a pid namespace", |child, _| unshare(child, libc::CLONE_NEWPID)),
    new("unshare-ipc", "Make an ipc namespace", |child, _| unshare(child, libc::CLONE_NEWIPC)),
    new("unshare-uts", "Make a uts namespace", |child, _| unshare(child, libc::CLONE_NEWUTS)),
    new("unshare-cgroup", "Make a cgroup namespace", |child, _| unshare(child, libc::CLONE_NEWCGROUP)),
    new("unshare-time", "Make a time namespace", |child, _| unshare(child, NEW_TIME)),
    new("unshare-user-network", "Make a user and a network namespace", |child, _| {
        unshare(child, libc::CLONE_NEWUSER | libc::CLONE_NEWNET)
    })
    .grant(PolicyGrant::Nesting),
    new("clone-user", "Start a process in a user namespace", |child, _| {
        clone(child, libc::CLONE_NEWUSER.unsigned_abs().into())
    })
    .grant(PolicyGrant::Nesting),
    new("clone-user-high", "The same with a flag that the kernel ignores", |child, _| {
        clone(child, u64::from(libc::CLONE_NEWUSER.unsigned_abs()) | 1 << 40)
    })
    .grant(PolicyGrant::Nesting),
    new("clone-network", "Start a process in a network namespace", |child, _| {
        clone(child, libc::CLONE_NEWNET.unsigned_abs().into())
    }),
    new("clone3-user", "Start a process in a user namespace by clone3(2)", |child, _| {
        let mut args = [0_u64; 11];
        args[0] = libc::CLONE_NEWUSER.unsigned_abs().into();
        args[4] = libc::SIGCHLD.unsigned_abs().into();
        started(child.call(libc::SYS_clone3, &[address_of(&args), 88])?)
    })
    .grant(PolicyGrant::Nesting),
    new("setns-own", "Enter a namespace that it is in already", |child, _| {
        let file = open(child, c"/proc/self/ns/uts", libc::O_RDONLY)?;
        discard_value(child.call(libc::SYS_setns, &[file.unsigned_abs(), 0]))
    }),
    new("setns-init", "Enter the mount namespace of pid 1", |child, _| {
        // If the probe is itself pid 1, there is no other process to inspect.
        if nix::unistd::getppid().as_raw() == 1 {
            return Err(AttemptFailure::NotTried);
        }
        let file = open(child, c"/proc/1/ns/mnt", libc::O_RDONLY)?;
        discard_value(child.call(libc::SYS_setns, &[file.unsigned_abs(), 0]))
    }),
];

const fn new(
    name: &'static str,
    does: &'static str,
    run: fn(&DisposableChild, &ProbeContext) -> AttemptResult,
) -> Attempt {
    Attempt::new(name, Boundary::Seccomp, does, run)
}

const fn own(
    name: &'static str,
    boundary: Boundary,
    does: &'static str,
    run: fn(&DisposableChild, &ProbeContext) -> AttemptResult,
) -> Attempt {
    Attempt::new(name, boundary, does, run)
}

/// Whether the probe shares a namespace with the sandbox's caller.
fn is_shared(scene: &ProbeContext, kind: &str) -> AttemptResult {
    let Some(host) = scene.namespaces.get(kind) else { return Err(AttemptFailure::NotTried) };
    let own = std::fs::read_link(format!("/proc/self/ns/{kind}")).map_err(|_| AttemptFailure::NoEffect)?;
    if own.to_string_lossy() == host.as_str() { Ok(()) } else { Err(AttemptFailure::NoEffect) }
}

fn unshare(child: &DisposableChild, flags: i32) -> AttemptResult {
    discard_value(child.call(libc::SYS_unshare, &[flags.unsigned_abs().into()]))
}

fn clone(child: &DisposableChild, flags: u64) -> AttemptResult {
    started(child.call(libc::SYS_clone, &[flags | u64::from(libc::SIGCHLD.unsigned_abs())])?)
}

/// Ends the new process at once.
fn started(pid: i64) -> AttemptResult {
    if pid == 0 { process::exit_now(0) } else { Ok(()) }
}
