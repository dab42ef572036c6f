//! `linux.resources.memory`.

use super::{CgroupSettings, ExpectedValue, convert, invalid_value_error, v1_only_error, version};
use crate::cgroup::control_files::ControlFiles;
use crate::host::cgroups::CgroupVersion;
use oci_spec::runtime::LinuxMemory;
use saggar_sys::error::{Code, Error, Result};

const MEMORY: &str = "memory";

pub(super) fn lower(
    memory: &LinuxMemory,
    tree: &dyn ControlFiles,
    settings: &mut CgroupSettings,
) -> Result<()> {
    let numbers = [("limit", memory.limit()), ("reservation", memory.reservation()), ("swap", memory.swap())];
    for (name, value) in numbers {
        if value.is_some_and(|value| value < -1) {
            return Err(invalid_value_error(&format!("memory.{name}"), "is negative; -1 is no limit"));
        }
    }
    if !sets_anything(memory) {
        return Ok(());
    }
    let version = version(tree, MEMORY, "memory")?;
    if memory.kernel().is_some_and(|kernel| kernel > 0) {
        settings.warn("memory.kernel", "is ignored: the kernel has had no such limit since 5.16");
    }
    if memory.use_hierarchy() == Some(false) {
        settings.warn("memory.useHierarchy", "is ignored: the kernel always counts the cgroups below");
    }
    match version {
        CgroupVersion::V2 => v2(memory, tree, settings),
        CgroupVersion::V1 => v1(memory, tree, settings),
    }
}

/// Whether any field is set: some callers pass all fields as zeros.
fn sets_anything(memory: &LinuxMemory) -> bool {
    [memory.limit(), memory.reservation(), memory.swap(), memory.kernel(), memory.kernel_tcp()]
        .iter()
        .any(|value| value.is_some_and(|value| value != 0))
        || memory.swappiness().is_some()
        || memory.disable_oom_killer().is_some()
        || memory.use_hierarchy() == Some(false)
}

fn v2(memory: &LinuxMemory, tree: &dyn ControlFiles, settings: &mut CgroupSettings) -> Result<()> {
    let bytes = ExpectedValue::Number(page_size());
    if memory.disable_oom_killer() == Some(true) {
        return Err(v1_only_error(
            "memory.disableOOMKiller",
            ", or protect the program by process.oomScoreAdj",
        ));
    }
    if memory.swappiness().is_some() {
        return Err(v1_only_error("memory.swappiness", ", or bound swap by memory.swap"));
    }
    if memory.kernel_tcp().is_some_and(|bytes| bytes > 0) {
        settings.warn("memory.kernelTCP", "is ignored: cgroup v2 counts the buffers of TCP in memory.limit");
    }
    let swap = convert::swap(memory.swap(), memory.limit())
        .map_err(|why| invalid_value_error("memory.swap", why))?;
    if let Some(limit) = nonzero(memory.limit())
        && memory.check_before_update() == Some(true)
    {
        check_usage(limit, tree.read(MEMORY, "memory.current").ok())?;
    }
    if let Some(swap) = swap {
        // A kernel without swap accounting has no such file; without swap there is nothing to limit.
        let is_there = tree.has(MEMORY, "memory.swap.max") || !tree.has(MEMORY, "memory.max");
        if is_there || swap > 0 {
            settings.push("memory.swap", (MEMORY, "memory.swap.max"), or_max(swap), bytes.clone());
        } else {
            settings.warn("memory.swap", "is not set: this kernel does not count swap");
        }
    }
    if let Some(limit) = nonzero(memory.limit()) {
        settings.push("memory.limit", (MEMORY, "memory.max"), or_max(limit), bytes.clone());
    }
    if let Some(low) = nonzero(memory.reservation()) {
        settings.push("memory.reservation", (MEMORY, "memory.low"), or_max(low), bytes);
    }
    Ok(())
}

fn v1(memory: &LinuxMemory, tree: &dyn ControlFiles, settings: &mut CgroupSettings) -> Result<()> {
    let bytes = ExpectedValue::Number(page_size());
    let (limit, mut swap) = (nonzero(memory.limit()), nonzero(memory.swap()));
    if let (Some(limit), Some(swap)) = (limit, swap)
        && swap != -1
        && (limit == -1 || swap < limit)
    {
        return Err(invalid_value_error(
            "memory.swap",
            "is memory and swap together, and less than memory.limit",
        ));
    }
    let counts_swap = tree.has(MEMORY, "memory.memsw.limit_in_bytes");
    if limit == Some(-1) && swap.is_none() && counts_swap {
        swap = Some(-1);
    }
    if swap == Some(-1) && !counts_swap {
        swap = None;
    }
    if let Some(limit) = limit
        && memory.check_before_update() == Some(true)
    {
        check_usage(limit, tree.read(MEMORY, "memory.usage_in_bytes").ok())?;
    }
    let of_limit = limit.map(|limit| ("memory.limit", "memory.limit_in_bytes", limit));
    let of_swap = swap.map(|swap| ("memory.swap", "memory.memsw.limit_in_bytes", swap));
    // The memory limit may never exceed the limit of memory plus swap. So if the limits grow, the outer one is written
    // first.
    let now = tree.read(MEMORY, "memory.memsw.limit_in_bytes").ok().and_then(|text| text.parse::<u64>().ok());
    let grows =
        swap.is_some_and(|swap| u64::try_from(swap).is_ok_and(|swap| now.is_some_and(|now| swap > now)));
    let order = if swap == Some(-1) || grows { [of_swap, of_limit] } else { [of_limit, of_swap] };
    for (field, file, value) in order.into_iter().flatten() {
        settings.push(field, (MEMORY, file), value, bytes.clone());
    }
    if let Some(soft) = nonzero(memory.reservation()) {
        settings.push("memory.reservation", (MEMORY, "memory.soft_limit_in_bytes"), soft, bytes.clone());
    }
    if let Some(tcp) = nonzero(memory.kernel_tcp()) {
        settings.push("memory.kernelTCP", (MEMORY, "memory.kmem.tcp.limit_in_bytes"), tcp, bytes);
    }
    if let Some(swappiness) = memory.swappiness() {
        if swappiness > 100 {
            return Err(invalid_value_error("memory.swappiness", format!("is {swappiness}, of 0 to 100")));
        }
        settings.push("memory.swappiness", (MEMORY, "memory.swappiness"), swappiness, ExpectedValue::Words);
    }
    if let Some(disable) = memory.disable_oom_killer() {
        let is_on =
            tree.read(MEMORY, "memory.oom_control").is_ok_and(|text| text.contains("oom_kill_disable 1"));
        // Hierarchical accounting is on by default; some kernels have no other mode.
        if disable || is_on {
            let value = u8::from(disable);
            let expect = ExpectedValue::LineStart(format!("oom_kill_disable {value}"));
            settings.push("memory.disableOOMKiller", (MEMORY, "memory.oom_control"), value, expect);
        }
    }
    Ok(())
}

/// The number, unless it is 0: callers pass 0 for an unset field.
fn nonzero(value: Option<i64>) -> Option<i64> {
    value.filter(|value| *value != 0)
}

fn or_max(value: i64) -> String {
    if value < 0 { "max".to_owned() } else { value.to_string() }
}

/// Rejects a limit below the current usage, which v2 would enforce by killing processes.
fn check_usage(limit: i64, used: Option<String>) -> Result<()> {
    let used: i64 = used.and_then(|text| text.parse().ok()).unwrap_or(0);
    if limit < 0 || used <= limit {
        return Ok(());
    }
    let message = format!("linux.resources.memory.limit = {limit} cannot hold: {used} bytes are in use");
    Err(Error::new(Code::Refused, message)
        .hint("free memory in the container first, or leave memory.checkBeforeUpdate out to have it killed"))
}

/// The page size in bytes.
pub(in crate::cgroup) fn page_size() -> u64 {
    let size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    size.and_then(|size| u64::try_from(size).ok()).unwrap_or(4096)
}
