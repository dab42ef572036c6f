//! `saggar update`: changes the limits of an existing container.

use super::container::{ContainerStatus, LoadedContainer};
use super::{OciContext, wrong_status_error};
use crate::cli::oci::UpdateArgs;
use crate::error::{Code, Error, Result};
use crate::spec::oci;
use serde_json::{Map, Value, json};
use std::io::Read;
use std::path::Path;

/// Maximum size of standard input, in bytes.
const MAX_INPUT: u64 = 16 << 20;

pub(super) fn run(context: &OciContext, args: &UpdateArgs) -> Result<u8> {
    let directory = context.find(&args.id)?;
    let bytes = match &args.resources {
        Some(file) if file == Path::new("-") => standard_input()?,
        Some(file) => oci::load::read_document(file)?,
        None => options_as_resources(args)?.to_string().into_bytes(),
    };
    set_limits(&LoadedContainer::load(directory)?, &bytes)?;
    Ok(0)
}

/// Sets the limits of `linux.resources` in JSON: all of them, or none.
///
/// # Errors
/// [`Code::Refused`] if the container is not created, running or paused. The first limit that is not in force, with
/// its file, its value and a hint.
pub(super) fn set_limits(found: &LoadedContainer, resources: &[u8]) -> Result<()> {
    let resources = oci::parse_resources(resources)?;
    // The status is read after the lock is taken, because an earlier result may be stale.
    let _held = found.directory.lock_or_fail()?;
    let found = LoadedContainer::load(found.directory.clone())?;
    match found.status() {
        ContainerStatus::Created | ContainerStatus::Running | ContainerStatus::Paused => {}
        status => return Err(wrong_status_error("update", found.directory.id(), status)),
    }
    let mut group = found.group()?;
    group.apply(&resources)?;
    for warning in group.warnings() {
        log::warn!("{warning}");
    }
    Ok(())
}

fn standard_input() -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().take(MAX_INPUT + 1).read_to_end(&mut bytes);
    let read = read.map_err(|e| Error::system("read resources from standard input", e))?;
    if read as u64 > MAX_INPUT {
        return Err(Error::new(Code::Invalid, "the resources on standard input have more than 16 MiB"));
    }
    Ok(bytes)
}

/// Converts the options to the equivalent JSON.
fn options_as_resources(args: &UpdateArgs) -> Result<Value> {
    for (name, given) in
        [("l3-cache-schema", args.l3_cache_schema.is_some()), ("mem-bw-schema", args.mem_bw_schema.is_some())]
    {
        if given {
            return Err(Error::new(
                Code::Unsupported,
                format!("--{name}: a container's resctrl group cannot be changed"),
            )
            .hint("set linux.intelRdt when the container is created"));
        }
    }
    if args.kernel_memory.is_some() || args.kernel_memory_tcp.is_some() {
        log::warn!("limits of kernel memory are gone from the kernel, and are passed over");
    }
    let mut all = Map::new();
    let mut set = |section: &str, name: &str, value: Option<Value>| {
        if let Some(value) = value {
            all.entry(section).or_insert_with(|| json!({}))[name] = value;
        }
    };
    let number = |value: Option<i64>| value.map(Value::from);
    set("blockIO", "weight", args.blkio_weight.map(Value::from));
    set("cpu", "period", args.cpu_period.map(Value::from));
    set("cpu", "quota", number(args.cpu_quota));
    set("cpu", "burst", args.cpu_burst.map(Value::from));
    set("cpu", "shares", args.cpu_share.map(Value::from));
    set("cpu", "realtimePeriod", args.cpu_rt_period.map(Value::from));
    set("cpu", "realtimeRuntime", number(args.cpu_rt_runtime));
    set("cpu", "idle", number(args.cpu_idle));
    set("cpu", "cpus", args.cpuset_cpus.clone().map(Value::from));
    set("cpu", "mems", args.cpuset_mems.clone().map(Value::from));
    set("memory", "limit", number(args.memory));
    set("memory", "reservation", number(args.memory_reservation));
    set("memory", "swap", number(args.memory_swap));
    set("pids", "limit", number(args.pids_limit));
    if all.is_empty() {
        return Err(Error::new(Code::Usage, "update: no limit is named")
            .hint("give --resources FILE, or options such as --memory"));
    }
    Ok(Value::Object(all))
}
