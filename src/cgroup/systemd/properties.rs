//! `linux.resources` as properties of a unit (systemd.resource-control(5)): systemd writes the same files, and
//! would undo at its next reload what it was not told.

use super::text;
use super::wire::Value;
use crate::cgroup::limits::{convert, numbers};
use crate::cgroup::place::{Place, Unit};
use crate::error::{Code, Error, Result};
use crate::host::cgroups::Version;
use oci_spec::runtime::{LinuxCpu, LinuxMemory, LinuxResources};

/// Name and value.
pub(super) type Property = (String, Value);

fn put(list: &mut Vec<Property>, name: &str, value: Value) {
    list.push((name.to_owned(), value));
}

/// Those of a new unit, but its resources.
pub(super) fn of_unit(place: &Place, unit: &Unit, id: &str, pid: i32) -> Result<Vec<Property>> {
    let v2 = place.directories.iter().all(|one| one.version == Version::V2);
    let mut list = Vec::new();
    put(&mut list, "Description", Value::text(format!("saggar container {id}")));
    if is_slice(unit) {
        put(&mut list, "Wants", Value::texts([unit.slice.as_str()]));
    } else {
        let pid = u32::try_from(pid).unwrap_or(0);
        put(&mut list, "Slice", Value::text(unit.slice.as_str()));
        put(&mut list, "Delegate", Value::Bool(true));
        put(&mut list, "PIDs", Value::Array("u".to_owned(), vec![Value::U32(pid)]));
        // So that a failed one does not keep its name.
        put(&mut list, "CollectMode", Value::text("inactive-or-failed"));
    }
    let io = if v2 { "IOAccounting" } else { "BlockIOAccounting" };
    for name in ["MemoryAccounting", "CPUAccounting", "TasksAccounting", io] {
        put(&mut list, name, Value::Bool(true));
    }
    put(&mut list, "DefaultDependencies", Value::Bool(false));
    list.extend(annotated(unit)?);
    Ok(list)
}

pub(super) fn is_slice(unit: &Unit) -> bool {
    std::path::Path::new(&unit.name).extension().is_some_and(|extension| extension == "slice")
}

/// Those that annotations ask for. `…Sec` in seconds is `…USec`.
pub(super) fn annotated(unit: &Unit) -> Result<Vec<Property>> {
    let mut list = Vec::new();
    for (name, value) in &unit.properties {
        let refuse = |why: String| {
            Error::new(Code::Invalid, format!("annotation org.systemd.property.{name}: {why}"))
                .hint("the name is that of a D-Bus property of the unit, the value as `busctl` and GVariant write it: 'text', true, uint64 5")
        };
        let is_name = name.len() > 2 && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_name || !name.starts_with(|c: char| c.is_ascii_uppercase()) {
            return Err(refuse("this is no name of a property".to_owned()));
        }
        let value = text::parse(value).map_err(refuse)?;
        list.push(match name.strip_suffix("Sec").filter(|stem| !stem.ends_with('U')) {
            Some(stem) => (format!("{stem}USec"), microseconds(&value).map_err(refuse)?),
            None => (name.clone(), value),
        });
    }
    Ok(list)
}

fn microseconds(value: &Value) -> Result<Value, String> {
    let seconds = match value {
        Value::I32(n) => f64::from(*n),
        Value::Double(n) => *n,
        other => match text::as_type(other.clone(), "t")? {
            Value::U64(n) => return Ok(Value::U64(n.saturating_mul(1_000_000))),
            other => return Err(format!("{other:?} is no number of seconds")),
        },
    };
    if !(0.0..1e12).contains(&seconds) {
        return Err(format!("{seconds} is no number of seconds"));
    }
    // Checked above.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Ok(Value::U64((seconds * 1e6) as u64))
}

/// Those of resources. `systemd` is its version: properties that it does not know are left to the files alone.
pub(super) fn of_resources(place: &Place, resources: &LinuxResources, systemd: u32) -> Vec<Property> {
    let mut list = Vec::new();
    let version = |controller: &str| place.home(controller).map(|home| home.version);
    if let (Some(memory), Some(version)) = (resources.memory(), version("memory")) {
        of_memory(memory, version, &mut list);
    }
    if let (Some(cpu), Some(version)) = (resources.cpu(), version("cpu")) {
        of_cpu(cpu, version, systemd, &mut list);
    }
    if let Some(pids) = resources.pids().filter(|pids| pids.limit() != 0) {
        put(&mut list, "TasksMax", or_infinity(pids.limit()));
    }
    let weight = resources.block_io().as_ref().and_then(|io| io.weight()).filter(|weight| *weight != 0);
    match (weight, version("io")) {
        (Some(weight), Some(Version::V2)) => {
            put(&mut list, "IOWeight", Value::U64(convert::io_weight(weight)));
        }
        (Some(weight), _) => put(&mut list, "BlockIOWeight", Value::U64(weight.into())),
        _ => {}
    }
    for (file, value) in resources.unified().iter().flatten() {
        list.extend(of_unified(file, value, systemd));
    }
    list
}

fn or_infinity(number: i64) -> Value {
    Value::U64(u64::try_from(number).unwrap_or(u64::MAX))
}

fn of_memory(memory: &LinuxMemory, version: Version, list: &mut Vec<Property>) {
    let asked = |value: Option<i64>| value.filter(|value| *value != 0).map(or_infinity);
    if version == Version::V1 {
        list.extend(asked(memory.limit()).map(|limit| ("MemoryLimit".to_owned(), limit)));
        return;
    }
    let swap = convert::swap(memory.swap(), memory.limit()).ok().flatten().map(or_infinity);
    let numbers = [
        ("MemoryMax", asked(memory.limit())),
        ("MemoryLow", asked(memory.reservation())),
        ("MemorySwapMax", swap),
    ];
    list.extend(numbers.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
}

fn of_cpu(cpu: &LinuxCpu, version: Version, systemd: u32, list: &mut Vec<Property>) {
    if let Some(shares) = cpu.shares().filter(|shares| *shares != 0) {
        match version {
            Version::V1 => put(list, "CPUShares", Value::U64(shares)),
            Version::V2 => put(list, "CPUWeight", Value::U64(convert::cpu_weight(shares))),
        }
    }
    let period = cpu.period().filter(|period| *period != 0);
    if let Some(quota) = cpu.quota().filter(|quota| *quota != 0) {
        put(list, "CPUQuotaPerSecUSec", Value::U64(per_second(quota, period.unwrap_or(100_000))));
    }
    if let Some(period) = period.filter(|_| systemd >= 242) {
        put(list, "CPUQuotaPeriodUSec", Value::U64(period));
    }
    if version == Version::V2 && systemd >= 244 {
        for (name, set) in [("AllowedCPUs", cpu.cpus()), ("AllowedMemoryNodes", cpu.mems())] {
            let set = set.as_deref().filter(|set| !set.is_empty()).and_then(numbers);
            list.extend(set.map(|set| (name.to_owned(), mask(&set))));
        }
    }
}

/// Microseconds of processor time in a second, in systemd's steps of 10 ms, never less than what was asked for.
fn per_second(quota: i64, period: u64) -> u64 {
    let Ok(quota) = u64::try_from(quota) else { return u64::MAX };
    let time = u128::from(quota) * 1_000_000 / u128::from(period.max(1));
    u64::try_from(time.next_multiple_of(10_000)).unwrap_or(u64::MAX)
}

/// Numbers as a bit mask, the lowest byte first.
fn mask(numbers: &[u16]) -> Value {
    let mut bytes = vec![0u8; usize::from(numbers.last().copied().unwrap_or(0)) / 8 + 1];
    for number in numbers {
        bytes[usize::from(*number) / 8] |= 1 << (number % 8);
    }
    Value::Array("y".to_owned(), bytes.into_iter().map(Value::Byte).collect())
}

/// The property that a file of `unified` is, if it is one.
fn of_unified(file: &str, value: &str, systemd: u32) -> Vec<Property> {
    let value = value.trim();
    let number = if value == "max" { Some(u64::MAX) } else { value.parse().ok() };
    let one = |name: &str| number.map(|number| (name.to_owned(), Value::U64(number))).into_iter().collect();
    match file {
        "memory.max" => one("MemoryMax"),
        "memory.high" => one("MemoryHigh"),
        "memory.low" => one("MemoryLow"),
        "memory.min" => one("MemoryMin"),
        "memory.swap.max" => one("MemorySwapMax"),
        "pids.max" => one("TasksMax"),
        "cpu.weight" => one("CPUWeight"),
        "cpu.max" => {
            let mut words = value.split_whitespace();
            let quota =
                words.next().and_then(|word| if word == "max" { Some(-1) } else { word.parse().ok() });
            let period: u64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(100_000);
            let quota =
                quota.map(|quota| ("CPUQuotaPerSecUSec".to_owned(), Value::U64(per_second(quota, period))));
            let period = ("CPUQuotaPeriodUSec".to_owned(), Value::U64(period));
            quota.into_iter().chain((systemd >= 242).then_some(period)).collect()
        }
        "cpuset.cpus" | "cpuset.mems" if systemd >= 244 => {
            let name = if file == "cpuset.cpus" { "AllowedCPUs" } else { "AllowedMemoryNodes" };
            numbers(value).map(|set| (name.to_owned(), mask(&set))).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_rounded_up_to_systemds_steps() {
        assert_eq!(per_second(50_000, 100_000), 500_000);
        assert_eq!(per_second(1001, 100_000), 20_000);
        assert_eq!(per_second(-1, 100_000), u64::MAX);
    }

    #[test]
    fn a_set_is_a_mask_the_lowest_byte_first() {
        let bytes = |bytes: &[u8]| Value::Array("y".into(), bytes.iter().copied().map(Value::Byte).collect());
        assert_eq!(mask(&[0, 1, 8]), bytes(&[0b11, 0b1]));
        assert_eq!(mask(&[7]), bytes(&[0x80]));
    }

    #[test]
    fn seconds_become_microseconds() {
        let unit = |name: &str, value: &str| Unit {
            name: "x.scope".into(),
            slice: "system.slice".into(),
            user: false,
            properties: [(name.to_owned(), value.to_owned())].into(),
        };
        let property = |name: &str, value: &str| annotated(&unit(name, value)).map(|list| list[0].clone());
        assert_eq!(
            property("TimeoutStopSec", "1.5").unwrap(),
            ("TimeoutStopUSec".into(), Value::U64(1_500_000))
        );
        assert_eq!(
            property("TimeoutStopUSec", "uint64 7").unwrap(),
            ("TimeoutStopUSec".into(), Value::U64(7))
        );
        assert_eq!(
            property("After", "['a.service']").unwrap(),
            ("After".into(), Value::texts(["a.service"]))
        );
        for (name, value) in [
            ("after", "true"),
            ("After", "oops"),
            ("A b", "1"),
            ("TimeoutStopSec", "'x'"),
            ("TimeoutStopSec", "-1"),
        ] {
            assert_eq!(property(name, value).unwrap_err().code(), Code::Invalid, "{name} {value}");
        }
    }
}
