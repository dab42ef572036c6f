//! `linux.devices`, with the devices and links that every container has (config-linux.md, Devices).

use super::document;
use super::field::Field;
use super::text::{absolute, some_text};
use crate::error::Result;
use crate::spec::container::{ContainerMount, ContainerMountKind, Device};
use oci_spec::runtime::LinuxDeviceType;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Path, major, minor: the default devices, for everybody to read and write.
const DEFAULT: [(&str, u32, u32); 6] = [
    ("/dev/null", 1, 3),
    ("/dev/zero", 1, 5),
    ("/dev/full", 1, 7),
    ("/dev/random", 1, 8),
    ("/dev/urandom", 1, 9),
    ("/dev/tty", 5, 0),
];

/// Path, target. `/dev/ptmx` is that of the container's own devpts.
const LINKS: [(&str, &str); 5] = [
    ("/dev/ptmx", "pts/ptmx"),
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

/// The host's node of that name.
const PTMX: (&str, (u32, u32)) = ("/dev/ptmx", (5, 2));

/// Numbers that fit in a dev_t of the kernel: 12 bits and 20 bits (makedev(3)).
const MAX_MAJOR: u32 = (1 << 12) - 1;
const MAX_MINOR: u32 = (1 << 20) - 1;

/// Path, target.
type Links = Vec<(PathBuf, PathBuf)>;

/// The device nodes and the links. An entry of the document stands for the default at its path. Where the host's
/// `/dev` is bound there is nothing to make: nodes made there would be the host's.
pub(super) fn devices(
    entries: Option<Vec<document::Device>>,
    mounts: &[ContainerMount],
) -> Result<(Vec<Device>, Links)> {
    let linux = Field::root("linux");
    let list = linux.key("devices");
    let (mut named, mut paths): (Vec<Device>, BTreeMap<PathBuf, usize>) = Default::default();
    for (index, entry) in entries.unwrap_or_default().into_iter().enumerate() {
        let device = device(entry, list.at(index))?;
        match paths.get(&device.path).map(|other| &named[*other]) {
            Some(other) if *other == device => {}
            Some(_) => {
                let error = list.at(index).key("path").invalid("is that of another device, too");
                return Err(error.hint("give each path once"));
            }
            None => {
                paths.insert(device.path.clone(), named.len());
                named.push(device)
            }
        }
    }
    let dev = Path::new("/dev");
    let is_host =
        |mount: &ContainerMount| mount.at == dev && matches!(mount.kind, ContainerMountKind::Bind { .. });
    if mounts.iter().any(is_host) {
        named.retain(|device| !device.path.starts_with(dev));
        return Ok((named, Vec::new()));
    }
    // The one that belongs to the container is at the other end of the link; callers list the host's.
    named.retain(|device| device.path != Path::new(PTMX.0) || (device.major, device.minor) != PTMX.1);
    // What the document puts at a path, as a device or as a mount, is what is there.
    let taken = |path: &Path, named: &[Device]| {
        named.iter().any(|device| device.path == path) || mounts.iter().any(|mount| mount.at == path)
    };
    let links = LINKS.iter().map(|(path, target)| (PathBuf::from(path), PathBuf::from(target)));
    let links = links.filter(|(path, _)| !taken(path, &named)).collect();
    let default = DEFAULT.iter().map(|(path, major, minor)| Device {
        path: path.into(),
        kind: libc::S_IFCHR,
        major: *major,
        minor: *minor,
        mode: 0o666,
        uid: 0,
        gid: 0,
    });
    let mut all: Vec<Device> = default.filter(|device| !taken(&device.path, &named)).collect();
    all.append(&mut named);
    Ok((all, links))
}

fn device(entry: document::Device, field: Field<'_>) -> Result<Device> {
    let path = some_text(entry.path).ok_or_else(|| field.key("path").missing())?;
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
    // Callers copy st_mode as it is: the bits of the type may stand there.
    if mode & !(libc::S_IFMT | 0o7777) != 0 {
        return Err(field
            .key("fileMode")
            .invalid(format_args!("is not a mode: {mode}; it is a decimal number")));
    }
    Ok(Device {
        path: absolute(path, field.key("path"))?,
        kind,
        major,
        minor,
        mode: mode & 0o7777,
        uid: entry.uid.unwrap_or(0),
        gid: entry.gid.unwrap_or(0),
    })
}
