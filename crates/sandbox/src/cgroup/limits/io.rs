//! `linux.resources.blockIO`.

use super::{CgroupSettings, ExpectedValue, convert, invalid_value_error, v1_only_error, version};
use crate::cgroup::control_files::ControlFiles;
use crate::host::cgroups::CgroupVersion;
use oci_spec::runtime::{LinuxBlockIo, LinuxThrottleDevice};
use saggar_sys::error::Result;

/// The controller's name in v1.
const V1: &str = "blkio";
const V2: &str = "io";

pub(super) fn lower(io: &LinuxBlockIo, tree: &dyn ControlFiles, settings: &mut CgroupSettings) -> Result<()> {
    let throttles = [
        ("throttleReadBpsDevice", io.throttle_read_bps_device(), "read_bps_device", "rbps"),
        ("throttleWriteBpsDevice", io.throttle_write_bps_device(), "write_bps_device", "wbps"),
        ("throttleReadIOPSDevice", io.throttle_read_iops_device(), "read_iops_device", "riops"),
        ("throttleWriteIOPSDevice", io.throttle_write_iops_device(), "write_iops_device", "wiops"),
    ];
    let weights = io.weight_device().iter().flatten();
    let leaf = io.leaf_weight().is_some_and(|weight| weight != 0)
        || weights.clone().any(|device| device.leaf_weight().is_some_and(|weight| weight != 0));
    let says_anything = io.weight().is_some_and(|weight| weight != 0)
        || leaf
        || weights.clone().next().is_some()
        || throttles.iter().any(|(_, list, ..)| list.iter().flatten().next().is_some());
    if !says_anything {
        return Ok(());
    }
    let v2 = match tree.version(V1) {
        Some(_) => false,
        None => version(tree, V2, "blockIO")? == CgroupVersion::V2,
    };
    if leaf && (v2 || !tree.has(V1, "blkio.leaf_weight")) {
        return Err(v1_only_error("blockIO.leafWeight", " (it went with the CFQ scheduler in Linux 5.0)"));
    }
    weight(io, v2, tree, settings)?;
    for (field, list, file, key) in throttles {
        for device in list.iter().flatten() {
            throttle(&format!("blockIO.{field}"), device, v2, (file, key), settings);
        }
    }
    Ok(())
}

/// Weights, those of the BFQ scheduler if it is active, as in runc and crun.
fn weight(io: &LinuxBlockIo, v2: bool, tree: &dyn ControlFiles, settings: &mut CgroupSettings) -> Result<()> {
    let check = |field: &str, weight: Option<u16>| match weight.filter(|weight| *weight != 0) {
        Some(weight) if !(10..=1000).contains(&weight) => {
            Err(invalid_value_error(field, format!("is {weight}, of 10 to 1000")))
        }
        weight => Ok(weight),
    };
    let bfq = if v2 { tree.has(V2, "io.bfq.weight") } else { tree.has(V1, "blkio.bfq.weight") };
    let (file, of_devices) = match (v2, bfq) {
        (true, true) => ("io.bfq.weight", "io.bfq.weight"),
        (true, false) => ("io.weight", "io.weight"),
        (false, true) => ("blkio.bfq.weight", "blkio.bfq.weight_device"),
        (false, false) => ("blkio.weight", "blkio.weight_device"),
    };
    let controller = if v2 { V2 } else { V1 };
    let number = |weight: u16| if v2 && !bfq { convert::io_weight(weight) } else { u64::from(weight) };
    if let Some(weight) = check("blockIO.weight", io.weight())? {
        let number = number(weight);
        let expect =
            if v2 { ExpectedValue::LineStart(format!("default {number}")) } else { ExpectedValue::Words };
        settings.push("blockIO.weight", (controller, file), number, expect);
    }
    for device in io.weight_device().iter().flatten() {
        let at = format!("{}:{}", device.major(), device.minor());
        if let Some(weight) = check("blockIO.weightDevice.weight", device.weight())? {
            let text = format!("{at} {}", number(weight));
            let place = (controller, of_devices);
            settings.push("blockIO.weightDevice", place, &text, ExpectedValue::LineStart(text.clone()));
        }
        let leaf = check("blockIO.weightDevice.leafWeight", device.leaf_weight())?;
        if let Some(leaf) = leaf {
            let text = format!("{at} {leaf}");
            let place = (controller, "blkio.leaf_weight_device");
            settings.push("blockIO.weightDevice", place, &text, ExpectedValue::LineStart(text.clone()));
        }
    }
    if let Some(leaf) = check("blockIO.leafWeight", io.leaf_weight())? {
        settings.push("blockIO.leafWeight", (controller, "blkio.leaf_weight"), leaf, ExpectedValue::Words);
    }
    Ok(())
}

fn throttle(
    field: &str,
    device: &LinuxThrottleDevice,
    v2: bool,
    (file, key): (&str, &'static str),
    settings: &mut CgroupSettings,
) {
    let (at, rate) = (format!("{}:{}", device.major(), device.minor()), device.rate());
    if v2 {
        let value = if rate == 0 { "max".to_owned() } else { rate.to_string() };
        let text = format!("{at} {key}={value}");
        settings.push(field, (V2, "io.max"), text, ExpectedValue::DeviceKey { device: at, key, value });
    } else {
        let text = format!("{at} {rate}");
        let expect =
            if rate == 0 { ExpectedValue::NoDeviceLine(at) } else { ExpectedValue::LineStart(text.clone()) };
        settings.push(field, (V1, &format!("blkio.throttle.{file}")), text, expect);
    }
}
