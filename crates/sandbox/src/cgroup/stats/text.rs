//! Parsers for the number formats of control files, and the controllers whose format is the same in v1 and v2.

use super::{BlkioEntry, ContainerStats, HugetlbStats};
use crate::cgroup::control_files::{ControlFiles, OpenCgroups};
use nix::errno::Errno;
use saggar_sys::error::{Error, Result};
use std::collections::BTreeMap;

/// The text of a file; `None` if this kernel or this cgroup does not have it.
pub(super) fn read_optional(dirs: &OpenCgroups, controller: &str, file: &str) -> Result<Option<String>> {
    match dirs.read(controller, file) {
        Ok(text) => Ok(Some(text)),
        // ENODEV: the cgroup was removed; EOPNOTSUPP: the cgroup's type does not support the file.
        Err(Errno::ENOENT | Errno::ENODEV | Errno::EOPNOTSUPP) => Ok(None),
        Err(errno) => {
            let path = dirs.path(controller, file);
            Err(Error::system(format_args!("read {}", path.display()), errno.desc()))
        }
    }
}

/// A file with one number; `max` is the maximum, a missing file is 0.
pub(super) fn read_number(dirs: &OpenCgroups, controller: &str, file: &str) -> Result<u64> {
    Ok(read_optional(dirs, controller, file)?.as_deref().map_or(0, parse_number))
}

pub(super) fn parse_number(text: &str) -> u64 {
    let text = text.trim();
    if text == "max" { u64::MAX } else { text.parse().unwrap_or(0) }
}

/// A file with a name and a number on each line.
pub(super) fn read_flat_keyed(
    dirs: &OpenCgroups,
    controller: &str,
    file: &str,
) -> Result<BTreeMap<String, u64>> {
    let text = read_optional(dirs, controller, file)?.unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    Ok(pairs.map(|(name, number)| (name.to_owned(), parse_number(number))).collect())
}

/// An entry for a device `major:minor`.
pub(super) fn blkio_entry(device: &str, op: &str, value: u64) -> Option<BlkioEntry> {
    let (major, minor) = device.split_once(':')?;
    Some(BlkioEntry { major: major.parse().ok()?, minor: minor.parse().ok()?, op: op.to_owned(), value })
}

pub(super) fn pids(dirs: &OpenCgroups, stats: &mut ContainerStats) -> Result<()> {
    stats.pids.current = read_number(dirs, "pids", "pids.current")?;
    let limit = read_number(dirs, "pids", "pids.max")?;
    stats.pids.limit = if limit == u64::MAX { 0 } else { limit };
    Ok(())
}

pub(super) fn hugetlb(dirs: &OpenCgroups, stats: &mut ContainerStats) -> Result<()> {
    let Some(dir) = dirs.directory_for("hugetlb") else { return Ok(()) };
    for entry in std::fs::read_dir(&dir.path).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_str().and_then(|name| name.strip_prefix("hugetlb."));
        let name = name.filter(|name| !name.contains(".rsvd."));
        let Some((size, last)) = name.and_then(|name| name.split_once('.')) else { continue };
        let read = |last: &str| read_number(dirs, "hugetlb", &format!("hugetlb.{size}.{last}"));
        let usage = match last {
            "current" => HugetlbStats {
                usage: read("current")?,
                max: 0,
                failcnt: *read_flat_keyed(dirs, "hugetlb", &format!("hugetlb.{size}.events"))?
                    .get("max")
                    .unwrap_or(&0),
            },
            "usage_in_bytes" => HugetlbStats {
                usage: read("usage_in_bytes")?,
                max: read("max_usage_in_bytes")?,
                failcnt: read("failcnt")?,
            },
            _ => continue,
        };
        stats.hugetlb.insert(size.to_owned(), usage);
    }
    Ok(())
}
