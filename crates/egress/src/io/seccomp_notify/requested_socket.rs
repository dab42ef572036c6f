//! Sockets that the filter denies. The response has the errno that the filter would have returned itself
//! (`seccomp/agent.json`), after the denial was reported. No socket is ever allowed here.

use saggar_sys::Errno;

/// The bits of a socket's type that are not flags (linux/net.h, SOCK_TYPE_MASK).
const TYPE_MASK: i32 = 0xf;
/// An obsolete type that is also raw (SOCK_PACKET).
const SOCK_PACKET: i32 = 10;

/// A requested socket: domain, type and protocol, as in socket(2).
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestedSocket {
    is_pair: bool,
    domain: i32,
    socket_type: i32,
    protocol: i32,
}

impl RequestedSocket {
    /// The socket that this system call requests. The kernel uses the low halves of the arguments.
    #[allow(clippy::cast_possible_truncation)]
    pub(super) fn from_call(number: i32, [domain, of_type, protocol, ..]: &[u64; 6]) -> Self {
        let int = |argument: u64| (argument as u32).cast_signed();
        let is_pair = i64::from(number) == libc::SYS_socketpair;
        RequestedSocket {
            is_pair,
            domain: int(*domain),
            socket_type: int(*of_type) & TYPE_MASK,
            protocol: int(*protocol),
        }
    }

    /// The errno that the filter itself returns.
    pub(super) fn errno(&self) -> Errno {
        match self.domain {
            _ if self.is_pair => Errno::EAFNOSUPPORT,
            libc::AF_NETLINK => Errno::EPROTONOSUPPORT,
            libc::AF_INET | libc::AF_INET6 => match self.socket_type {
                _ if self.protocol == libc::IPPROTO_MPTCP => Errno::EPROTONOSUPPORT,
                libc::SOCK_RAW | SOCK_PACKET => Errno::EPERM,
                _ => Errno::EPROTONOSUPPORT,
            },
            _ => Errno::EAFNOSUPPORT,
        }
    }
}

impl std::fmt::Display for RequestedSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = if self.is_pair { "pair of sockets" } else { "socket" };
        let internet = match self.domain {
            libc::AF_INET => Some("IPv4"),
            libc::AF_INET6 => Some("IPv6"),
            _ => None,
        };
        match (internet, self.domain) {
            (Some(_), _) if self.protocol == libc::IPPROTO_MPTCP => write!(f, "an MPTCP {what}"),
            (Some(family), _) if self.socket_type == libc::SOCK_RAW => write!(f, "a raw {family} {what}"),
            (Some(_), _) if self.protocol == libc::IPPROTO_ICMP => write!(f, "an ICMP {what}"),
            (Some(_), _) if self.protocol == libc::IPPROTO_ICMPV6 => write!(f, "an ICMPv6 {what}"),
            (Some(_), _) if self.protocol == libc::IPPROTO_SCTP => write!(f, "an SCTP {what}"),
            (Some(family), _) => {
                write!(f, "an {family} {what} of type {} and protocol {}", self.socket_type, self.protocol)
            }
            (None, libc::AF_NETLINK) => write!(f, "a netlink {what} of protocol {}", self.protocol),
            (None, libc::AF_VSOCK) => write!(f, "a vsock {what}"),
            (None, libc::AF_PACKET) => write!(f, "a packet {what}"),
            (None, libc::AF_ALG) => write!(f, "an alg {what}"),
            (None, libc::AF_BLUETOOTH) => write!(f, "a Bluetooth {what}"),
            (None, domain) => write!(f, "a {what} of family {domain}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libc::{AF_INET, AF_INET6, AF_NETLINK, AF_VSOCK, SOCK_DGRAM, SOCK_RAW, SOCK_STREAM};
    use saggar_sys::seccomp::{FilterProfile, program};
    use saggar_sys::testing::machine::{SeccompData, run};

    const AUDIT: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };

    fn args(numbers: [i32; 3]) -> [u64; 6] {
        // Values in the high halves change nothing.
        let [a, b, c] = numbers.map(|number| u64::from(number.cast_unsigned()) | 7 << 32);
        [a, b, c, 0, 0, 0]
    }

    #[test]
    fn the_error_is_the_one_of_the_filter() {
        let (mut refused, types) =
            (0, (0..16).chain([SOCK_STREAM | libc::SOCK_CLOEXEC, SOCK_RAW | libc::SOCK_NONBLOCK]));
        for of_type in types {
            for domain in (-1..64).chain([i32::MAX]) {
                for protocol in (0..300).chain([-1]) {
                    for number in [libc::SYS_socket, libc::SYS_socketpair] {
                        let (number, args) =
                            (i32::try_from(number).unwrap(), args([domain, of_type, protocol]));
                        let call = SeccompData { arch: AUDIT, number: number.cast_unsigned(), args };
                        let (answer, _) = run(program(FilterProfile::Agent), &call);
                        if answer != libc::SECCOMP_RET_ALLOW {
                            let error = RequestedSocket::from_call(number, &args).errno() as i32;
                            assert_eq!(answer, libc::SECCOMP_RET_ERRNO | error.cast_unsigned(), "{call:?}");
                            refused += 1;
                        }
                    }
                }
            }
        }
        assert!(refused > 100_000, "{refused}");
    }

    #[test]
    fn a_socket_is_told_in_words() {
        let socket = i32::try_from(libc::SYS_socket).unwrap();
        let words = |numbers| RequestedSocket::from_call(socket, &args(numbers)).to_string();
        for (numbers, said) in [
            ([AF_VSOCK, SOCK_STREAM, 0], "a vsock socket"),
            ([AF_INET, SOCK_STREAM | libc::SOCK_CLOEXEC, libc::IPPROTO_MPTCP], "an MPTCP socket"),
            ([AF_INET6, SOCK_RAW, libc::IPPROTO_ICMPV6], "a raw IPv6 socket"),
            ([AF_INET, SOCK_DGRAM, libc::IPPROTO_ICMP], "an ICMP socket"),
            ([AF_INET, SOCK_DGRAM, 136], "an IPv4 socket of type 2 and protocol 136"),
            ([AF_NETLINK, SOCK_RAW, 9], "a netlink socket of protocol 9"),
            ([1000, SOCK_STREAM, 0], "a socket of family 1000"),
        ] {
            assert_eq!(words(numbers), said);
        }
        let pair = i32::try_from(libc::SYS_socketpair).unwrap();
        let said = RequestedSocket::from_call(pair, &args([AF_INET, SOCK_STREAM, 0])).to_string();
        assert_eq!(said, "an IPv4 pair of sockets of type 1 and protocol 0");
    }
}
