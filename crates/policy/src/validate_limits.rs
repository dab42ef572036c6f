//! Checks `[limits]` for errors that the parsers of single values cannot detect.

use super::document::LimitsTable;
use super::resources::DiskRates;
use super::units::ByteSize;
use super::validate::{InvalidKey, check_min_size, invalid};
use std::ops::RangeInclusive;

/// The lowest limit on open files. Programs open some tens of descriptors at their start.
const MIN_NOFILE: u32 = 64;
/// The lowest limit on inodes. A file system needs some for itself, and a tool creates some at its start.
const MIN_INODES: u32 = 64;
/// The lowest rate in bytes: disks are read and written in pages.
const MIN_RATE: u64 = 4096;
/// The range of a cgroup weight (Documentation/admin-guide/cgroup-v2.rst, "Weights").
const WEIGHT_RANGE: RangeInclusive<u32> = 1..=10000;

pub(super) fn check_limits(limits: &LimitsTable) -> Result<(), InvalidKey> {
    check_min_size("limits.memory", limits.memory)?;
    check_min_size("limits.memory_high", limits.memory_high)?;
    check_min_size("limits.disk", limits.disk)?;
    check_min_size("limits.fsize", limits.fsize)?;
    if limits.swap.is_some_and(|size| size.bytes() > 0) {
        check_min_size("limits.swap", limits.swap)?;
    }
    if let (Some(high), Some(most)) = (limits.memory_high, limits.memory)
        && high >= most
    {
        let why = format!("{high} is never reached below limits.memory = {most}; give less");
        return invalid("limits.memory_high", why);
    }
    for (page, size) in &limits.hugetlb {
        if size.bytes() % page.bytes() != 0 {
            return invalid("limits.hugetlb", format!("{size} is no whole number of pages of {page}"));
        }
    }
    if limits.cpu_idle == Some(true) && limits.cpu_weight.is_some() {
        return invalid("limits.cpu_weight", "means nothing beside cpu_idle = true; leave one of them out");
    }
    for (key, weight) in [("limits.cpu_weight", limits.cpu_weight), ("limits.io_weight", limits.io_weight)] {
        if let Some(weight) = weight.filter(|weight| !WEIGHT_RANGE.contains(weight)) {
            return invalid(key, format!("{weight} is not in 1 to 10000; 100 is what others have"));
        }
    }
    for (disk, rates) in &limits.io {
        if let Some(why) = rates_objection(rates) {
            return invalid("limits.io", format!("{disk}: {why}"));
        }
    }
    if let Some(count) = limits.inodes.filter(|count| *count < MIN_INODES) {
        return invalid("limits.inodes", format!("{count} is less than {MIN_INODES}"));
    }
    if limits.pids == Some(0) {
        return invalid("limits.pids", "0 leaves no process to run");
    }
    match limits.nofile {
        Some(count) if count < MIN_NOFILE => {
            invalid("limits.nofile", format!("{count} is less than {MIN_NOFILE}"))
        }
        _ => Ok(()),
    }
}

fn rates_objection(rates: &DiskRates) -> Option<String> {
    let DiskRates { read_bps, write_bps, read_iops, write_iops } = rates;
    if *rates == DiskRates::default() {
        return Some("no rate is named: read_bps, write_bps, read_iops, write_iops".into());
    }
    let slow = |size: &Option<ByteSize>| size.is_some_and(|size| size.bytes() < MIN_RATE);
    if [("read_bps", read_bps), ("write_bps", write_bps)].into_iter().any(|(_, size)| slow(size)) {
        return Some("less than 4K a second is a slip; write a unit, as in 10M".into());
    }
    let none = [read_iops, write_iops].into_iter().any(|count| *count == Some(0));
    none.then(|| "0 operations a second leave no way to the disk".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_between_limits_is_said_of_its_key() {
        let cases = [
            "memory = 512",
            "disk = '1023K'",
            "inodes = 63",
            "fsize = 0",
            "pids = 0",
            "nofile = 63",
            "memory_high = 512",
            "memory_high = '1G'\nmemory = '1G'",
            "swap = 64",
            "hugetlb = { 2MB = '3M' }",
            "cpu_weight = 0",
            "cpu_weight = 10001",
            "io_weight = 0",
            "cpu_idle = true\ncpu_weight = 50",
            "io = { '/dev/sda' = {} }",
            "io = { '8:0' = { read_bps = 10 } }",
            "io = { '8:0' = { write_iops = 0 } }",
        ];
        let complaint = |text: &&str| {
            let limits: LimitsTable = toml::from_str(text).unwrap();
            let InvalidKey { key, reason: why } = check_limits(&limits).unwrap_err();
            format!("{key}: {why}")
        };
        insta::assert_snapshot!(cases.iter().map(complaint).collect::<Vec<_>>().join("\n"), @r"
        limits.memory: 512 is less than 1M; write a unit, as in 512M
        limits.disk: 1023K is less than 1M; write a unit, as in 512M
        limits.inodes: 63 is less than 64
        limits.fsize: 0 is less than 1M; write a unit, as in 512M
        limits.pids: 0 leaves no process to run
        limits.nofile: 63 is less than 64
        limits.memory_high: 512 is less than 1M; write a unit, as in 512M
        limits.memory_high: 1G is never reached below limits.memory = 1G; give less
        limits.swap: 64 is less than 1M; write a unit, as in 512M
        limits.hugetlb: 3M is no whole number of pages of 2MB
        limits.cpu_weight: 0 is not in 1 to 10000; 100 is what others have
        limits.cpu_weight: 10001 is not in 1 to 10000; 100 is what others have
        limits.io_weight: 0 is not in 1 to 10000; 100 is what others have
        limits.cpu_weight: means nothing beside cpu_idle = true; leave one of them out
        limits.io: /dev/sda: no rate is named: read_bps, write_bps, read_iops, write_iops
        limits.io: 8:0: less than 4K a second is a slip; write a unit, as in 10M
        limits.io: 8:0: 0 operations a second leave no way to the disk
        ");
    }

    #[test]
    fn the_ends_of_what_is_right_are_taken() {
        for text in
            ["swap = 0", "cpu_weight = 1", "io_weight = 10000", "hugetlb = { 2MB = 0 }", "cpu_idle = true"]
        {
            check_limits(&toml::from_str(text).unwrap()).unwrap();
        }
    }
}
