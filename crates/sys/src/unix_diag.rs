//! The peer of a connected unix socket (sock_diag(7)). For the parent only: these functions allocate.

use super::route::{messages, parse_ack, parse_attributes, receive, send};
use super::{Errno, SysResult};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use std::os::fd::AsFd;

/// linux/sock_diag.h, linux/unix_diag.h
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SHOW_PEER: u32 = 4;
const UNIX_DIAG_PEER: u16 = 2;
/// Sizes in bytes of `struct unix_diag_req` and of `struct unix_diag_msg`.
const REQUEST: usize = 24;
const MESSAGE: usize = 16;

/// The inode of the socket that is connected to the socket with this inode. Both are in our own network namespace.
///
/// # Errors
/// ENOENT if there is no such socket, if its peer is closed, and on a kernel without unix_diag.
pub(crate) fn peer_inode(inode: u64) -> SysResult<u32> {
    let inode = u32::try_from(inode).map_err(|_| Errno::ENOENT)?;
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkSockDiag)?;
    send(socket.as_fd(), SOCK_DIAG_BY_FAMILY, 0, &request(inode), &[])?;
    let bytes = receive(socket.as_fd())?;
    let (kind, payload) = messages(&bytes).next().ok_or(Errno::EPROTO)?;
    if i32::from(kind) == libc::NLMSG_ERROR {
        return parse_ack(payload).and(Err(Errno::ENOENT));
    }
    let attributes = payload.get(MESSAGE..).ok_or(Errno::EPROTO)?;
    let peer = parse_attributes(attributes).find(|(kind, _)| *kind == UNIX_DIAG_PEER).ok_or(Errno::ENOENT)?.1;
    match u32::from_ne_bytes(peer.try_into().map_err(|_| Errno::EPROTO)?) {
        0 => Err(Errno::ENOENT),
        inode => Ok(inode),
    }
}

/// `struct unix_diag_req` for one socket, in any state, with any cookie.
fn request(inode: u32) -> [u8; REQUEST] {
    let mut request = [0xff; REQUEST];
    request[..4].copy_from_slice(&[1, 0, 0, 0]); // AF_UNIX
    request[8..12].copy_from_slice(&inode.to_ne_bytes());
    request[12..16].copy_from_slice(&SHOW_PEER.to_ne_bytes());
    request
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_other_end_is_named_until_it_is_closed() {
        let (one, other) = UnixStream::pair().unwrap();
        let inode = |end: &UnixStream| nix::sys::stat::fstat(end).unwrap().st_ino;
        assert_eq!(u64::from(peer_inode(inode(&one)).unwrap()), inode(&other));
        assert_eq!(u64::from(peer_inode(inode(&other)).unwrap()), inode(&one));
        drop(other);
        assert_eq!(peer_inode(inode(&one)), Err(Errno::ENOENT));
        assert!(one.as_raw_fd() > 0 && peer_inode(0).is_err());
    }
}
