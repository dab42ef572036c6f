//! Controllers of cgroup v2 (Documentation/admin-guide/cgroup-v2.rst).

use super::text::{blkio_entry, parse_number, read_flat_keyed, read_number, read_optional};
use super::{ContainerStats, Pressure, PressureAverages};
use crate::cgroup::control_files::OpenCgroups;
use crate::cgroup::limits::parse_number_list;
use saggar_sys::error::Result;

/// Nanoseconds in a microsecond.
const NANOS_PER_MICRO: u64 = 1000;

pub(super) fn memory(dirs: &OpenCgroups, stats: &mut ContainerStats) -> Result<()> {
    const MEMORY: &str = "memory";
    let memory = &mut stats.memory;
    memory.raw = read_flat_keyed(dirs, MEMORY, "memory.stat")?;
    memory.cache = memory.raw.get("file").copied().unwrap_or(0);
    memory.usage.usage = read_number(dirs, MEMORY, "memory.current")?;
    memory.usage.limit = read_number(dirs, MEMORY, "memory.max")?;
    memory.usage.max = read_number(dirs, MEMORY, "memory.peak")?;
    memory.usage.failcnt = read_flat_keyed(dirs, MEMORY, "memory.events")?.get("max").copied().unwrap_or(0);
    // Memory plus swap, as in v1 and in runc's report.
    if let Some(swap) = read_optional(dirs, MEMORY, "memory.swap.current")? {
        let limit = read_number(dirs, MEMORY, "memory.swap.max")?;
        memory.swap.usage = memory.usage.usage.saturating_add(parse_number(&swap));
        memory.swap.limit = memory.usage.limit.saturating_add(limit);
        memory.swap.failcnt =
            read_flat_keyed(dirs, MEMORY, "memory.swap.events")?.get("fail").copied().unwrap_or(0);
    }
    Ok(())
}

pub(super) fn cpu(dirs: &OpenCgroups, stats: &mut ContainerStats) -> Result<()> {
    let all = read_flat_keyed(dirs, "cpu", "cpu.stat")?;
    let get = |name: &str| all.get(name).copied().unwrap_or(0);
    let usage = &mut stats.cpu.usage;
    usage.total = get("usage_usec").saturating_mul(NANOS_PER_MICRO);
    usage.user = get("user_usec").saturating_mul(NANOS_PER_MICRO);
    usage.kernel = get("system_usec").saturating_mul(NANOS_PER_MICRO);
    let throttling = &mut stats.cpu.throttling;
    throttling.periods = get("nr_periods");
    throttling.throttled_periods = get("nr_throttled");
    throttling.throttled_time = get("throttled_usec").saturating_mul(NANOS_PER_MICRO);
    Ok(())
}

pub(super) fn cpuset(dirs: &OpenCgroups, stats: &mut ContainerStats) -> Result<()> {
    let list = |file: &str| -> Result<Vec<u16>> {
        Ok(read_optional(dirs, "cpuset", file)?.as_deref().and_then(parse_number_list).unwrap_or_default())
    };
    stats.cpuset.cpus = list("cpuset.cpus.effective")?;
    stats.cpuset.mems = list("cpuset.mems.effective")?;
    Ok(())
}

pub(super) fn io(dirs: &OpenCgroups, stats: &mut ContainerStats) -> Result<()> {
    let text = read_optional(dirs, "io", "io.stat")?.unwrap_or_default();
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
            list.extend(blkio_entry(device, op, parse_number(value)));
        }
    }
    Ok(())
}

/// Pressure is a core feature: it is also available on a hybrid host, whose controllers are in v1.
pub(super) fn pressure(dirs: &OpenCgroups, stats: &mut ContainerStats) -> Result<()> {
    let read = |file: &str| -> Result<Option<Pressure>> {
        Ok(read_optional(dirs, "cgroup", file)?.as_deref().map(parse_pressure))
    };
    stats.cpu.psi = read("cpu.pressure")?;
    stats.memory.psi = read("memory.pressure")?;
    stats.blkio.psi = read("io.pressure")?;
    Ok(())
}

/// Parses the text of a `*.pressure` file.
pub(in crate::cgroup) fn parse_pressure(text: &str) -> Pressure {
    let mut pressure = Pressure::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let to = match words.next() {
            Some("some") => &mut pressure.some,
            Some("full") => &mut pressure.full,
            _ => continue,
        };
        let mut found = PressureAverages::default();
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            match key {
                "avg10" => found.avg10 = value.parse().unwrap_or(0.0),
                "avg60" => found.avg60 = value.parse().unwrap_or(0.0),
                "avg300" => found.avg300 = value.parse().unwrap_or(0.0),
                "total" => found.total = parse_number(value),
                _ => {}
            }
        }
        *to = found;
    }
    pressure
}
