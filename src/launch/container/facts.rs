//! What the plan of a container needs to know of this host and of us.

use super::maps;
use crate::plan::container::{Facts, Hierarchy};
use crate::spec::container::{Container, Namespace};
use crate::sys::caps;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Looks at all of it, a microsecond each.
pub(super) fn gather(container: &Container, hierarchies: Vec<Hierarchy>) -> Facts {
    let (known_capabilities, bounding) = caps::known_and_bounding();
    let labelled = container.process.as_ref();
    let wants_apparmor = labelled.is_some_and(|process| process.apparmor_profile.is_some());
    Facts {
        privileged: caps::has(caps::SYS_ADMIN),
        setgroups: container.ids.as_ref().is_none_or(maps::leave_setgroups),
        known_capabilities,
        bounding,
        shared: shared(container),
        hierarchies,
        kcore: Path::new("/proc/kcore").exists(),
        selinux: Path::new("/sys/fs/selinux/enforce").exists(),
        apparmor: wants_apparmor && apparmor(),
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
