//! The mount table, as the kernel writes it (proc_pid_mountinfo(5)). The one reader of it: paths are bytes in which
//! space, tab, newline and backslash are escaped, and a reader that forgets this misses mounts.

use saggar_sys::error::{Error, Result};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The mount table of this process.
const OWN_TABLE: &str = "/proc/self/mountinfo";

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The id of the mount, as in `/proc/PID/fdinfo`.
    pub id: u32,
    /// The directory of the file system that is mounted. Begins with `/..` if it is outside of a cgroup namespace.
    pub root: PathBuf,
    /// The mount point, below the root directory of the process.
    pub mount_point: PathBuf,
    /// The type of the file system, such as `ext4` or `fuse.sshfs`.
    pub filesystem: String,
    /// The options of the file system, separated by commas.
    pub super_options: String,
}

/// The mounts that this process sees, in the order of the kernel: a later one may cover an earlier one.
///
/// # Errors
/// /proc cannot be read.
pub fn own_mounts() -> Result<Vec<Mount>> {
    let text = fs::read(OWN_TABLE).map_err(|e| Error::system(format_args!("read {OWN_TABLE}"), e))?;
    Ok(parse_mounts(&text).collect())
}

/// The mounts in the text of a mount table. Lines that are cut are left out.
pub fn parse_mounts(table: &[u8]) -> impl Iterator<Item = Mount> {
    table.split(|byte| *byte == b'\n').filter_map(parse_mount)
}

fn parse_mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    // After the id: the parent's id and the device.
    let root = unescape(fields.nth(2)?);
    let mount_point = unescape(fields.next()?);
    // The options of the mount, and any number of optional fields up to a hyphen.
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let filesystem = text(rest.next()?);
    // After the source.
    let super_options = text(rest.nth(1)?);
    Some(Mount { id, root, mount_point, filesystem, super_options })
}

/// Decodes the kernel's `\ooo` escapes.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|digits| digits.iter().all(|digit| (b'0'..b'8').contains(digit)));
        match digits {
            Some(digits) if byte == b'\\' => {
                bytes.push(
                    digits.iter().fold(0u8, |value, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')),
                );
                rest = &tail[3..];
            }
            _ => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn fields_before_and_after_optional_ones_are_found() {
        let table = b"36 35 98:0 /mnt1 /mnt/a\\040b\\134c rw,noatime master:1 unbindable - fuse.sshfs /dev/root rw,errors=continue\n\
            37 35 98:1 / /mnt/\xff rw - ext4 /dev/sda rw\n38 35 98:1 / /cut rw -\nno mount\n";
        let mounts: Vec<Mount> = parse_mounts(table).collect();
        let first = Mount {
            id: 36,
            root: "/mnt1".into(),
            mount_point: "/mnt/a b\\c".into(),
            filesystem: "fuse.sshfs".into(),
            super_options: "rw,errors=continue".into(),
        };
        assert_eq!(mounts[0], first);
        assert_eq!(mounts[1].mount_point.as_os_str(), OsStr::from_bytes(b"/mnt/\xff"));
        assert_eq!(mounts.len(), 2);
    }

    #[test]
    fn what_is_no_escape_is_kept() {
        for plain in [r"/a\0", r"/a\", r"/a\08", r"/a\9040"] {
            assert_eq!(unescape(plain.as_bytes()), PathBuf::from(plain));
        }
    }

    #[test]
    fn own_table_has_a_root_and_its_proc() {
        let mounts = own_mounts().unwrap();
        assert!(mounts.iter().any(|mount| mount.mount_point.as_os_str() == "/"));
        assert!(mounts.iter().any(|mount| mount.filesystem == "proc"));
    }
}
