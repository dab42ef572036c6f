//! `linux.resources` as properties of a unit (systemd.resource-control(5)). systemd writes the same files, and at its
//! next reload would undo limits that are not properties.

use super::text;
use super::wire::DbusValue;
use crate::cgroup::limits::{convert, parse_number_list};
use crate::cgroup::location::{CgroupLocation, SystemdUnit};
use crate::host::cgroups::CgroupVersion;
use oci_spec::runtime::{LinuxCpu, LinuxMemory, LinuxResources};
use saggar_sys::error::{Code, Error, Result};

/// Name and value of a property.
pub(super) type SystemdProperty = (String, DbusValue);

pub(super) fn push_property(list: &mut Vec<SystemdProperty>, name: &str, value: DbusValue) {
    list.push((name.to_owned(), value));
}

/// The properties of a new unit, except its resources.
pub(super) fn unit_properties(
    location: &CgroupLocation,
    unit: &SystemdUnit,
    id: &str,
    pid: i32,
) -> Result<Vec<SystemdProperty>> {
    let v2 = location.directories.iter().all(|one| one.version == CgroupVersion::V2);
    let mut list = Vec::new();
    push_property(&mut list, "Description", DbusValue::text(format!("saggar container {id}")));
    if is_slice(unit) {
        push_property(&mut list, "Wants", DbusValue::texts([unit.slice.as_str()]));
    } else {
        let pid = u32::try_from(pid).unwrap_or(0);
        push_property(&mut list, "Slice", DbusValue::text(unit.slice.as_str()));
        push_property(&mut list, "Delegate", DbusValue::Bool(true));
        push_property(&mut list, "PIDs", DbusValue::Array("u".to_owned(), vec![DbusValue::U32(pid)]));
        // Unloads a failed unit, so that it does not keep its name.
        push_property(&mut list, "CollectMode", DbusValue::text("inactive-or-failed"));
    }
    let io = if v2 { "IOAccounting" } else { "BlockIOAccounting" };
    for name in ["MemoryAccounting", "CPUAccounting", "TasksAccounting", io] {
        push_property(&mut list, name, DbusValue::Bool(true));
    }
    push_property(&mut list, "DefaultDependencies", DbusValue::Bool(false));
    list.extend(annotation_properties(unit)?);
    Ok(list)
}

pub(super) fn is_slice(unit: &SystemdUnit) -> bool {
    std::path::Path::new(&unit.name).extension().is_some_and(|extension| extension == "slice")
}

/// The properties from annotations. `…Sec` in seconds becomes `…USec`.
pub(super) fn annotation_properties(unit: &SystemdUnit) -> Result<Vec<SystemdProperty>> {
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

fn microseconds(value: &DbusValue) -> Result<DbusValue, String> {
    let seconds = match value {
        DbusValue::I32(n) => f64::from(*n),
        DbusValue::Double(n) => *n,
        other => match text::convert_to(other.clone(), "t")? {
            DbusValue::U64(n) => return Ok(DbusValue::U64(n.saturating_mul(1_000_000))),
            other => return Err(format!("{other:?} is no number of seconds")),
        },
    };
    if !(0.0..1e12).contains(&seconds) {
        return Err(format!("{seconds} is no number of seconds"));
    }
    // The range is checked above.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Ok(DbusValue::U64((seconds * 1e6) as u64))
}

/// The properties for resources. `systemd` is its version: limits whose property it does not support are only written
/// to the files.
pub(super) fn resource_properties(
    location: &CgroupLocation,
    resources: &LinuxResources,
    systemd: u32,
) -> Vec<SystemdProperty> {
    let mut list = Vec::new();
    let version = |controller: &str| location.directory_for(controller).map(|home| home.version);
    if let (Some(memory), Some(version)) = (resources.memory(), version("memory")) {
        memory_properties(memory, version, &mut list);
    }
    if let (Some(cpu), Some(version)) = (resources.cpu(), version("cpu")) {
        cpu_properties(cpu, version, systemd, &mut list);
    }
    if let Some(pids) = resources.pids() {
        push_property(&mut list, "TasksMax", or_infinity(convert::pids_limit(pids.limit())));
    }
    let weight = resources.block_io().as_ref().and_then(|io| io.weight()).filter(|weight| *weight != 0);
    match (weight, version("io")) {
        (Some(weight), Some(CgroupVersion::V2)) => {
            push_property(&mut list, "IOWeight", DbusValue::U64(convert::io_weight(weight)));
        }
        (Some(weight), _) => push_property(&mut list, "BlockIOWeight", DbusValue::U64(weight.into())),
        _ => {}
    }
    for (file, value) in resources.unified().iter().flatten() {
        list.extend(unified_properties(file, value, systemd));
    }
    list
}

fn or_infinity(number: i64) -> DbusValue {
    DbusValue::U64(u64::try_from(number).unwrap_or(u64::MAX))
}

fn memory_properties(memory: &LinuxMemory, version: CgroupVersion, list: &mut Vec<SystemdProperty>) {
    let nonzero = |value: Option<i64>| value.filter(|value| *value != 0).map(or_infinity);
    if version == CgroupVersion::V1 {
        list.extend(nonzero(memory.limit()).map(|limit| ("MemoryLimit".to_owned(), limit)));
        return;
    }
    let swap = convert::swap(memory.swap(), memory.limit()).ok().flatten().map(or_infinity);
    let numbers = [
        ("MemoryMax", nonzero(memory.limit())),
        ("MemoryLow", nonzero(memory.reservation())),
        ("MemorySwapMax", swap),
    ];
    list.extend(numbers.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
}

fn cpu_properties(cpu: &LinuxCpu, version: CgroupVersion, systemd: u32, list: &mut Vec<SystemdProperty>) {
    if let Some(shares) = cpu.shares().filter(|shares| *shares != 0) {
        match version {
            CgroupVersion::V1 => push_property(list, "CPUShares", DbusValue::U64(shares)),
            CgroupVersion::V2 => {
                push_property(list, "CPUWeight", DbusValue::U64(convert::cpu_weight(shares)))
            }
        }
    }
    let period = cpu.period().filter(|period| *period != 0);
    if let Some(quota) = cpu.quota().filter(|quota| *quota != 0) {
        push_property(
            list,
            "CPUQuotaPerSecUSec",
            DbusValue::U64(per_second(quota, period.unwrap_or(100_000))),
        );
    }
    if let Some(period) = period.filter(|_| systemd >= 242) {
        push_property(list, "CPUQuotaPeriodUSec", DbusValue::U64(period));
    }
    if version == CgroupVersion::V2 && systemd >= 244 {
        for (name, set) in [("AllowedCPUs", cpu.cpus()), ("AllowedMemoryNodes", cpu.mems())] {
            let set = set.as_deref().filter(|set| !set.is_empty()).and_then(parse_number_list);
            list.extend(set.map(|set| (name.to_owned(), bit_mask(&set))));
        }
    }
}

/// Microseconds of CPU time for each second, in systemd's steps of 10 ms, rounded up.
fn per_second(quota: i64, period: u64) -> u64 {
    let Ok(quota) = u64::try_from(quota) else { return u64::MAX };
    let time = u128::from(quota) * 1_000_000 / u128::from(period.max(1));
    u64::try_from(time.next_multiple_of(10_000)).unwrap_or(u64::MAX)
}

/// Numbers as a bit mask, the lowest byte first.
fn bit_mask(numbers: &[u16]) -> DbusValue {
    let mut bytes = vec![0u8; usize::from(numbers.last().copied().unwrap_or(0)) / 8 + 1];
    for number in numbers {
        bytes[usize::from(*number) / 8] |= 1 << (number % 8);
    }
    DbusValue::Array("y".to_owned(), bytes.into_iter().map(DbusValue::Byte).collect())
}

/// The properties that correspond to a file of `unified`, if any.
fn unified_properties(file: &str, value: &str, systemd: u32) -> Vec<SystemdProperty> {
    let value = value.trim();
    let number = if value == "max" { Some(u64::MAX) } else { value.parse().ok() };
    let one =
        |name: &str| number.map(|number| (name.to_owned(), DbusValue::U64(number))).into_iter().collect();
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
            let quota = quota
                .map(|quota| ("CPUQuotaPerSecUSec".to_owned(), DbusValue::U64(per_second(quota, period))));
            let period = ("CPUQuotaPeriodUSec".to_owned(), DbusValue::U64(period));
            quota.into_iter().chain((systemd >= 242).then_some(period)).collect()
        }
        "cpuset.cpus" | "cpuset.mems" if systemd >= 244 => {
            let name = if file == "cpuset.cpus" { "AllowedCPUs" } else { "AllowedMemoryNodes" };
            parse_number_list(value).map(|set| (name.to_owned(), bit_mask(&set))).into_iter().collect()
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
        let bytes =
            |bytes: &[u8]| DbusValue::Array("y".into(), bytes.iter().copied().map(DbusValue::Byte).collect());
        assert_eq!(bit_mask(&[0, 1, 8]), bytes(&[0b11, 0b1]));
        assert_eq!(bit_mask(&[7]), bytes(&[0x80]));
    }

    #[test]
    fn seconds_become_microseconds() {
        let unit = |name: &str, value: &str| SystemdUnit {
            name: "x.scope".into(),
            slice: "system.slice".into(),
            user: false,
            properties: [(name.to_owned(), value.to_owned())].into(),
        };
        let property =
            |name: &str, value: &str| annotation_properties(&unit(name, value)).map(|list| list[0].clone());
        assert_eq!(
            property("TimeoutStopSec", "1.5").unwrap(),
            ("TimeoutStopUSec".into(), DbusValue::U64(1_500_000))
        );
        assert_eq!(
            property("TimeoutStopUSec", "uint64 7").unwrap(),
            ("TimeoutStopUSec".into(), DbusValue::U64(7))
        );
        assert_eq!(
            property("After", "['a.service']").unwrap(),
            ("After".into(), DbusValue::texts(["a.service"]))
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
