//! Builds the options of a file system for fsconfig(2), and for mount(2) where fsconfig(2) is not enough.

use super::mount::MountAttributes;
use crate::plan::path::c_string;
use crate::spec::container::ContainerMount;
use saggar_sys::error::Result;
use std::ffi::CString;

/// An option, with its value where there is one.
pub(crate) type FsOption = (CString, Option<CString>);

/// Arguments of mount(2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LegacyMount {
    /// The source.
    pub source: CString,
    /// MS_* flags of the file system.
    pub flags: u64,
    /// Its options in one line.
    pub data: CString,
}

/// Flags of a file system and their names for fsconfig(2); the other flags need mount(2).
const FLAGS: [(u64, &str); 5] = [
    (libc::MS_RDONLY, "ro"),
    (libc::MS_SYNCHRONOUS, "sync"),
    (libc::MS_DIRSYNC, "dirsync"),
    (libc::MS_LAZYTIME, "lazytime"),
    (libc::MS_MANDLOCK, "mand"),
];

/// The maximum length of a value, in bytes, that the kernel copies (fsconfig(2)).
const MAX_VALUE: usize = 255;

/// Returns the options of fsconfig(2) for the flags `superblock` and the `given` options.
pub(super) fn options(given: &[(String, Option<String>)], superblock: u64) -> Result<Vec<FsOption>> {
    let flags = FLAGS.iter().filter(|(flag, _)| superblock & flag != 0);
    let flags = flags.map(|(_, name)| Ok((c_string(name)?, None)));
    let given =
        given.iter().map(|(name, value)| Ok((c_string(name)?, value.as_deref().map(c_string).transpose()?)));
    flags.chain(given).collect()
}

/// Returns the arguments of mount(2), where fsconfig(2) has no name for a flag or a value is too long: overlays with
/// many layers, `iversion`.
pub(super) fn legacy_mount(
    source: &str,
    given: &[(String, Option<String>)],
    superblock: u64,
) -> Result<Option<LegacyMount>> {
    let long = given.iter().any(|(_, value)| value.as_ref().is_some_and(|value| value.len() > MAX_VALUE));
    if !long && superblock & libc::MS_I_VERSION == 0 {
        return Ok(None);
    }
    Ok(Some(LegacyMount { source: c_string(source)?, flags: superblock, data: line(given)? }))
}

/// Formats options as the last argument of mount(2). A value with a comma is quoted, as SELinux labels are.
pub(super) fn line(given: &[(String, Option<String>)]) -> Result<CString> {
    let bare = |value: &str| {
        let mut escaped = false;
        value.chars().any(|c| {
            let literal = std::mem::take(&mut escaped);
            escaped = c == '\\' && !literal;
            c == ',' && !literal
        })
    };
    let word = |(name, value): &(String, Option<String>)| match value {
        Some(value) if bare(value) => format!("{name}=\"{value}\""),
        Some(value) => format!("{name}={value}"),
        None => name.clone(),
    };
    c_string(&given.iter().map(word).collect::<Vec<_>>().join(","))
}

/// Every attribute of a mount except its access times, which are kept unless the mount sets them.
const ALL: u64 = libc::MOUNT_ATTR_RDONLY
    | libc::MOUNT_ATTR_NOSUID
    | libc::MOUNT_ATTR_NODEV
    | libc::MOUNT_ATTR_NOEXEC
    | libc::MOUNT_ATTR_NOSYMFOLLOW;

/// The attributes of access times.
const TIMES: u64 = libc::MOUNT_ATTR__ATIME | libc::MOUNT_ATTR_NODIRATIME;

/// Returns the attributes of a remount: those that it names, and no others (mount(2), MS_REMOUNT).
pub(super) fn exact_attributes(mount: &ContainerMount) -> MountAttributes {
    let times = if (mount.set | mount.clear) & TIMES != 0 { TIMES } else { 0 };
    MountAttributes::new(mount.set, mount.clear | ALL | times)
}

/// Returns the flags of mount(2) for the attributes of `mount`.
pub(super) fn flags(mount: &ContainerMount) -> u64 {
    const SAME: [(u64, u64); 7] = [
        (libc::MOUNT_ATTR_RDONLY, libc::MS_RDONLY),
        (libc::MOUNT_ATTR_NOSUID, libc::MS_NOSUID),
        (libc::MOUNT_ATTR_NODEV, libc::MS_NODEV),
        (libc::MOUNT_ATTR_NOEXEC, libc::MS_NOEXEC),
        (libc::MOUNT_ATTR_NODIRATIME, libc::MS_NODIRATIME),
        (libc::MOUNT_ATTR_NOSYMFOLLOW, MS_NOSYMFOLLOW),
        (libc::MOUNT_ATTR_NOATIME, libc::MS_NOATIME),
    ];
    let named = SAME.iter().filter(|(attribute, _)| mount.set & attribute != 0);
    let named = named.fold(0, |flags, (_, flag)| flags | flag);
    let times = match mount.set & libc::MOUNT_ATTR__ATIME {
        libc::MOUNT_ATTR_STRICTATIME => libc::MS_STRICTATIME,
        libc::MOUNT_ATTR_NOATIME => 0,
        // Back to the kernel's default.
        _ if mount.clear & TIMES != 0 => libc::MS_RELATIME,
        _ => 0,
    };
    named | times
}

/// From linux/mount.h, since 5.10.
const MS_NOSYMFOLLOW: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn given(options: &[(&str, &str)]) -> Vec<(String, Option<String>)> {
        let some = |value: &str| (!value.is_empty()).then(|| value.to_owned());
        options.iter().map(|(name, value)| ((*name).to_owned(), some(value))).collect()
    }

    #[test]
    fn a_line_keeps_commas_inside_of_values() {
        let options = given(&[
            ("size", "64k"),
            ("huge", ""),
            ("context", "u:r:t:s0:c1,c2"),
            ("lowerdir", "/a\\,b:/c"),
            ("upperdir", "/a\\\\,b"),
        ]);
        let expected = c"size=64k,huge,context=\"u:r:t:s0:c1,c2\",lowerdir=/a\\,b:/c,upperdir=\"/a\\\\,b\"";
        assert_eq!(line(&options).unwrap().as_c_str(), expected);
    }

    #[test]
    fn mount_2_is_called_where_fsconfig_2_is_not_enough() {
        assert_eq!(legacy_mount("none", &given(&[("size", "1k")]), libc::MS_SYNCHRONOUS).unwrap(), None);
        assert!(legacy_mount("none", &[], libc::MS_I_VERSION).unwrap().is_some());
        let long = "/l".repeat(200);
        let overlay = given(&[("lowerdir", &long)]);
        assert_eq!(legacy_mount("x", &overlay, 0).unwrap().unwrap().source.as_c_str(), c"x");
    }
}
