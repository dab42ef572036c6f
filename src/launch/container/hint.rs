//! What to do about a failed step of a container, keyed by the step and the error number.

use crate::plan::container::step::Step;
use crate::sys::Errno;
use std::ffi::CStr;

/// A sentence, where one is known.
pub(super) fn for_step(step: &Step, errno: Errno) -> Option<&'static str> {
    Some(match (step, errno) {
        (Step::Mount(mount), Errno::ELOOP) if mount.plain => {
            "proc and sysfs must be mounted on ordinary directory: the path is a link, or lies behind one"
        }
        (Step::Mount(_), Errno::ELOOP) => {
            "nothing may be mounted inside /proc but over a few files like meminfo; or there are too many links"
        }
        (Step::Mount(_), Errno::EPERM) => {
            "a user namespace mounts only what the kernel allows it, and clears no attribute that the host has set"
        }
        (Step::Mount(_), Errno::ENOENT) => "the source of the mount is not there",
        (Step::Mount(_), Errno::ENODEV) => "the kernel does not know this type of file system",
        (Step::Mount(_), Errno::EINVAL) => "the file system does not take one of its options",
        (Step::Mount(_), Errno::ENOTDIR) => "a file and a directory cannot be mounted on one another",
        (Step::Device { .. }, Errno::EEXIST) => "something else is at this path of the image",
        (Step::Mask { .. } | Step::ReadOnly { .. }, Errno::ELOOP) => {
            "a link is in the way: /proc of the image must be a real directory with procfs on it"
        }
        (Step::Terminal { .. }, Errno::ENOENT | Errno::ENOTTY | Errno::ELOOP) => {
            "process.terminal needs a mount of the type devpts on /dev/pts"
        }
        (Step::User { .. }, Errno::EINVAL) => "the id is not in the map of the user namespace",
        (Step::User { .. }, Errno::EPERM) => "the user namespace does not let its processes change groups",
        (Step::Hostname { .. } | Step::Domainname { .. }, Errno::EINVAL) => "a name has at most 64 bytes",
        (Step::Sysctl { .. }, Errno::ENOENT) => "this kernel does not have the parameter",
        (Step::NewKeyring, Errno::EDQUOT) => {
            "the user's key quota is used up: see kernel.keys.maxkeys, or say --no-new-keyring"
        }
        (Step::SecurityLabel { file, .. }, Errno::ENOENT) if is_apparmor(file) => {
            "AppArmor has no such profile: load it (apparmor_parser -r FILE)"
        }
        (Step::SecurityLabel { .. }, Errno::EINVAL) => "the policy that is loaded does not know the label",
        (Step::SecurityLabel { .. }, Errno::EACCES | Errno::EPERM) => {
            "the security module does not let the runtime change to it from its own label"
        }
        (Step::PivotRoot, Errno::EINVAL) => "the root of the host cannot be pivoted from: say --no-pivot",
        (Step::Seccomp, Errno::EACCES) => {
            "a filter needs process.noNewPrivileges, or CAP_SYS_ADMIN in the runtime"
        }
        (Step::Seccomp, Errno::EINVAL) => "the kernel does not take this filter or one of its flags",
        (Step::Root { .. }, Errno::ENOENT) => "root.path is not there",
        (Step::Root { .. } | Step::OpenRoot { .. }, Errno::EACCES) => {
            "the container's root may not enter a directory on the way to root.path"
        }
        _ => return None,
    })
}

fn is_apparmor(file: &CStr) -> bool {
    file.to_bytes().starts_with(b"apparmor/")
}
