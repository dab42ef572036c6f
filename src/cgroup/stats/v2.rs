//! Controllers of cgroup v2 (Documentation/admin-guide/cgroup-v2.rst).

use super::text::{entry, flat, number, parse, read};
use super::{Pressure, PressureLine, Stats};
use crate::cgroup::limits::numbers;
use crate::cgroup::tree::Dirs;
use crate::error::Result;

/// Nanoseconds of a microsecond.
const MICRO: u64 = 1000;

pub(super) fn memory(dirs: &Dirs, stats: &mut Stats) -> Result<()> {
    const MEMORY: &str = "memory";
    let memory = &mut stats.memory;
    memory.raw = flat(dirs, MEMORY, "memory.stat")?;
    memory.cache = memory.raw.get("file").copied().unwrap_or(0);
    memory.usage.usage = number(dirs, MEMORY, "memory.current")?;
    memory.usage.limit = number(dirs, MEMORY, "memory.max")?;
    memory.usage.max = number(dirs, MEMORY, "memory.peak")?;
    memory.usage.failcnt = flat(dirs, MEMORY, "memory.events")?.get("max").copied().unwrap_or(0);
    // As in v1, and as runc reports it: memory and swap together.
    if let Some(swap) = read(dirs, MEMORY, "memory.swap.current")? {
        let limit = number(dirs, MEMORY, "memory.swap.max")?;
        memory.swap.usage = memory.usage.usage.saturating_add(parse(&swap));
        memory.swap.limit = memory.usage.limit.saturating_add(limit);
        memory.swap.failcnt = flat(dirs, MEMORY, "memory.swap.events")?.get("fail").copied().unwrap_or(0);
    }
    Ok(())
}

pub(super) fn cpu(dirs: &Dirs, stats: &mut Stats) -> Result<()> {
    let all = flat(dirs, "cpu", "cpu.stat")?;
    let get = |name: &str| all.get(name).copied().unwrap_or(0);
    let usage = &mut stats.cpu.usage;
    usage.total = get("usage_usec").saturating_mul(MICRO);
    usage.user = get("user_usec").saturating_mul(MICRO);
    usage.kernel = get("system_usec").saturating_mul(MICRO);
    let throttling = &mut stats.cpu.throttling;
    throttling.periods = get("nr_periods");
    throttling.throttled_periods = get("nr_throttled");
    throttling.throttled_time = get("throttled_usec").saturating_mul(MICRO);
    Ok(())
}

pub(super) fn cpuset(dirs: &Dirs, stats: &mut Stats) -> Result<()> {
    let list = |file: &str| -> Result<Vec<u16>> {
        Ok(read(dirs, "cpuset", file)?.as_deref().and_then(numbers).unwrap_or_default())
    };
    stats.cpuset.cpus = list("cpuset.cpus.effective")?;
    stats.cpuset.mems = list("cpuset.mems.effective")?;
    Ok(())
}

pub(super) fn io(dirs: &Dirs, stats: &mut Stats) -> Result<()> {
    let text = read(dirs, "io", "io.stat")?.unwrap_or_default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(device) = words.next() else { continue };
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            let (list, op) = match key {
                "rbytes" => (&mut stats.blkio.io_service_bytes_recursive, "Read"),
                "wbytes" => (&mut stats.blkio.io_service_bytes_recursive, "Write"),
                "dbytes" => (&mut stats.blkio.io_service_bytes_recursive, "Discard"),
                "rios" => (&mut stats.blkio.io_serviced_recursive, "Read"),
                "wios" => (&mut stats.blkio.io_serviced_recursive, "Write"),
                "dios" => (&mut stats.blkio.io_serviced_recursive, "Discard"),
                _ => continue,
            };
            list.extend(entry(device, op, parse(value)));
        }
    }
    Ok(())
}

/// Pressure is core: also on a hybrid host, whose controllers are in v1.
pub(super) fn pressure(dirs: &Dirs, stats: &mut Stats) -> Result<()> {
    let read = |file: &str| -> Result<Option<Pressure>> {
        Ok(read(dirs, "cgroup", file)?.as_deref().map(pressure_of))
    };
    stats.cpu.psi = read("cpu.pressure")?;
    stats.memory.psi = read("memory.pressure")?;
    stats.blkio.psi = read("io.pressure")?;
    Ok(())
}

/// The text of a `*.pressure` file.
pub(in crate::cgroup) fn pressure_of(text: &str) -> Pressure {
    let mut pressure = Pressure::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let to = match words.next() {
            Some("some") => &mut pressure.some,
            Some("full") => &mut pressure.full,
            _ => continue,
        };
        let mut found = PressureLine::default();
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            match key {
                "avg10" => found.avg10 = value.parse().unwrap_or(0.0),
                "avg60" => found.avg60 = value.parse().unwrap_or(0.0),
                "avg300" => found.avg300 = value.parse().unwrap_or(0.0),
                "total" => found.total = parse(value),
                _ => {}
            }
        }
        *to = found;
    }
    pressure
}
