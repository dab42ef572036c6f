//! Messages with descriptors and credentials over unix sockets (unix(7)), without allocation.

use super::{Errno, SysResult, check, file};
use crate::error::{Error, Result};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Maximum number of descriptors in one message.
pub const MAX_FDS: usize = 8;

/// Buffer for one control message of [`MAX_FDS`] descriptors and one of credentials, aligned for cmsghdr.
#[repr(C, align(8))]
struct ControlBuffer([u8; 128]);

/// A received message.
#[derive(Debug, Default)]
pub struct ReceivedMessage {
    /// Length of the message in bytes; 0 at the end of the stream.
    pub len: usize,
    /// Descriptors, in the order in which they were sent; close-on-exec.
    pub fds: [Option<OwnedFd>; MAX_FDS],
    /// The sender's pid in our pid namespace, if the socket has SO_PASSCRED.
    pub pid: Option<i32>,
}

/// Makes a close-on-exec socket pair that preserves message boundaries.
///
/// # Errors
/// [`crate::error::Code::System`].
pub fn socket_pair() -> Result<(OwnedFd, OwnedFd)> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
        .map_err(|e| Error::system("make a socketpair", e))
}

/// Sends one message and up to [`MAX_FDS`] descriptors.
///
/// # Errors
/// Those of sendmsg(2); EINVAL for too many descriptors; EPIPE (never SIGPIPE) if the peer has closed the socket.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[RawFd]) -> SysResult<()> {
    send_with(socket, bytes, fds, libc::MSG_NOSIGNAL).map(drop)
}

/// As [`send`] on a stream socket, for bytes of any length. The descriptors are attached to the first of them.
///
/// # Errors
/// As [`send`].
pub fn send_all(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[RawFd]) -> SysResult<()> {
    let sent = send_with(socket, bytes, fds, libc::MSG_NOSIGNAL)?;
    // A signal has interrupted it.
    file::write_all(socket, bytes.get(sent..).unwrap_or_default())
}

/// As [`send`], without waiting for a peer that does not receive.
///
/// # Errors
/// As [`send`]; EAGAIN if the buffer of the socket is full.
pub fn send_now(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[RawFd]) -> SysResult<()> {
    send_with(socket, bytes, fds, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT).map(drop)
}

fn send_with(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[RawFd], flags: libc::c_int) -> SysResult<usize> {
    if fds.len() > MAX_FDS {
        return Err(Errno::EINVAL);
    }
    let mut control = ControlBuffer([0; 128]);
    let mut iov = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all zeros is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut iov;
    message.msg_iovlen = 1;
    if !fds.is_empty() {
        let payload = libc::c_uint::try_from(size_of_val(fds)).map_err(|_| Errno::EINVAL)?;
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: CMSG_SPACE only computes.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(payload) } as usize;
        // SAFETY: the control buffer is aligned and long enough for MAX_FDS descriptors; CMSG_FIRSTHDR
        // and CMSG_DATA point into it.
        #[allow(clippy::multiple_unsafe_ops_per_block)]
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(payload) as usize;
            let data = libc::CMSG_DATA(header).cast::<RawFd>();
            std::ptr::copy_nonoverlapping(fds.as_ptr(), data, fds.len());
        }
    }
    loop {
        // SAFETY: the message points to buffers that live until the call returns.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
        match check(sent as libc::c_long) {
            Ok(sent) => return usize::try_from(sent).map_err(|_| Errno::EIO),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Receives one message into `buffer`, with its descriptors and credentials.
///
/// # Errors
/// Those of recvmsg(2): EAGAIN on a non-blocking socket without a message.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> SysResult<ReceivedMessage> {
    let mut control = ControlBuffer([0; 128]);
    let mut iov = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all zeros is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut iov;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len();
    let len = loop {
        // SAFETY: the message points to buffers that live until the call returns.
        let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        match check(got as libc::c_long) {
            Ok(len) => break usize::try_from(len).map_err(|_| Errno::EIO)?,
            // The kernel reports ECONNRESET once if the peer closed the socket with unread data; messages that the peer
            // sent before can still be received.
            Err(Errno::EINTR | Errno::ECONNRESET) => {}
            Err(errno) => return Err(errno),
        }
    };
    let mut received = ReceivedMessage { len, ..ReceivedMessage::default() };
    // SAFETY: the kernel filled the control buffer; the CMSG macros stay inside msg_controllen, and each descriptor in
    // it was created for this process just now.
    #[allow(clippy::multiple_unsafe_ops_per_block)]
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                for i in 0..bytes / size_of::<RawFd>() {
                    let fd = OwnedFd::from_raw_fd(data.add(i).read_unaligned());
                    if let Some(slot) = received.fds.get_mut(i) {
                        *slot = Some(fd);
                    }
                }
            } else if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_CREDENTIALS
            {
                received.pid = Some(libc::CMSG_DATA(header).cast::<libc::ucred>().read_unaligned().pid);
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Ok(received)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    use std::os::fd::AsFd;

    /// pid 1 reports a failed step and exits while the request for the first program is still unread.
    #[test]
    fn last_words_are_heard_from_a_peer_that_left_something_unread() {
        let pair = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC);
        let (ours, theirs) = pair.unwrap();
        send(ours.as_fd(), b"never read", &[]).unwrap();
        send(theirs.as_fd(), b"last words", &[]).unwrap();
        drop(theirs);
        let mut buffer = [0; 16];
        assert_eq!(receive(ours.as_fd(), &mut buffer).unwrap().len, 10);
        assert_eq!(receive(ours.as_fd(), &mut buffer).unwrap().len, 0);
    }
}
