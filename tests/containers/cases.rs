//! The cases: what each is called, who runs it, and the function.

use super::Caller::{self, Ordinary, Root};
use super::{files, life, mounts, namespaces, process};

/// A case runs as each of these callers.
type Case = (&'static str, &'static [Caller], fn(Caller));

const BOTH: &[Caller] = &[Root, Ordinary];
const ROOT: &[Caller] = &[Root];

pub(crate) const ALL: &[Case] = &[
    ("namespaces and the host name are its own", BOTH, namespaces::own),
    ("root maps a range of ids and opens sources itself", ROOT, namespaces::mapped),
    ("namespaces are joined", BOTH, namespaces::joined),
    ("a namespace of another kind is refused", BOTH, namespaces::wrong_kind),
    ("clocks have offsets", BOTH, namespaces::clocks),
    ("network devices move with their addresses", ROOT, namespaces::net_devices),
    ("a user namespace without a group map works", BOTH, namespaces::no_group_map),
    ("a container without a mount namespace is a chroot", ROOT, namespaces::chroot),
    ("default devices and links are there", BOTH, files::devices),
    ("paths are masked and read-only", BOTH, files::masked),
    ("mounts have their attributes", BOTH, files::attributes),
    ("mount points are made inside the root only", BOTH, files::mount_points),
    ("a tmpfs gets what it covers", BOTH, files::copy_up),
    ("an idmapped mount shows other owners", ROOT, files::idmapped),
    ("a shared mount reaches the host, and a slave does not", ROOT, mounts::reach),
    ("the root has its propagation and the host sees nothing", BOTH, mounts::root_propagation),
    ("an unbindable mount is not bound again", BOTH, mounts::unbindable),
    ("a remount keeps what the host has locked", ROOT, mounts::locked),
    ("clocks have offsets in a user namespace that is joined", BOTH, namespaces::joined_clocks),
    ("the root can be moved instead of pivoted", BOTH, files::no_pivot),
    ("another file at the path of a device is an error", BOTH, files::other_device),
    ("nothing is mounted inside procfs", BOTH, files::inside_proc),
    ("capability sets are exact", ROOT, process::capabilities),
    ("limits, umask, groups and niceness hold", ROOT, process::settings),
    ("only the standard streams stay open", BOTH, process::descriptors),
    ("a home is found", BOTH, process::home),
    ("a missing program is told as callers expect", BOTH, process::missing_program),
    ("a working directory outside is refused", ROOT, process::working_directory),
    ("a terminal is the controlling one", BOTH, process::terminal),
    ("a filter is loaded without a call that it could stop", BOTH, process::filter),
    ("a listener gets the filter whatever that traps", BOTH, process::listener),
    ("sysctls are written to the container alone", ROOT, process::sysctl),
    ("created waits for start, and its death is told", BOTH, life::created),
    ("a failed create leaves nothing", BOTH, life::failed),
    ("a create dies with the runtime", BOTH, life::killed),
    ("hooks run where they belong and in order", BOTH, life::hooks),
    ("a hook that hangs or fails ends the create", BOTH, life::bad_hooks),
    ("exec joins everything", BOTH, life::exec_all),
    ("exec has a terminal and its own filter", BOTH, life::exec_terminal),
];
