//! `linux.devices`, with the devices and links that every container has (config-linux.md, Devices).

use super::document;
use super::field_path::FieldPath;
use super::text::{non_empty, require_absolute};
use crate::spec::container::{ContainerMount, ContainerMountKind, DeviceSpec};
use oci_spec::runtime::LinuxDeviceType;
use saggar_sys::error::Result;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Path and target of the default links. `/dev/ptmx` links to the container's own devpts.
const DEFAULT_LINKS: [(&str, &str); 5] = [
    ("/dev/ptmx", "pts/ptmx"),
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

/// The path and device number of the host's ptmx node.
const HOST_PTMX: (&str, (u32, u32)) = ("/dev/ptmx", (5, 2));

/// The maximum numbers of a kernel dev_t: 12 bits and 20 bits (makedev(3)).
const MAX_MAJOR: u32 = (1 << 12) - 1;
const MAX_MINOR: u32 = (1 << 20) - 1;

/// Path and target of each link.
type Links = Vec<(PathBuf, PathBuf)>;

/// The device nodes and links. An entry of the document replaces the default at its path. If the host's
/// `/dev` is bind-mounted, none are created: they would be created on the host.
pub(super) fn lower_devices(
    entries: Option<Vec<document::OciDevice>>,
    mounts: &[ContainerMount],
) -> Result<(Vec<DeviceSpec>, Links)> {
    let linux = FieldPath::root("linux");
    let list = linux.key("devices");
    let (mut named, mut paths): (Vec<DeviceSpec>, BTreeMap<PathBuf, usize>) = Default::default();
    for (index, entry) in entries.unwrap_or_default().into_iter().enumerate() {
        let device = lower_device(entry, list.index(index))?;
        match paths.get(&device.path).map(|other| &named[*other]) {
            Some(other) if *other == device => {}
            Some(_) => {
                let error = list.index(index).key("path").invalid("is that of another device, too");
                return Err(error.hint("give each path once"));
            }
            None => {
                paths.insert(device.path.clone(), named.len());
                named.push(device)
            }
        }
    }
    let dev = Path::new("/dev");
    let is_host = |mount: &ContainerMount| {
        mount.destination == dev && matches!(mount.kind, ContainerMountKind::Bind { .. })
    };
    if mounts.iter().any(is_host) {
        named.retain(|device| !device.path.starts_with(dev));
        return Ok((named, Vec::new()));
    }
    // Callers list the host's ptmx node. The container's own is the target of the default link.
    named.retain(|device| {
        device.path != Path::new(HOST_PTMX.0) || (device.major, device.minor) != HOST_PTMX.1
    });
    // A device or mount of the document replaces the default at its path.
    let taken = |path: &Path, named: &[DeviceSpec]| {
        named.iter().any(|device| device.path == path) || mounts.iter().any(|mount| mount.destination == path)
    };
    let links = DEFAULT_LINKS.iter().map(|(path, target)| (PathBuf::from(path), PathBuf::from(target)));
    let links = links.filter(|(path, _)| !taken(path, &named)).collect();
    let default = DeviceSpec::default_devices();
    let mut all: Vec<DeviceSpec> = default.filter(|device| !taken(&device.path, &named)).collect();
    all.append(&mut named);
    Ok((all, links))
}

fn lower_device(entry: document::OciDevice, field: FieldPath<'_>) -> Result<DeviceSpec> {
    let path = non_empty(entry.path).ok_or_else(|| field.key("path").missing())?;
    let kind = match entry.kind {
        LinuxDeviceType::C | LinuxDeviceType::U => libc::S_IFCHR,
        LinuxDeviceType::B => libc::S_IFBLK,
        LinuxDeviceType::P => libc::S_IFIFO,
        LinuxDeviceType::A => return Err(field.key("type").invalid("must be c, u, b or p, is a")),
    };
    let number = |value: Option<i64>, key: &str, max: u32| match value {
        None if kind == libc::S_IFIFO => Ok(0),
        None => Err(field.key(key).missing()),
        Some(value) => u32::try_from(value)
            .ok()
            .filter(|value| *value <= max)
            .ok_or_else(|| field.key(key).invalid(format_args!("must be from 0 to {max}, is {value}"))),
    };
    let (major, minor) = (number(entry.major, "major", MAX_MAJOR)?, number(entry.minor, "minor", MAX_MINOR)?);
    let mode = entry.file_mode.unwrap_or(0o666);
    // Callers copy st_mode unchanged, so the file type bits are allowed.
    if mode & !(libc::S_IFMT | 0o7777) != 0 {
        return Err(field
            .key("fileMode")
            .invalid(format_args!("is not a mode: {mode}; it is a decimal number")));
    }
    Ok(DeviceSpec {
        path: require_absolute(path, field.key("path"))?,
        kind,
        major,
        minor,
        mode: mode & 0o7777,
        uid: entry.uid.unwrap_or(0),
        gid: entry.gid.unwrap_or(0),
    })
}
