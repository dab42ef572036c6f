//! `linux.netDevices`: network devices of the host that move into the container, with the addresses that they have
//! (runtime-spec 1.3, config-linux.md, "Network Devices"). They come back when its network namespace ends, as far
//! as the kernel gives them back.

use crate::error::{Code, Error, Result};
use crate::sys::{Errno, net, route};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

/// Moves each device into the network namespace of `inside`, a route socket of it, under its new name, and sets
/// it up there.
pub(super) fn hand_over(devices: &BTreeMap<String, String>, inside: &OwnedFd) -> Result<()> {
    let ours = net::route_socket().map_err(|e| Error::system("open a route socket", e.desc()))?;
    let namespace = net::namespace_of(inside.as_fd())
        .map_err(|e| Error::system("find the network namespace of the container", e.desc()))?;
    for (name, new) in devices {
        let moved = || {
            let index = route::index(ours.as_fd(), name)?;
            let addresses = route::addresses(ours.as_fd(), index)?;
            route::move_device(ours.as_fd(), index, namespace.as_fd(), new)?;
            let index = route::index(inside.as_fd(), new)?;
            for address in &addresses {
                route::add_address(inside.as_fd(), index, address)?;
            }
            route::set_up(inside.as_fd(), index)
        };
        moved().map_err(|errno| failed(name, new, errno))?;
    }
    Ok(())
}

fn failed(name: &str, new: &str, errno: Errno) -> Error {
    let error = Error::new(Code::Invalid, format!("linux.netDevices {name} as {new}: {}", errno.desc()));
    match errno {
        Errno::ENODEV => error.hint("there is no such network device in the runtime's network namespace"),
        Errno::EPERM => error.hint("moving a device needs CAP_NET_ADMIN over both network namespaces"),
        Errno::EINVAL => error.hint("the device cannot leave its network namespace"),
        _ => error,
    }
}
