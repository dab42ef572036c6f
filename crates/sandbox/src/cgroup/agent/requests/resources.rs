//! Limits of a sandbox as `linux.resources` of a container (OCI runtime specification, config-linux.md).

use super::DiskNumber;
use crate::spec::{CPU_PERIOD_US, CpusetList, HugePageSize, LimitsSpec};
use oci_spec::runtime::{
    LinuxBlockIo, LinuxCpu, LinuxHugepageLimit, LinuxMemory, LinuxPids, LinuxResources,
    LinuxThrottleDeviceBuilder,
};

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Memory, in version 2, where swap has a limit of its own.
pub(super) fn memory(limit: u64) -> LinuxResources {
    let mut memory = LinuxMemory::default();
    memory.set_limit(Some(signed(limit)));
    of_memory(memory)
}

/// Memory and swap in version 1, which limits their sum. Where the kernel does not count swap, none is used beside limited
/// memory.
pub(super) fn memory_and_swap(limits: &LimitsSpec, counts_swap: bool) -> LinuxResources {
    let (limit, swap) = (limits.memory.as_ref(), limits.swap.as_ref());
    let mut memory = LinuxMemory::default();
    memory.set_limit(limit.map(|limit| signed(limit.value)));
    if counts_swap && (limit.is_some() || swap.is_some()) {
        let both = limit.map_or(0, |limit| limit.value).saturating_add(swap.map_or(0, |swap| swap.value));
        memory.set_swap(Some(signed(both)));
    }
    if !counts_swap && limit.is_some() && swap.is_none() {
        memory.set_swappiness(Some(0));
    }
    of_memory(memory)
}

fn of_memory(memory: LinuxMemory) -> LinuxResources {
    let mut resources = LinuxResources::default();
    resources.set_memory(Some(memory));
    resources
}

/// The quota of CPU time, its burst, and whether programs run only on idle CPUs.
pub(super) fn cpu_time(limits: &LimitsSpec) -> LinuxResources {
    let mut cpu = LinuxCpu::default();
    if let Some(limit) = &limits.cpu_milli {
        cpu.set_quota(Some(signed(limit.value.saturating_mul(CPU_PERIOD_US) / 1000)));
        cpu.set_period(Some(CPU_PERIOD_US));
    }
    cpu.set_burst(limits.cpu_burst.as_ref().map(|limit| limit.value));
    cpu.set_idle(limits.cpu_idle.as_ref().map(|limit| limit.value.into()));
    of_cpu(cpu)
}

/// A weight of 1 to 10000 for CPU time, in version 1.
pub(super) fn cpu_shares(weight: u64) -> LinuxResources {
    let mut cpu = LinuxCpu::default();
    // 1024 shares are the default, as a weight of 100 is; the least are 2.
    cpu.set_shares(Some((weight * 1024 / 100).max(2)));
    of_cpu(cpu)
}

pub(super) fn cpus(list: &CpusetList) -> LinuxResources {
    let mut cpu = LinuxCpu::default();
    cpu.set_cpus(Some(list.to_string()));
    of_cpu(cpu)
}

pub(super) fn memory_nodes(list: &CpusetList) -> LinuxResources {
    let mut cpu = LinuxCpu::default();
    cpu.set_mems(Some(list.to_string()));
    of_cpu(cpu)
}

fn of_cpu(cpu: LinuxCpu) -> LinuxResources {
    let mut resources = LinuxResources::default();
    resources.set_cpu(Some(cpu));
    resources
}

pub(super) fn pids(limit: u64) -> LinuxResources {
    let mut pids = LinuxPids::default();
    pids.set_limit(signed(limit));
    let mut resources = LinuxResources::default();
    resources.set_pids(Some(pids));
    resources
}

/// Huge pages of one size, in bytes.
pub(super) fn huge_pages(size: &HugePageSize, bytes: u64) -> LinuxResources {
    let mut limit = LinuxHugepageLimit::default();
    limit.set_page_size(size.to_string()).set_limit(signed(bytes));
    let mut resources = LinuxResources::default();
    resources.set_hugepage_limits(Some(vec![limit]));
    resources
}

/// A rate per second of one disk, by its key in io.max.
///
/// # Errors
/// If the library does not accept the device.
pub(super) fn disk_rate(disk: DiskNumber, key: &str, rate: u64) -> Result<LinuxResources, String> {
    let device = LinuxThrottleDeviceBuilder::default().major(disk.major).minor(disk.minor).rate(rate).build();
    let devices = Some(vec![device.map_err(|error| error.to_string())?]);
    let mut io = LinuxBlockIo::default();
    match key {
        "rbps" => io.set_throttle_read_bps_device(devices),
        "wbps" => io.set_throttle_write_bps_device(devices),
        "riops" => io.set_throttle_read_iops_device(devices),
        _ => io.set_throttle_write_iops_device(devices),
    };
    let mut resources = LinuxResources::default();
    resources.set_block_io(Some(io));
    Ok(resources)
}
