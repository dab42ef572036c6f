//! Controllers of cgroup v1 (Documentation/admin-guide/cgroup-v1).

use super::text::{blkio_entry, parse_number, read_flat_keyed, read_number, read_optional};
use super::{BlkioEntry, ContainerStats, MemoryUsage};
use crate::cgroup::control_files::OpenCgroups;
use crate::cgroup::limits::parse_number_list;
use saggar_sys::error::Result;

/// Nanoseconds in a tick of USER_HZ, which is 100 on all supported architectures.
const NANOS_PER_TICK: u64 = 10_000_000;

pub(super) fn memory(dirs: &OpenCgroups, stats: &mut ContainerStats) -> Result<()> {
    let entry = |part: &str| -> Result<MemoryUsage> {
        let read = |last: &str| read_number(dirs, "memory", &format!("memory.{part}{last}"));
        Ok(MemoryUsage {
            limit: read("limit_in_bytes")?,
            usage: read("usage_in_bytes")?,
            max: read("max_usage_in_bytes")?,
            failcnt: read("failcnt")?,
        })
    };
    let memory = &mut stats.memory;
    memory.raw = read_flat_keyed(dirs, "memory", "memory.stat")?;
    memory.cache = memory.raw.get("cache").copied().unwrap_or(0);
    memory.usage = entry("")?;
    memory.swap = entry("memsw.")?;
    memory.kernel = entry("kmem.")?;
    memory.kernel_tcp = entry("kmem.tcp.")?;
    Ok(())
}

pub(super) fn cpuacct(dirs: &OpenCgroups, stats: &mut ContainerStats) -> Result<()> {
    let usage = &mut stats.cpu.usage;
    usage.total = read_number(dirs, "cpuacct", "cpuacct.usage")?;
    let percpu = read_optional(dirs, "cpuacct", "cpuacct.usage_percpu")?.unwrap_or_default();
    usage.percpu = percpu.split_whitespace().map(parse_number).collect();
    let all = read_flat_keyed(dirs, "cpuacct", "cpuacct.stat")?;
    let ticks = |name: &str| all.get(name).copied().unwrap_or(0).saturating_mul(NANOS_PER_TICK);
    (usage.user, usage.kernel) = (ticks("user"), ticks("system"));
    // A header `cpu user system`, then a line for each CPU.
    let each = read_optional(dirs, "cpuacct", "cpuacct.usage_all")?.unwrap_or_default();
    for line in each.lines().skip(1) {
        let mut numbers = line.split_whitespace().skip(1).map(parse_number);
        usage.percpu_user.extend(numbers.next());
        usage.percpu_kernel.extend(numbers.next());
    }
    Ok(())
}

pub(super) fn cpu(dirs: &OpenCgroups, stats: &mut ContainerStats) -> Result<()> {
    let all = read_flat_keyed(dirs, "cpu", "cpu.stat")?;
    let get = |name: &str| all.get(name).copied().unwrap_or(0);
    let throttling = &mut stats.cpu.throttling;
    throttling.periods = get("nr_periods");
    throttling.throttled_periods = get("nr_throttled");
    throttling.throttled_time = get("throttled_time");
    Ok(())
}

pub(super) fn cpuset(dirs: &OpenCgroups, stats: &mut ContainerStats) -> Result<()> {
    let read = |last: &str| read_optional(dirs, "cpuset", &format!("cpuset.{last}"));
    let list = |last: &str| -> Result<Vec<u16>> {
        Ok(read(last)?.as_deref().and_then(parse_number_list).unwrap_or_default())
    };
    let number = |last: &str| -> Result<u64> { Ok(read(last)?.as_deref().map_or(0, parse_number)) };
    let set = &mut stats.cpuset;
    (set.cpus, set.mems) = (list("cpus")?, list("mems")?);
    set.cpu_exclusive = number("cpu_exclusive")?;
    set.mem_hardwall = number("mem_hardwall")?;
    set.mem_exclusive = number("mem_exclusive")?;
    set.memory_migrate = number("memory_migrate")?;
    set.memory_spread_page = number("memory_spread_page")?;
    set.memory_spread_slab = number("memory_spread_slab")?;
    set.memory_pressure = number("memory_pressure")?;
    set.sched_load_balance = number("sched_load_balance")?;
    let level = read("sched_relax_domain_level")?;
    set.sched_relax_domain_level = level.and_then(|level| level.trim().parse().ok()).unwrap_or(0);
    Ok(())
}

pub(super) fn blkio(dirs: &OpenCgroups, stats: &mut ContainerStats) -> Result<()> {
    let list = |name: &str| -> Result<Vec<BlkioEntry>> {
        let of = |part: &str| read_optional(dirs, "blkio", &format!("blkio.{part}.{name}"));
        // BFQ counts only the requests that it schedules.
        let bfq = of("bfq")?.map(|text| blkio_entries(&text)).unwrap_or_default();
        if bfq.is_empty() {
            Ok(of("throttle")?.map(|text| blkio_entries(&text)).unwrap_or_default())
        } else {
            Ok(bfq)
        }
    };
    let io = &mut stats.blkio;
    io.io_service_bytes_recursive = list("io_service_bytes_recursive")?;
    io.io_serviced_recursive = list("io_serviced_recursive")?;
    io.io_queued_recursive = list("io_queued_recursive")?;
    io.io_service_time_recursive = list("io_service_time_recursive")?;
    io.io_wait_time_recursive = list("io_wait_time_recursive")?;
    io.io_merged_recursive = list("io_merged_recursive")?;
    io.io_time_recursive = list("time_recursive")?;
    io.sectors_recursive = list("sectors_recursive")?;
    Ok(())
}

/// Parses lines `8:0 Read 4096` or `8:0 4096`; the last line, `Total 4096`, belongs to no device.
fn blkio_entries(text: &str) -> Vec<BlkioEntry> {
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (device, second) = (words.next()?, words.next()?);
        match words.next() {
            Some(value) => blkio_entry(device, second, parse_number(value)),
            None => blkio_entry(device, "", parse_number(second)),
        }
    });
    lines.collect()
}
