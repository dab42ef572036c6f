//! The few forms in which control files give numbers, and the controllers that have the same in v1 and v2.

use super::{BlockIoEntry, Hugetlb, Stats};
use crate::cgroup::tree::{Dirs, Tree};
use crate::error::{Error, Result};
use nix::errno::Errno;
use std::collections::BTreeMap;

/// The text of a file; `None` when this kernel, or this cgroup, does not have it.
pub(super) fn read(dirs: &Dirs, controller: &str, file: &str) -> Result<Option<String>> {
    match dirs.read(controller, file) {
        Ok(text) => Ok(Some(text)),
        // ENODEV: the cgroup is gone; EOPNOTSUPP: the file is for others.
        Err(Errno::ENOENT | Errno::ENODEV | Errno::EOPNOTSUPP) => Ok(None),
        Err(errno) => {
            let path = dirs.path(controller, file);
            Err(Error::system(format_args!("read {}", path.display()), errno.desc()))
        }
    }
}

/// A file with one number; `max` is the greatest, what is missing is 0.
pub(super) fn number(dirs: &Dirs, controller: &str, file: &str) -> Result<u64> {
    Ok(read(dirs, controller, file)?.as_deref().map_or(0, parse))
}

pub(super) fn parse(text: &str) -> u64 {
    let text = text.trim();
    if text == "max" { u64::MAX } else { text.parse().unwrap_or(0) }
}

/// A file with a name and a number in each line.
pub(super) fn flat(dirs: &Dirs, controller: &str, file: &str) -> Result<BTreeMap<String, u64>> {
    let text = read(dirs, controller, file)?.unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    Ok(pairs.map(|(name, number)| (name.to_owned(), parse(number))).collect())
}

/// A number of a device, `major:minor`.
pub(super) fn entry(device: &str, op: &str, value: u64) -> Option<BlockIoEntry> {
    let (major, minor) = device.split_once(':')?;
    Some(BlockIoEntry { major: major.parse().ok()?, minor: minor.parse().ok()?, op: op.to_owned(), value })
}

pub(super) fn pids(dirs: &Dirs, stats: &mut Stats) -> Result<()> {
    stats.pids.current = number(dirs, "pids", "pids.current")?;
    let limit = number(dirs, "pids", "pids.max")?;
    stats.pids.limit = if limit == u64::MAX { 0 } else { limit };
    Ok(())
}

pub(super) fn hugetlb(dirs: &Dirs, stats: &mut Stats) -> Result<()> {
    let Some(dir) = dirs.home("hugetlb") else { return Ok(()) };
    for entry in std::fs::read_dir(&dir.path).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_str().and_then(|name| name.strip_prefix("hugetlb."));
        let name = name.filter(|name| !name.contains(".rsvd."));
        let Some((size, last)) = name.and_then(|name| name.split_once('.')) else { continue };
        let read = |last: &str| number(dirs, "hugetlb", &format!("hugetlb.{size}.{last}"));
        let usage = match last {
            "current" => Hugetlb {
                usage: read("current")?,
                max: 0,
                failcnt: *flat(dirs, "hugetlb", &format!("hugetlb.{size}.events"))?.get("max").unwrap_or(&0),
            },
            "usage_in_bytes" => Hugetlb {
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
