//! Hints for failed steps of a container, by step and error number.

use crate::plan::container::step::ContainerStep;
use crate::spec::container::SourceLink;
use saggar_sys::Errno;
use std::ffi::CStr;

/// Returns the hint, if there is one.
pub(super) fn hint_for_step(step: &ContainerStep, errno: Errno) -> Option<&'static str> {
    Some(match (step, errno) {
        (ContainerStep::Mount(mount), Errno::ELOOP) if mount.no_links => {
            "proc and sysfs must be mounted on ordinary directory: the path is a link, or lies behind one"
        }
        (ContainerStep::Mount(_), Errno::ELOOP) => {
            "nothing may be mounted inside /proc but over a few files like meminfo; or there are too many links"
        }
        (ContainerStep::Mount(_), Errno::EPERM) => {
            "a user namespace mounts only what the kernel allows it, and clears no attribute that the host has set"
        }
        (ContainerStep::Mount(_), Errno::ENOENT) => "the source of the mount is not there",
        (ContainerStep::Mount(_), Errno::ENODEV) => "the kernel does not know this type of file system",
        (ContainerStep::Mount(mount), Errno::EINVAL) if mount.covers_link => {
            "dest-nofollow: a directory cannot be mounted on a link, and the destination must end in a name"
        }
        (ContainerStep::Mount(mount), Errno::EEXIST) if mount.source_link == SourceLink::Copy => {
            "copy-symlink: something else than the same link is at the destination: remove it, or leave the option out"
        }
        (ContainerStep::Mount(_), Errno::EINVAL) => "the file system does not take one of its options",
        (ContainerStep::Mount(_), Errno::ENOTDIR) => {
            "a file and a directory cannot be mounted on one another"
        }
        (ContainerStep::Device { .. }, Errno::EEXIST) => "something else is at this path of the image",
        (ContainerStep::Device { .. }, Errno::ELOOP) => {
            "nothing may be mounted inside /proc: the path leads there"
        }
        (ContainerStep::Mask { .. } | ContainerStep::ReadOnly { .. }, Errno::ELOOP) => {
            "a link is in the way: /proc of the image must be a real directory with procfs on it"
        }
        (ContainerStep::Terminal { .. }, Errno::ENOENT | Errno::ENOTTY | Errno::ELOOP) => {
            "process.terminal needs a mount of the type devpts on /dev/pts"
        }
        (ContainerStep::SetUser { .. }, Errno::EINVAL) => "the id is not in the map of the user namespace",
        (ContainerStep::SetUser { .. }, Errno::EPERM) => {
            "the user namespace does not let its processes change groups"
        }
        (ContainerStep::Hostname { .. } | ContainerStep::Domainname { .. }, Errno::EINVAL) => {
            "a name has at most 64 bytes"
        }
        (ContainerStep::Sysctl { .. }, Errno::ENOENT) => "this kernel does not have the parameter",
        (ContainerStep::NewKeyring, Errno::EDQUOT) => {
            "the user's key quota is used up: see kernel.keys.maxkeys, or use --no-new-keyring"
        }
        (ContainerStep::SecurityLabel { file, .. }, Errno::ENOENT) if is_apparmor(file) => {
            "AppArmor has no such profile: load it (apparmor_parser -r FILE)"
        }
        (ContainerStep::SecurityLabel { .. }, Errno::EINVAL) => {
            "the policy that is loaded does not know the label"
        }
        (ContainerStep::SecurityLabel { .. }, Errno::EACCES | Errno::EPERM) => {
            "the security module does not let the runtime change to it from its own label"
        }
        (ContainerStep::PivotRoot, Errno::EINVAL) => {
            "the root of the host cannot be pivoted from: use --no-pivot"
        }
        (ContainerStep::Seccomp, Errno::EACCES) => {
            "a filter needs process.noNewPrivileges, or CAP_SYS_ADMIN in the runtime"
        }
        (ContainerStep::Seccomp, Errno::EINVAL) => "the kernel does not take this filter or one of its flags",
        (ContainerStep::AttachRoot { .. }, Errno::ENOENT) => "root.path is not there",
        (ContainerStep::AttachRoot { .. } | ContainerStep::OpenRoot { .. }, Errno::EACCES) => {
            "the container's root may not enter a directory on the way to root.path"
        }
        _ => return None,
    })
}

fn is_apparmor(file: &CStr) -> bool {
    file.to_bytes().starts_with(b"apparmor/")
}
