//! `saggar update`: limits of a container that stands.

use super::container::{Found, Status};
use super::{Context, wrong_status};
use crate::cli::oci::UpdateArgs;
use crate::error::{Code, Error, Result};
use crate::spec::oci;
use serde_json::{Map, Value, json};
use std::io::Read;
use std::path::Path;

/// The most that is read from standard input.
const LIMIT: u64 = 16 << 20;

pub(super) fn run(context: &Context, args: &UpdateArgs) -> Result<u8> {
    let directory = context.find(&args.id)?;
    let bytes = match &args.resources {
        Some(file) if file == Path::new("-") => standard_input()?,
        Some(file) => oci::load::document(file)?,
        None => of_options(args)?.to_string().into_bytes(),
    };
    change(&Found::new(directory)?, &bytes)?;
    Ok(0)
}

/// Sets the limits of `linux.resources`, this JSON: all of them, or none.
///
/// # Errors
/// [`Code::Refused`] for a container that does not stand; the first limit that does not hold: its file, its value, and
/// the cure.
pub(super) fn change(found: &Found, resources: &[u8]) -> Result<()> {
    let resources = oci::resources(resources)?;
    // Nothing of an earlier moment counts once the lock is ours.
    let _held = found.directory.must_lock()?;
    let found = Found::new(found.directory.clone())?;
    match found.status() {
        Status::Created | Status::Running | Status::Paused => {}
        status => return Err(wrong_status("update", found.directory.id(), status)),
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
    let read = std::io::stdin().lock().take(LIMIT + 1).read_to_end(&mut bytes);
    let read = read.map_err(|e| Error::system("read resources from standard input", e))?;
    if read as u64 > LIMIT {
        return Err(Error::new(Code::Invalid, "the resources on standard input have more than 16 MiB"));
    }
    Ok(bytes)
}

/// The options, as the JSON that stands for them.
fn of_options(args: &UpdateArgs) -> Result<Value> {
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
