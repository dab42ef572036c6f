//! What the plan of a container needs to know of this host and of us.

use super::maps;
use crate::plan::container::{Facts, Hierarchy};
use crate::spec::container::{Container, Namespace, Process};
use crate::sys::caps;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Looks at all of it, a microsecond each; `process` is what will run there, of the container or of exec.
pub(super) fn gather(container: &Container, process: Option<&Process>, hierarchies: Vec<Hierarchy>) -> Facts {
    let (known_capabilities, bounding) = caps::known_and_bounding();
    let wants_apparmor = process.is_some_and(|process| process.apparmor_profile.is_some());
    Facts {
        privileged: caps::has(caps::SYS_ADMIN),
        setgroups: setgroups(container),
        known_capabilities,
        bounding,
        shared: shared(container),
        hierarchies,
        kcore: Path::new("/proc/kcore").exists(),
        selinux: Path::new("/sys/fs/selinux/enforce").exists(),
        apparmor: wants_apparmor && apparmor(),
    }
}

/// Whether groups may be changed in the user namespace of the container; of one that it joins we know nothing.
fn setgroups(container: &Container) -> bool {
    match &container.ids {
        Some(ids) => maps::leave_setgroups(ids),
        None if container.namespaces.has(Namespace::User) => true,
        None => !fs::read_to_string("/proc/self/setgroups").is_ok_and(|text| text.starts_with("deny")),
    }
}

fn apparmor() -> bool {
    fs::read_to_string("/sys/module/apparmor/parameters/enabled").is_ok_and(|text| text.starts_with('Y'))
}

/// Joined namespaces that are our own: there is nothing to join, and what is set in them is set for us.
fn shared(container: &Container) -> std::collections::BTreeSet<Namespace> {
    let joined = container.namespaces.joined.iter();
    joined.filter(|(kind, path)| is_ours(**kind, path)).map(|(kind, _)| *kind).collect()
}

fn is_ours(kind: Namespace, path: &Path) -> bool {
    let id = |path: &Path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    let own = id(&Path::new("/proc/self/ns").join(kind.file()));
    own.is_some() && own == id(path)
}

/// Whether the open namespace of the kind `flag` is the one that we are in.
pub(super) fn is_our_namespace(file: &OwnedFd, flag: u64) -> bool {
    let kind = Namespace::ALL.into_iter().find(|kind| kind.flag() == flag);
    let own = kind.and_then(|kind| fs::metadata(Path::new("/proc/self/ns").join(kind.file())).ok());
    let id = crate::sys::file::identity(file.as_fd()).ok();
    own.zip(id).is_some_and(|(own, id)| (own.dev(), own.ino()) == (id.device, id.inode))
}

/// The CLONE_NEW* flags of the namespaces of a process that are not ours.
pub(super) fn foreign_namespaces(pid: i32) -> u64 {
    let of = |kind: Namespace| Path::new("/proc").join(pid.to_string()).join("ns").join(kind.file());
    Namespace::ALL.into_iter().filter(|kind| !is_ours(*kind, &of(*kind))).map(Namespace::flag).sum()
}
