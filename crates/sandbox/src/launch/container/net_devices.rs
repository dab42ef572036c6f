//! `linux.netDevices`: moves network devices of the host into the container, with their addresses (runtime-spec 1.3,
//! config-linux.md, "Network Devices"). The kernel moves physical devices back when the network namespace ends.

use saggar_sys::error::{Code, Error, Result};
use saggar_sys::{Errno, net, route};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

/// The range in which the kernel itself searches for a free name.
const MAX_DEVICES: u32 = 32768;

/// Moves each device into the network namespace of `inside`, a route socket in it, under its new name, and brings it up
/// there.
pub(super) fn move_devices(devices: &BTreeMap<String, String>, inside: &OwnedFd) -> Result<()> {
    let ours = net::route_socket().map_err(|e| Error::system("open a route socket", e.desc()))?;
    let namespace = net::namespace_of(inside.as_fd())
        .map_err(|e| Error::system("find the network namespace of the container", e.desc()))?;
    for (name, new) in devices {
        let moved = || {
            let index = route::device_index(ours.as_fd(), name)?;
            let addresses = route::addresses(ours.as_fd(), index)?;
            let new = &free_name(inside, new)?;
            route::move_device(ours.as_fd(), index, namespace.as_fd(), new)?;
            let index = route::device_index(inside.as_fd(), new)?;
            for address in &addresses {
                route::add_address(inside.as_fd(), index, address)?;
            }
            route::set_up(inside.as_fd(), index)
        };
        moved().map_err(|errno| failed(name, new, errno))?;
    }
    Ok(())
}

/// Returns the name, if it is unused inside: the kernel checks that only after the device has left its namespace, and
/// the device is then lost with the new one. `%d` in it stands for the first free number.
fn free_name(inside: &OwnedFd, new: &str) -> Result<String, Errno> {
    let taken = |name: &str| match route::device_index(inside.as_fd(), name) {
        Err(Errno::ENODEV) => Ok(false),
        other => other.map(|_| true),
    };
    if !new.contains("%d") {
        return if taken(new)? { Err(Errno::EEXIST) } else { Ok(new.to_owned()) };
    }
    for number in 0..MAX_DEVICES {
        let name = new.replacen("%d", &number.to_string(), 1);
        if !taken(&name)? {
            return Ok(name);
        }
    }
    Err(Errno::ENFILE)
}

fn failed(name: &str, new: &str, errno: Errno) -> Error {
    let error = Error::new(Code::Invalid, format!("linux.netDevices {name} as {new}: {}", errno.desc()));
    match errno {
        Errno::ENODEV => error.hint("there is no such network device in the runtime's network namespace"),
        Errno::EPERM => error.hint("moving a device needs CAP_NET_ADMIN over both network namespaces"),
        Errno::EEXIST => error.hint("the network namespace of the container has a device of that name"),
        Errno::EINVAL => error.hint("the device cannot leave its network namespace"),
        _ => error,
    }
}
