//! Controllers of cgroup v1 (Documentation/admin-guide/cgroup-v1).

use super::text::{entry, flat, number, parse, read};
use super::{BlockIoEntry, MemoryEntry, Stats};
use crate::cgroup::limits::numbers;
use crate::cgroup::tree::Dirs;
use crate::error::Result;

/// Nanoseconds of a tick of USER_HZ, which is 100 on all architectures that we build for.
const TICK: u64 = 10_000_000;

pub(super) fn memory(dirs: &Dirs, stats: &mut Stats) -> Result<()> {
    let entry = |part: &str| -> Result<MemoryEntry> {
        let read = |last: &str| number(dirs, "memory", &format!("memory.{part}{last}"));
        Ok(MemoryEntry {
            limit: read("limit_in_bytes")?,
            usage: read("usage_in_bytes")?,
            max: read("max_usage_in_bytes")?,
            failcnt: read("failcnt")?,
        })
    };
    let memory = &mut stats.memory;
    memory.raw = flat(dirs, "memory", "memory.stat")?;
    memory.cache = memory.raw.get("cache").copied().unwrap_or(0);
    memory.usage = entry("")?;
    memory.swap = entry("memsw.")?;
    memory.kernel = entry("kmem.")?;
    memory.kernel_tcp = entry("kmem.tcp.")?;
    Ok(())
}

pub(super) fn cpuacct(dirs: &Dirs, stats: &mut Stats) -> Result<()> {
    let usage = &mut stats.cpu.usage;
    usage.total = number(dirs, "cpuacct", "cpuacct.usage")?;
    let percpu = read(dirs, "cpuacct", "cpuacct.usage_percpu")?.unwrap_or_default();
    usage.percpu = percpu.split_whitespace().map(parse).collect();
    let all = flat(dirs, "cpuacct", "cpuacct.stat")?;
    let ticks = |name: &str| all.get(name).copied().unwrap_or(0).saturating_mul(TICK);
    (usage.user, usage.kernel) = (ticks("user"), ticks("system"));
    // `cpu user system`, then a line for each processor.
    let each = read(dirs, "cpuacct", "cpuacct.usage_all")?.unwrap_or_default();
    for line in each.lines().skip(1) {
        let mut numbers = line.split_whitespace().skip(1).map(parse);
        usage.percpu_user.extend(numbers.next());
        usage.percpu_kernel.extend(numbers.next());
    }
    Ok(())
}

pub(super) fn cpu(dirs: &Dirs, stats: &mut Stats) -> Result<()> {
    let all = flat(dirs, "cpu", "cpu.stat")?;
    let get = |name: &str| all.get(name).copied().unwrap_or(0);
    let throttling = &mut stats.cpu.throttling;
    throttling.periods = get("nr_periods");
    throttling.throttled_periods = get("nr_throttled");
    throttling.throttled_time = get("throttled_time");
    Ok(())
}

pub(super) fn cpuset(dirs: &Dirs, stats: &mut Stats) -> Result<()> {
    let read = |last: &str| read(dirs, "cpuset", &format!("cpuset.{last}"));
    let list =
        |last: &str| -> Result<Vec<u16>> { Ok(read(last)?.as_deref().and_then(numbers).unwrap_or_default()) };
    let number = |last: &str| -> Result<u64> { Ok(read(last)?.as_deref().map_or(0, parse)) };
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

pub(super) fn blkio(dirs: &Dirs, stats: &mut Stats) -> Result<()> {
    let list = |name: &str| -> Result<Vec<BlockIoEntry>> {
        let of = |part: &str| read(dirs, "blkio", &format!("blkio.{part}.{name}"));
        // BFQ counts only what goes through it.
        let bfq = of("bfq")?.map(|text| entries(&text)).unwrap_or_default();
        if bfq.is_empty() {
            Ok(of("throttle")?.map(|text| entries(&text)).unwrap_or_default())
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

/// Lines `8:0 Read 4096`, or `8:0 4096`; the last, `Total 4096`, is of no device.
fn entries(text: &str) -> Vec<BlockIoEntry> {
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (device, second) = (words.next()?, words.next()?);
        match words.next() {
            Some(value) => entry(device, second, parse(value)),
            None => entry(device, "", parse(second)),
        }
    });
    lines.collect()
}
