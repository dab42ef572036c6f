//! Network devices and their addresses over a route socket (rtnetlink(7)). For the parent only: these functions
//! allocate.

use super::{Errno, SysResult, call};
use std::os::fd::{AsRawFd, BorrowedFd};

/// linux/if_link.h, linux/if_addr.h
const IFLA_IFNAME: u16 = 3;
const IFLA_NET_NS_FD: u16 = 28;
const IFA_CACHEINFO: u16 = 6;
const IFA_LABEL: u16 = 3;
const IFA_FLAGS: u16 = 8;
const IFA_F_PERMANENT: u32 = 0x80;

/// Sizes in bytes of `struct nlmsghdr`, of `struct ifinfomsg` and of `struct ifaddrmsg`.
const HEADER: usize = 16;
const LINK: usize = 16;
const ADDRESS: usize = 8;

/// An address of a device, as the kernel sent it: `struct ifaddrmsg` and its attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceAddress {
    message: [u8; ADDRESS],
    attributes: Vec<u8>,
}

/// The index of a device in the network namespace of `socket` (netdevice(7), SIOCGIFINDEX).
///
/// # Errors
/// ENODEV; EINVAL for a name that is too long.
pub fn device_index(socket: BorrowedFd<'_>, name: &str) -> SysResult<u32> {
    // SAFETY: all zeros is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(Errno::EINVAL);
    }
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = byte.cast_signed();
    }
    call!(libc::SYS_ioctl, socket.as_raw_fd(), libc::SIOCGIFINDEX, &raw mut request)?;
    // SAFETY: SIOCGIFINDEX has filled in the index.
    u32::try_from(unsafe { request.ifr_ifru.ifru_ifindex }).map_err(|_| Errno::ENODEV)
}

/// The permanent addresses of global scope of a device.
///
/// # Errors
/// Those of the socket.
pub fn addresses(socket: BorrowedFd<'_>, index: u32) -> SysResult<Vec<DeviceAddress>> {
    let dump = u16::try_from(libc::NLM_F_DUMP).unwrap_or(0);
    send(socket, libc::RTM_GETADDR, dump, &[0; ADDRESS], &[])?;
    let mut found = Vec::new();
    loop {
        let bytes = receive(socket)?;
        for (kind, payload) in messages(&bytes) {
            match i32::from(kind) {
                libc::NLMSG_DONE => return Ok(found),
                libc::NLMSG_ERROR => return parse_ack(payload).map(|()| found),
                _ => found.extend(address(payload, index)),
            }
        }
    }
}

fn address(payload: &[u8], index: u32) -> Option<DeviceAddress> {
    let message: [u8; ADDRESS] = payload.get(..ADDRESS)?.try_into().ok()?;
    let of = u32::from_ne_bytes(message[4..8].try_into().ok()?);
    if of != index || message[3] != libc::RT_SCOPE_UNIVERSE {
        return None;
    }
    let (mut attributes, mut flags) = (Vec::new(), u32::from(message[2]));
    for (kind, value) in parse_attributes(&payload[ADDRESS..]) {
        match kind {
            // The label is the device's old name, and permanent addresses have no lifetime.
            IFA_CACHEINFO | IFA_LABEL => {}
            IFA_FLAGS => flags = u32::from_ne_bytes(value.try_into().ok()?),
            _ => attribute(&mut attributes, kind, value),
        }
    }
    (flags & IFA_F_PERMANENT != 0).then_some(DeviceAddress { message, attributes })
}

/// Moves a device of the namespace of `socket` into the network namespace `to`, under the name `name`.
///
/// # Errors
/// EPERM; EEXIST if the name exists there; EINVAL for a device that cannot be moved, such as `lo`.
pub fn move_device(socket: BorrowedFd<'_>, index: u32, to: BorrowedFd<'_>, name: &str) -> SysResult<()> {
    let mut attributes = Vec::new();
    attribute(&mut attributes, IFLA_NET_NS_FD, &to.as_raw_fd().to_ne_bytes());
    attribute(&mut attributes, IFLA_IFNAME, &[name.as_bytes(), b"\0"].concat());
    request(socket, libc::RTM_NEWLINK, 0, &link(index, 0), &attributes)
}

/// Sets a device up.
///
/// # Errors
/// EPERM.
pub fn set_up(socket: BorrowedFd<'_>, index: u32) -> SysResult<()> {
    request(socket, libc::RTM_NEWLINK, 0, &link(index, libc::IFF_UP.cast_unsigned()), &[])
}

/// Adds an address to a device. The address may come from another device, or from this one in another namespace.
///
/// # Errors
/// EPERM; EEXIST.
pub fn add_address(socket: BorrowedFd<'_>, index: u32, address: &DeviceAddress) -> SysResult<()> {
    let mut message = address.message;
    message[4..8].copy_from_slice(&index.to_ne_bytes());
    let new = u16::try_from(libc::NLM_F_CREATE | libc::NLM_F_EXCL).unwrap_or(0);
    request(socket, libc::RTM_NEWADDR, new, &message, &address.attributes)
}

/// `struct ifinfomsg` that sets these flags and changes no others.
fn link(index: u32, flags: u32) -> [u8; LINK] {
    let mut message = [0; LINK];
    message[4..8].copy_from_slice(&index.to_ne_bytes());
    message[8..12].copy_from_slice(&flags.to_ne_bytes());
    message[12..16].copy_from_slice(&flags.to_ne_bytes());
    message
}

/// Appends `struct rtattr`, its value, and padding to the alignment of the next attribute.
fn attribute(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let len = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    to.extend(len.to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

/// Sends a request and waits for its acknowledgement.
fn request(
    socket: BorrowedFd<'_>,
    kind: u16,
    flags: u16,
    message: &[u8],
    attributes: &[u8],
) -> SysResult<()> {
    let acknowledge = u16::try_from(libc::NLM_F_ACK).unwrap_or(0);
    send(socket, kind, flags | acknowledge, message, attributes)?;
    let bytes = receive(socket)?;
    match messages(&bytes).next() {
        Some((kind, payload)) if i32::from(kind) == libc::NLMSG_ERROR => parse_ack(payload),
        _ => Err(Errno::EPROTO),
    }
}

pub(super) fn send(
    socket: BorrowedFd<'_>,
    kind: u16,
    flags: u16,
    message: &[u8],
    attributes: &[u8],
) -> SysResult<()> {
    let len = u32::try_from(HEADER + message.len() + attributes.len()).map_err(|_| Errno::E2BIG)?;
    let flags = flags | u16::try_from(libc::NLM_F_REQUEST).unwrap_or(0);
    let mut bytes = Vec::from(len.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend(message);
    bytes.extend(attributes);
    nix::sys::socket::send(socket.as_raw_fd(), &bytes, nix::sys::socket::MsgFlags::empty()).map(drop)
}

pub(super) fn receive(socket: BorrowedFd<'_>) -> SysResult<Vec<u8>> {
    let mut bytes = vec![0; 32 << 10];
    let len = nix::sys::socket::recv(socket.as_raw_fd(), &mut bytes, nix::sys::socket::MsgFlags::empty())?;
    bytes.truncate(len);
    Ok(bytes)
}

/// `struct nlmsgerr` begins with the negative error number.
pub(super) fn parse_ack(payload: &[u8]) -> SysResult<()> {
    let number = payload.get(..4).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    match number {
        Some(0) => Ok(()),
        Some(number) => Err(Errno::from_raw(-number)),
        None => Err(Errno::EPROTO),
    }
}

/// The messages of one datagram, as kind and payload.
pub(super) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::try_from(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?)).ok()?;
        let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
        let payload = bytes.get(HEADER..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, payload))
    })
}

/// The attributes of a message, as kind and value.
pub(super) fn parse_attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn attributes_survive_being_written_and_read() {
        let mut bytes = Vec::new();
        attribute(&mut bytes, 3, b"eth0\0");
        attribute(&mut bytes, 28, &7i32.to_ne_bytes());
        let read: Vec<_> = parse_attributes(&bytes).collect();
        assert_eq!(read, [(3, &b"eth0\0"[..]), (28, &7i32.to_ne_bytes()[..])]);
        assert_eq!(parse_attributes(&bytes[..6]).count(), 0, "a torn attribute is none");
    }

    #[test]
    fn devices_of_this_namespace_are_found() {
        let socket = crate::net::route_socket().unwrap();
        assert_eq!(device_index(socket.as_fd(), "lo").unwrap(), 1);
        assert_eq!(device_index(socket.as_fd(), "no-such-device"), Err(Errno::ENODEV));
        // 127.0.0.1 has host scope.
        assert_eq!(addresses(socket.as_fd(), 1).unwrap(), []);
    }
}
