//! Plans the device nodes of a container and the links of /dev (config-linux.md, Devices and Default Devices).

use super::device::{DeviceNode, DeviceSource, ParentDevice, PlannedDevice};
use super::mount::{MountPlanner, OpenedTree};
use super::step::ContainerStep;
use super::{ContainerFacts, invalid};
use crate::plan::path::{c_path, c_string, relative_to_root};
use crate::spec::container::{ContainerMountKind, ContainerSpec, DeviceSpec, IdExtent, IdMaps, Namespace};
use saggar_sys::error::Result;
use std::path::Path;

/// Adds the steps for device nodes and the links of /dev. Nodes that the parent makes are added to its trees.
pub(super) fn device_steps(
    container: &ContainerSpec,
    facts: &ContainerFacts,
    mounts: &mut MountPlanner<'_>,
    steps: &mut Vec<ContainerStep>,
) -> Result<()> {
    for device in &container.devices {
        let node = DeviceNode {
            kind: device.kind,
            major: device.major,
            minor: device.minor,
            mode: device.mode,
            uid: device.uid,
            gid: device.gid,
        };
        let source = source(device, node, container, facts, mounts)?;
        let path = relative_to_root(&device.path)?;
        steps.push(ContainerStep::Device(Box::new(PlannedDevice { path, node, source })));
    }
    for (path, target) in &container.links {
        // The image's own ptmx would refer to the devpts where the image was built.
        let replace = path == Path::new("/dev/ptmx");
        steps.push(ContainerStep::Symlink {
            path: relative_to_root(path)?,
            target: c_path(target)?,
            replace,
        });
    }
    // A bind mount of the host's whole /dev has its own entries.
    let is_bind = |kind: &ContainerMountKind| matches!(kind, ContainerMountKind::Bind { .. });
    let host_dev =
        container.mounts.iter().any(|mount| mount.destination == Path::new("/dev") && is_bind(&mount.kind));
    if facts.kcore && !host_dev {
        let (path, target) = (c_string("dev/core")?, c_string("/proc/kcore")?);
        steps.push(ContainerStep::Symlink { path, target, replace: false });
    }
    Ok(())
}

fn source(
    device: &DeviceSpec,
    node: DeviceNode,
    container: &ContainerSpec,
    facts: &ContainerFacts,
    mounts: &mut MountPlanner<'_>,
) -> Result<DeviceSource> {
    if !container.namespaces.has(Namespace::User) || device.kind == libc::S_IFIFO {
        return Ok(DeviceSource::New);
    }
    let host = c_path(facts.host_devices.get(&device.path).unwrap_or(&device.path))?;
    match &container.id_maps {
        // The default devices of every host have this owner and mode.
        Some(ids) if mounts.parent_opens() && !device.is_default() => {
            let node = outside(device, node, ids)?;
            mounts.add_tree(OpenedTree::Device(ParentDevice { node, host })).map(DeviceSource::Received)
        }
        _ => Ok(DeviceSource::Host(host)),
    }
}

/// The node with the owner outside of the user namespace.
fn outside(device: &DeviceSpec, node: DeviceNode, ids: &IdMaps) -> Result<DeviceNode> {
    let find = |map: &[IdExtent], id: u32, what: &str| {
        let mut extents = map.iter();
        let outside = extents.find_map(|extent| {
            let offset = id.checked_sub(extent.inside).filter(|offset| *offset < extent.count)?;
            extent.outside.checked_add(offset)
        });
        outside.ok_or_else(|| {
            let message = format!("device {}: {what} {id} is not in the map", device.path.display());
            invalid(message).hint("give it an id that the user namespace has, or extend the map")
        })
    };
    Ok(DeviceNode {
        uid: find(&ids.uid, node.uid, "the uid")?,
        gid: if ids.gid.is_empty() { node.gid } else { find(&ids.gid, node.gid, "the gid")? },
        ..node
    })
}
