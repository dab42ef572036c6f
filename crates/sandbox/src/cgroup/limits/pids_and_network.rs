//! The parts of `linux.resources` with one number each: pids, huge pages, network, RDMA.

use super::{CgroupSettings, ExpectedValue, convert, invalid_value_error, v1_only_error, version};
use crate::cgroup::control_files::ControlFiles;
use crate::host::cgroups::CgroupVersion;
use oci_spec::runtime::{LinuxHugepageLimit, LinuxNetwork, LinuxPids, LinuxRdma};
use saggar_sys::error::Result;

/// A negative number means no limit (config-linux.md, PIDs).
pub(super) fn pids(pids: &LinuxPids, tree: &dyn ControlFiles, settings: &mut CgroupSettings) -> Result<()> {
    version(tree, "pids", "pids.limit")?;
    let limit = convert::pids_limit(pids.limit());
    let value = if limit < 0 { "max".to_owned() } else { limit.to_string() };
    settings.push("pids.limit", ("pids", "pids.max"), value, ExpectedValue::Number(1));
    Ok(())
}

pub(super) fn hugepages(
    limit: &LinuxHugepageLimit,
    tree: &dyn ControlFiles,
    settings: &mut CgroupSettings,
) -> Result<()> {
    let size = limit.page_size();
    let bytes = bytes(size).ok_or_else(|| {
        invalid_value_error(
            "hugepageLimits.pageSize",
            format!("{size:?} is no size of a page such as 2MB or 1GB"),
        )
    })?;
    let v2 = version(tree, "hugetlb", "hugepageLimits")? == CgroupVersion::V2;
    let value = match (limit.limit(), v2) {
        (..0, true) => "max".to_owned(),
        (limit, _) => limit.to_string(),
    };
    let end = if v2 { "max" } else { "limit_in_bytes" };
    for part in ["", "rsvd."] {
        let file = format!("hugetlb.{size}.{part}{end}");
        // Limits of reservations need Linux 5.7.
        if part.is_empty() || tree.has("hugetlb", &file) {
            settings.push("hugepageLimits", ("hugetlb", &file), &value, ExpectedValue::Number(bytes));
        }
    }
    Ok(())
}

/// The bytes of a size such as `64KB`, `2MB`, `1GB`.
fn bytes(size: &str) -> Option<u64> {
    let (number, unit) = size.split_at_checked(size.len().checked_sub(2)?)?;
    let shift = match unit {
        "KB" => 10,
        "MB" => 20,
        "GB" => 30,
        _ => return None,
    };
    let number: u64 = number.parse().ok().filter(|number| *number > 0)?;
    number.checked_shl(shift).filter(|bytes| bytes >> shift == number)
}

pub(super) fn network(
    network: &LinuxNetwork,
    tree: &dyn ControlFiles,
    settings: &mut CgroupSettings,
) -> Result<()> {
    let missing = |controller: &str, field: &str| match tree.version(controller) {
        None if tree.version("cgroup").is_some() => {
            Err(v1_only_error(field, ", or mark packets by their cgroup (nft socket cgroupv2)"))
        }
        _ => version(tree, controller, field).map(|_| ()),
    };
    if let Some(class) = network.class_id().filter(|class| *class != 0) {
        missing("net_cls", "network.classID")?;
        settings.push("network.classID", ("net_cls", "net_cls.classid"), class, ExpectedValue::Words);
    }
    for priority in network.priorities().iter().flatten() {
        missing("net_prio", "network.priorities")?;
        let text = format!("{} {}", priority.name(), priority.priority());
        let place = ("net_prio", "net_prio.ifpriomap");
        settings.push("network.priorities", place, &text, ExpectedValue::LineStart(text.clone()));
    }
    Ok(())
}

pub(super) fn rdma(
    device: &str,
    limit: &LinuxRdma,
    tree: &dyn ControlFiles,
    settings: &mut CgroupSettings,
) -> Result<()> {
    if device.is_empty() || device.contains(char::is_whitespace) {
        return Err(invalid_value_error("rdma", format!("{device:?} is no name of a device")));
    }
    version(tree, "rdma", "rdma")?;
    let parts = [("hca_handle", limit.hca_handles()), ("hca_object", limit.hca_objects())];
    let words: Vec<_> = parts.iter().filter_map(|(key, n)| n.map(|n| format!("{key}={n}"))).collect();
    if !words.is_empty() {
        let text = format!("{device} {}", words.join(" "));
        settings.push("rdma", ("rdma", "rdma.max"), text, ExpectedValue::ContainsWords);
    }
    Ok(())
}
