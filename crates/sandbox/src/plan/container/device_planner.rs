//! Plans the device nodes of a container and the links of /dev (config-linux.md, Devices and Default Devices).

use super::ContainerFacts;
use super::device::{DeviceNode, DeviceSource, ParentDevice, PlannedDevice};
use super::mount::{MountPlanner, OpenedTree};
use super::step::ContainerStep;
use crate::plan::path::{c_path, c_string, relative_to_root};
use crate::spec::container::{ContainerMountKind, ContainerSpec, DeviceSpec, IdExtent, IdMaps, Namespace};
use saggar_sys::error::Result;
use std::path::Path;

/// Adds the steps for device nodes and the links of /dev. Nodes that the parent makes are added to its trees.
pub(super) fn device_steps(
    container: &ContainerSpec,
    facts: &ContainerFacts,
    mounts: &mut MountPlanner<'_>,
    (steps, warnings): (&mut Vec<ContainerStep>, &mut Vec<String>),
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
        let source = source(device, node, container, (facts, mounts, warnings))?;
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
    (facts, mounts, warnings): (&ContainerFacts, &mut MountPlanner<'_>, &mut Vec<String>),
) -> Result<DeviceSource> {
    if !container.namespaces.has(Namespace::User) || device.kind == libc::S_IFIFO {
        return Ok(DeviceSource::New);
    }
    let host = c_path(facts.host_devices.get(&device.path).unwrap_or(&device.path))?;
    let ids = match &container.id_maps {
        // The default devices of every host have this owner and mode.
        Some(ids) if mounts.parent_opens() && !device.is_default() => ids,
        _ => return Ok(DeviceSource::Host(host)),
    };
    let Some(node) = outside(node, ids) else {
        warnings.push(format!(
            "linux.devices: the owner of {} is not in the map: the device of the host is mounted as it is",
            device.path.display()
        ));
        return Ok(DeviceSource::Host(host));
    };
    let path = relative_to_root(&device.path)?;
    let tree = OpenedTree::Device(ParentDevice { path, node, host: host.clone() });
    Ok(mounts.add_tree_if_room(tree).map_or(DeviceSource::Host(host), DeviceSource::Received))
}

/// The node with the owner outside of the user namespace; `None` if the map does not have it.
fn outside(node: DeviceNode, ids: &IdMaps) -> Option<DeviceNode> {
    let find = |map: &[IdExtent], id: u32| {
        map.iter().find_map(|extent| {
            let offset = id.checked_sub(extent.inside).filter(|offset| *offset < extent.count)?;
            extent.outside.checked_add(offset)
        })
    };
    Some(DeviceNode { uid: find(&ids.uid, node.uid)?, gid: find(&ids.gid, node.gid)?, ..node })
}
