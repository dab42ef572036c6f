//! The device number of the disk named in a policy, for io.max and similar files.

use crate::spec::DiskName;
use nix::sys::stat::{SFlag, major, minor, stat};
use std::fmt;
use std::fs;
use std::path::Path;

/// The device number of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct DiskNumber {
    pub major: u32,
    pub minor: u32,
}

impl fmt::Display for DiskNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// The number of a whole disk.
///
/// # Errors
/// The reason why there is none, with the disk's name.
pub(super) fn device_number(disk: &DiskName) -> Result<DiskNumber, String> {
    let text = disk.as_str();
    if !text.starts_with('/') {
        return whole_disk_number(text).ok_or_else(|| format!("no disk has the number {text}"));
    }
    let found = stat(text).map_err(|errno| format!("look at {text}: {}", errno.desc()))?;
    let kind = SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT;
    let device = if kind == SFlag::S_IFBLK { found.st_rdev } else { found.st_dev };
    let number = format!("{}:{}", major(device), minor(device));
    // File systems in memory, overlays, and file systems on several disks have an anonymous device number with major 0.
    whole_disk_number(&number)
        .ok_or_else(|| format!("{text} is on no single disk (its device is {number}); name the disk"))
}

/// The whole disk of a disk or a partition (sysfs(5), /sys/dev/block).
fn whole_disk_number(number: &str) -> Option<DiskNumber> {
    let entry = Path::new("/sys/dev/block").join(number);
    let disk = if entry.join("partition").exists() { entry.join("..") } else { entry };
    let text = fs::read_to_string(disk.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(DiskNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<String, String> {
        device_number(&text.parse().unwrap()).map(|number| number.to_string())
    }

    #[test]
    fn what_is_no_disk_is_told_by_name() {
        assert_eq!(of("4000:1").unwrap_err(), "no disk has the number 4000:1");
        assert!(of("/nowhere/at/all").unwrap_err().starts_with("look at /nowhere/at/all: "));
        assert!(
            of("/proc/self").unwrap_err().starts_with("/proc/self is on no single disk (its device is 0:")
        );
    }

    #[test]
    fn a_disk_is_the_same_by_its_path_and_by_its_number_and_has_its_partitions() {
        let Ok(entries) = fs::read_dir("/sys/class/block") else { return };
        for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
            let entry = Path::new("/sys/class/block").join(&name);
            let dev = fs::read_to_string(entry.join("dev")).unwrap();
            let found = of(dev.trim()).unwrap();
            if entry.join("partition").exists() {
                assert_ne!(found, dev.trim(), "{name} is a partition");
            } else {
                assert_eq!(found, dev.trim(), "{name}");
            }
        }
    }
}
