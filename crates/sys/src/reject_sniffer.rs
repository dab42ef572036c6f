//! Raw sockets (raw(7)) that see the kernel's replies to rejected traffic, in a network namespace in which every
//! address is local. A filter passes only those replies, so the cost for other traffic is negligible.

use super::net::IpFamily;
use super::seccomp::SockFilter;
use super::{Errno, SysResult, check};
use nix::sys::socket::sockopt::RcvBuf;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, setsockopt, socket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The kind of reply with which the kernel rejects traffic to a port without a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum RejectKind {
    /// A TCP connection is reset (RFC 9293, 3.5.2).
    Reset,
    /// The port of a datagram is unreachable, by ICMP (RFC 792) or ICMPv6 (RFC 4443).
    Unreachable,
}

/// The value in a message between processes of saggar.
impl From<RejectKind> for u32 {
    fn from(answer: RejectKind) -> u32 {
        match answer {
            RejectKind::Reset => 0,
            RejectKind::Unreachable => 1,
        }
    }
}

impl From<u32> for RejectKind {
    fn from(word: u32) -> RejectKind {
        if word == 0 { RejectKind::Reset } else { RejectKind::Unreachable }
    }
}

/// All combinations of family and reply that can be observed.
pub const ALL_KINDS: [(IpFamily, RejectKind); 4] = [
    (IpFamily::V4, RejectKind::Reset),
    (IpFamily::V6, RejectKind::Reset),
    (IpFamily::V4, RejectKind::Unreachable),
    (IpFamily::V6, RejectKind::Unreachable),
];

/// Size of the receive buffer in bytes; the kernel doubles it for its own overhead (socket(7)). It holds about fifty
/// packets; the kernel drops further ones.
const RECEIVE_BUFFER: usize = 32 << 10;

const RET: u32 = libc::BPF_RET | libc::BPF_K;
const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
/// Loads from a packet at a fixed offset, or (`_BEYOND`) at an offset from the end of its IPv4 header.
const BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
const WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const BYTE_BEYOND: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_IND;
const HALF_BEYOND: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_IND;
const WORD_BEYOND: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_IND;
/// Loads the length of the IPv4 header at the start of the packet.
const HEADER: u32 = libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH;

/// RST and ACK. With sequence number 0 they reply to a segment without ACK: the first of a connection.
const RESET: u32 = 0x14;
/// ICMP type and code for an unreachable port.
const UNREACHABLE: u32 = 0x0303;
const UNREACHABLE_SIX: u32 = 0x0104;

// Instruction codes fit in 16 bits.
#[allow(clippy::cast_possible_truncation)]
const fn insn(code: u32, jt: u8, jf: u8, k: u32) -> SockFilter {
    SockFilter { code: code as u16, jt, jf, k }
}

const KEEP: SockFilter = insn(RET, 0, 0, 256);
const DROP: SockFilter = insn(RET, 0, 0, 0);

/// Bytes of a packet that are kept: more than an IP header of any length, the ICMP header, and as much again of the
/// datagram that the ICMP message quotes.
pub const SNAPSHOT_LEN: usize = KEEP.k as usize;

/// IPv4 raw sockets receive packets from the IP header on, IPv6 sockets from the end of the IP header on.
static RESETS: [SockFilter; 7] = [
    insn(HEADER, 0, 0, 0),
    insn(BYTE_BEYOND, 0, 0, 13),
    insn(EQUAL, 0, 3, RESET),
    insn(WORD_BEYOND, 0, 0, 4),
    insn(EQUAL, 0, 1, 0),
    KEEP,
    DROP,
];
static RESETS_SIX: [SockFilter; 6] =
    [insn(BYTE, 0, 0, 13), insn(EQUAL, 0, 3, RESET), insn(WORD, 0, 0, 4), insn(EQUAL, 0, 1, 0), KEEP, DROP];
static UNREACHABLES: [SockFilter; 5] =
    [insn(HEADER, 0, 0, 0), insn(HALF_BEYOND, 0, 0, 0), insn(EQUAL, 0, 1, UNREACHABLE), KEEP, DROP];
static UNREACHABLES_SIX: [SockFilter; 4] =
    [insn(HALF, 0, 0, 0), insn(EQUAL, 0, 1, UNREACHABLE_SIX), KEEP, DROP];

/// Opens a non-blocking raw socket of the current network namespace that receives only this kind of reply. Its filter
/// cannot be removed. Call it before any program runs in the namespace: until the filter is attached, the socket
/// receives all packets of its protocol.
///
/// # Errors
/// EPERM without CAP_NET_RAW over the namespace; EAFNOSUPPORT without the family; ENOMEM.
pub fn open_reject_sniffer(family: IpFamily, answer: RejectKind) -> SysResult<OwnedFd> {
    let (domain, protocol, filter) = match (family, answer) {
        (IpFamily::V4, RejectKind::Reset) => (AddressFamily::Inet, SockProtocol::Tcp, &RESETS[..]),
        (IpFamily::V6, RejectKind::Reset) => (AddressFamily::Inet6, SockProtocol::Tcp, &RESETS_SIX[..]),
        (IpFamily::V4, RejectKind::Unreachable) => {
            (AddressFamily::Inet, SockProtocol::Icmp, &UNREACHABLES[..])
        }
        (IpFamily::V6, RejectKind::Unreachable) => {
            (AddressFamily::Inet6, SockProtocol::IcmpV6, &UNREACHABLES_SIX[..])
        }
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let made = socket(domain, SockType::Raw, flags, protocol)?;
    attach(made.as_fd(), filter)?;
    setsockopt(&made, RcvBuf, &RECEIVE_BUFFER)?;
    Ok(made)
}

/// Attaches the filter and locks it (socket(7), SO_LOCK_FILTER, Linux 3.9).
fn attach(socket: BorrowedFd<'_>, filter: &'static [SockFilter]) -> SysResult<()> {
    let len = u16::try_from(filter.len()).map_err(|_| Errno::EINVAL)?;
    // The kernel only reads the program; the C structure has no const.
    let program = libc::sock_fprog { len, filter: filter.as_ptr().cast_mut() };
    set(socket, libc::SO_ATTACH_FILTER, &program)?;
    set(socket, libc::SO_LOCK_FILTER, &1i32)
}

fn set<T>(socket: BorrowedFd<'_>, option: i32, value: &T) -> SysResult<()> {
    let size = libc::socklen_t::try_from(size_of::<T>()).map_err(|_| Errno::EINVAL)?;
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: the kernel reads `size` bytes of a value that lives until the call returns, and the instructions that it
    // points to, which are static.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, value, size) };
    check(done.into()).map(drop)
}
