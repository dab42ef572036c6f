//! `linux.netDevices`: network devices of the host that move into the container.

use crate::error::{Code, Error, Result};
use std::collections::BTreeMap;

/// Moves each device into the network namespace of `pid`, under its new name.
pub(super) fn hand_over(devices: &BTreeMap<String, String>, _pid: i32) -> Result<()> {
    match devices.keys().next() {
        None => Ok(()),
        Some(name) => Err(Error::new(Code::Unsupported, format!("linux.netDevices {name}: not built yet"))),
    }
}
