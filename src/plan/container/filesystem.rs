//! What a file system is told: in the words of fsconfig(2), and in those of mount(2) where that is not enough.

use super::{c_text, mount::Attributes};
use crate::error::Result;
use crate::spec::container::ContainerMount;
use std::ffi::CString;

/// An option, with its value where there is one.
pub type Words = (CString, Option<CString>);

/// Arguments of mount(2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classic {
    /// The source.
    pub source: CString,
    /// MS_* flags of the file system.
    pub flags: u64,
    /// Its options in one line.
    pub data: CString,
}

/// Flags of a file system, by their words for fsconfig(2); mount(2) alone can say the others.
const FLAGS: [(u64, &str); 5] = [
    (libc::MS_RDONLY, "ro"),
    (libc::MS_SYNCHRONOUS, "sync"),
    (libc::MS_DIRSYNC, "dirsync"),
    (libc::MS_LAZYTIME, "lazytime"),
    (libc::MS_MANDLOCK, "mand"),
];

/// What the kernel copies of a value (fsconfig(2)).
const LONGEST: usize = 255;

/// The options of fsconfig(2) for the flags `superblock` and what was `given`.
pub(super) fn options(given: &[(String, Option<String>)], superblock: u64) -> Result<Vec<Words>> {
    let flags = FLAGS.iter().filter(|(flag, _)| superblock & flag != 0);
    let flags = flags.map(|(_, name)| Ok((c_text(name)?, None)));
    let given =
        given.iter().map(|(name, value)| Ok((c_text(name)?, value.as_deref().map(c_text).transpose()?)));
    flags.chain(given).collect()
}

/// The same for mount(2), where fsconfig(2) has no word for a flag or no room for a value: overlays with many
/// layers, `iversion`.
pub(super) fn classic(
    source: &str,
    given: &[(String, Option<String>)],
    superblock: u64,
) -> Result<Option<Classic>> {
    let long = given.iter().any(|(_, value)| value.as_ref().is_some_and(|value| value.len() > LONGEST));
    if !long && superblock & libc::MS_I_VERSION == 0 {
        return Ok(None);
    }
    Ok(Some(Classic { source: c_text(source)?, flags: superblock, data: line(given)? }))
}

/// Options as the last argument of mount(2). A value with a comma in it stands in quotes, as labels of SELinux do.
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
    c_text(&given.iter().map(word).collect::<Vec<_>>().join(","))
}

/// Every attribute of a mount but those of its access times, which stay as they are where nothing is said of them.
const ALL: u64 = libc::MOUNT_ATTR_RDONLY
    | libc::MOUNT_ATTR_NOSUID
    | libc::MOUNT_ATTR_NODEV
    | libc::MOUNT_ATTR_NOEXEC
    | libc::MOUNT_ATTR_NOSYMFOLLOW;

/// Those of access times.
const TIMES: u64 = libc::MOUNT_ATTR__ATIME | libc::MOUNT_ATTR_NODIRATIME;

/// The attributes that a remount leaves: what it names, and no others (mount(2), MS_REMOUNT).
pub(super) fn exactly(mount: &ContainerMount) -> Attributes {
    let times = if (mount.set | mount.clear) & TIMES != 0 { TIMES } else { 0 };
    Attributes::new(mount.set, mount.clear | ALL | times)
}

/// The flags of mount(2) for the attributes of `mount`.
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
        // Back to what the kernel does by itself.
        _ if mount.clear & TIMES != 0 => libc::MS_RELATIME,
        _ => 0,
    };
    named | times
}

/// linux/mount.h, since 5.10.
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
        assert_eq!(classic("none", &given(&[("size", "1k")]), libc::MS_SYNCHRONOUS).unwrap(), None);
        assert!(classic("none", &[], libc::MS_I_VERSION).unwrap().is_some());
        let long = "/l".repeat(200);
        let overlay = given(&[("lowerdir", &long)]);
        assert_eq!(classic("x", &overlay, 0).unwrap().unwrap().source.as_c_str(), c"x");
    }
}
