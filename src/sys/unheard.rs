//! Witnesses of what nobody hears: raw sockets (raw(7)) that see how the kernel answers for a network namespace in which
//! every address is local. A filter lets nothing else reach them, so that traffic costs next to nothing.

use super::net::Family;
use super::seccomp::SockFilter;
use super::{Errno, SysResult, check};
use nix::sys::socket::sockopt::RcvBuf;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, setsockopt, socket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// How the kernel answers in the place of somebody who would hear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Answer {
    /// A connection is reset (RFC 9293, 3.5.2).
    Reset,
    /// The port of a datagram is unreachable, by ICMP (RFC 792) or ICMPv6 (RFC 4443).
    Unreachable,
}

/// As a word of a message.
impl From<Answer> for u32 {
    fn from(answer: Answer) -> u32 {
        match answer {
            Answer::Reset => 0,
            Answer::Unreachable => 1,
        }
    }
}

impl From<u32> for Answer {
    fn from(word: u32) -> Answer {
        if word == 0 { Answer::Reset } else { Answer::Unreachable }
    }
}

/// All that can be witnessed.
pub const ALL: [(Family, Answer); 4] = [
    (Family::Four, Answer::Reset),
    (Family::Six, Answer::Reset),
    (Family::Four, Answer::Unreachable),
    (Family::Six, Answer::Unreachable),
];

/// Bytes that may wait to be read, of which the kernel makes twice as many for its own needs (socket(7)): what comes
/// on top of some fifty packets is lost.
const ROOM: usize = 32 << 10;

const RET: u32 = libc::BPF_RET | libc::BPF_K;
const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
/// Of a packet, at a fixed place, or (`_BEYOND`) that much beyond its IPv4 header.
const BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
const WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const BYTE_BEYOND: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_IND;
const HALF_BEYOND: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_IND;
const WORD_BEYOND: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_IND;
/// Takes the length of the IPv4 header that the packet begins with.
const HEADER: u32 = libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH;

/// RST and ACK. With the sequence number 0 they answer what acknowledged nothing: the beginning of a connection.
const RESET: u32 = 0x14;
/// Type and code of a port that is unreachable.
const UNREACHABLE: u32 = 0x0303;
const UNREACHABLE_SIX: u32 = 0x0104;

// Codes are a few bits.
#[allow(clippy::cast_possible_truncation)]
const fn insn(code: u32, jt: u8, jf: u8, k: u32) -> SockFilter {
    SockFilter { code: code as u16, jt, jf, k }
}

const KEEP: SockFilter = insn(RET, 0, 0, 256);
const DROP: SockFilter = insn(RET, 0, 0, 0);

/// Bytes of a packet that are kept: more than an IP header of any length, the header of ICMP, and as much again of the
/// datagram that it speaks of.
pub const KEPT: usize = KEEP.k as usize;

/// IPv4 sockets get packets from the IP header on, IPv6 ones from what comes after it.
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

/// A non-blocking socket of the current network namespace that hears this answer and nothing else. Its filter is there
/// for good. For a namespace in which no program runs yet: until the filter is there, it hears all.
///
/// # Errors
/// EPERM without CAP_NET_RAW over the namespace; EAFNOSUPPORT without the family; ENOMEM.
pub fn witness(family: Family, answer: Answer) -> SysResult<OwnedFd> {
    let (domain, protocol, filter) = match (family, answer) {
        (Family::Four, Answer::Reset) => (AddressFamily::Inet, SockProtocol::Tcp, &RESETS[..]),
        (Family::Six, Answer::Reset) => (AddressFamily::Inet6, SockProtocol::Tcp, &RESETS_SIX[..]),
        (Family::Four, Answer::Unreachable) => (AddressFamily::Inet, SockProtocol::Icmp, &UNREACHABLES[..]),
        (Family::Six, Answer::Unreachable) => {
            (AddressFamily::Inet6, SockProtocol::IcmpV6, &UNREACHABLES_SIX[..])
        }
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let made = socket(domain, SockType::Raw, flags, protocol)?;
    attach(made.as_fd(), filter)?;
    setsockopt(&made, RcvBuf, &ROOM)?;
    Ok(made)
}

/// Sets the filter and locks it (socket(7), SO_LOCK_FILTER, Linux 3.9).
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
    // SAFETY: the kernel reads that many bytes of a value that lives until the call returns, and the instructions
    // that it points to, which are static.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, value, size) };
    check(done.into()).map(drop)
}
